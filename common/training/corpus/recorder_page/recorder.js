// Shows sentences, records them and sends them to the server, which says how they are.

const at = (id) => document.getElementById(id);
const [sentence, count, level, status] = ["sentence", "count", "level", "status"].map(at);
const [record, play, back, next] = ["record", "play", "back", "next"].map(at);
const SOUND = { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1 };
const FALL = 0.9; // of the shown level, a block

let rows = [];
let place = 0;
let context = null; // that of the microphone, from the first recording on
let tape = null; // the blocks of the recording under way
let shown = 0;

function tell(words, failed) {
  status.textContent = words;
  status.classList.toggle("error", Boolean(failed));
}

function show(number) {
  place = Math.max(0, Math.min(rows.length - 1, number));
  const done = rows.filter((row) => row.recorded).length;
  sentence.textContent = rows[place].text;
  count.textContent = `Sentence ${place + 1} of ${rows.length}, ${done} recorded`;
  play.disabled = !rows[place].recorded;
  tell(rows[place].recorded ? "Recorded. Record replaces it." : "");
}

async function openMicrophone() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: SOUND });
  const opened = new AudioContext();
  await opened.audioWorklet.addModule("/page/tape.js");
  const node = new AudioWorkletNode(opened, "tape", { numberOfOutputs: 0 });
  node.port.onmessage = ({ data }) => {
    const peak = data.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
    shown = Math.max(peak, shown * FALL);
    level.value = Math.max(-60, 20 * Math.log10(shown + 1e-6));
    if (tape) tape.push(data);
  };
  opened.createMediaStreamSource(stream).connect(node);
  context = opened;
}

// A wav file of 16 bits.
function wav(blocks, rate) {
  const samples = blocks.reduce((sum, block) => sum + block.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * samples));
  const word = (offset, text) => [...text].forEach((c, i) => view.setUint8(offset + i, c.charCodeAt(0)));
  const numbers = [[16, 16, 4], [20, 1, 2], [22, 1, 2], [24, rate, 4], [28, 2 * rate, 4], [32, 2, 2], [34, 16, 2]];
  for (const [offset, text] of [[0, "RIFF"], [8, "WAVE"], [12, "fmt "], [36, "data"]]) word(offset, text);
  for (const [offset, value, bytes] of [...numbers, [4, 36 + 2 * samples, 4], [40, 2 * samples, 4]]) {
    if (bytes === 4) view.setUint32(offset, value, true);
    else view.setUint16(offset, value, true);
  }
  let offset = 44;
  for (const block of blocks) {
    for (const sample of block) {
      view.setInt16(offset, Math.round(Math.max(-1, Math.min(1, sample)) * 32767), true);
      offset += 2;
    }
  }
  return view.buffer;
}

async function keep(blocks) {
  const row = rows[place];
  tell("Saving …");
  const body = wav(blocks, context.sampleRate);
  const answer = await fetch(`/recordings/${row.name}`, {
    method: "PUT", headers: { "Content-Type": "audio/wav" }, body,
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error.message);
  row.recorded ||= found.kept;
  show(rows.indexOf(row));
  const about = `${found.seconds.toFixed(1)} s of speech at ${found.level.toFixed(0)} dB, noise at ${found.noise.toFixed(0)} dB. `;
  const again = found.kept ? " Record it again?" : "";
  if (found.advice.length) tell(`${about}${found.advice.join("; ")}.${again}`, true);
  else tell(`${about}Good: go on with Next.`);
}

async function press() {
  record.disabled = true;
  try {
    if (tape) {
      const blocks = tape;
      tape = null;
      record.textContent = "Record";
      await keep(blocks);
    } else {
      if (!context) await openMicrophone();
      await context.resume();
      tape = [];
      record.textContent = "Stop";
      tell("Recording …");
    }
  } catch (error) {
    tape = null;
    record.textContent = "Record";
    tell(error.name === "NotAllowedError" ? "The browser may not use the microphone: allow it for this page." : error.message, true);
  }
  record.disabled = false;
}

async function hear() {
  const own = new AudioContext();
  const answer = await fetch(`/recordings/${rows[place].name}`);
  const source = own.createBufferSource();
  source.buffer = await own.decodeAudioData(await answer.arrayBuffer());
  source.connect(own.destination);
  source.onended = () => own.close();
  source.start();
}

function move(step) {
  if (!tape) show(place + step);
}

record.addEventListener("click", press);
play.addEventListener("click", hear);
back.addEventListener("click", () => move(-1));
next.addEventListener("click", () => move(1));
document.addEventListener("keydown", (event) => {
  const keys = { ArrowLeft: () => move(-1), ArrowRight: () => move(1), " ": () => !record.disabled && press() };
  if (!keys[event.key] || event.repeat) return;
  event.preventDefault();
  keys[event.key]();
});

rows = await (await fetch("/sentences")).json();
show(Math.max(0, rows.findIndex((row) => !row.recorded)));
