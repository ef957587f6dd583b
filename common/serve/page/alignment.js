// Which symbol each moment of an utterance belongs to: by Tacotron 2's attention, else by the durations.

const WHOLE = 255; // all of the attention

// The server's alignment -> {start, end, symbols, steps, levels: Uint8Array [steps, symbols], likeliest}, the
// last being the attention on the likeliest symbol, summed over the steps; null where there is no attention.
export function alignmentOf({ start, symbols, seconds, attention }, frameSeconds) {
  const count = symbols.length;
  const frames = seconds.map((one) => Math.round(one / frameSeconds));
  const end = start + frames.reduce((sum, one) => sum + one, 0) * frameSeconds;
  const { steps, levels } = attention ? attended(attention) : stairs(frames);
  const likeliest = attention ? sumOfLargest(levels, count) / WHOLE : null;
  return { start, end, symbols: count, steps, levels, likeliest };
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
function stairs(frames) {
  const steps = frames.reduce((sum, one) => sum + one, 0);
  const levels = new Uint8Array(steps * frames.length);
  let step = 0;
  frames.forEach((count, symbol) => {
    for (const end = step + count; step < end; step++) levels[step * frames.length + symbol] = WHOLE;
  });
  return { steps, levels };
}

function sumOfLargest(levels, count) {
  let sum = 0;
  for (let place = 0; place < levels.length; place += count) {
    sum += Math.max(...levels.subarray(place, place + count));
  }
  return sum;
}
