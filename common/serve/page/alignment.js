// Which symbol each moment of an utterance belongs to: by Tacotron 2's attention, else by the durations.

const WHOLE = 255; // all of the attention

// The server's alignment -> {start, end, symbols, steps, levels: Uint8Array [steps, symbols], likeliest}, the
// last being the attention on the likeliest symbol, summed over the steps; null where there is no attention.
export function alignmentOf({ start, symbols, seconds, attention }, frameSeconds) {
  const edges = [0];
  for (const one of seconds) edges.push(edges.at(-1) + one);
  const count = symbols.length;
  const { steps, levels } = attention ? attended(attention) : stairs(edges, count, frameSeconds);
  const likeliest = attention ? sumOfLargest(levels, count) / WHOLE : null;
  return { start, end: start + edges.at(-1), symbols: count, steps, levels, likeliest };
}

// What the picture of them shows, in words.
export function describe(alignments) {
  const [first] = alignments;
  if (!first) return "Alignment";
  const total = (name) => alignments.reduce((sum, one) => sum + one[name], 0);
  const symbols = `${total("symbols")} symbols, bottom to top`;
  if (first.likeliest === null) return `Durations: ${symbols}`;
  const share = Math.round((100 * total("likeliest")) / total("steps"));
  return `Attention: ${symbols}, ${share}\u00a0% on one at a time`;
}

function attended({ steps, weights }) {
  return { steps, levels: Uint8Array.from(atob(weights), (character) => character.charCodeAt(0)) };
}

// All of each frame on the symbol whose time it is.
function stairs(edges, count, frameSeconds) {
  const frames = edges.map((edge) => Math.round(edge / frameSeconds));
  const steps = frames.at(-1);
  const levels = new Uint8Array(steps * count);
  for (let symbol = 0; symbol < count; symbol++) {
    for (let step = frames[symbol]; step < frames[symbol + 1]; step++) levels[step * count + symbol] = WHOLE;
  }
  return { steps, levels };
}

function sumOfLargest(levels, count) {
  let sum = 0;
  for (let place = 0; place < levels.length; place += count) {
    sum += Math.max(...levels.subarray(place, place + count));
  }
  return sum;
}
