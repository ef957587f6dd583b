// What is spoken over one axis of time: the waveform, the mel with phonemes and words under it, and which
// symbol each moment belongs to, by Tacotron 2's attention or by the durations.

import { bytesOf } from "./api.js";

const LEAST = 100; // pixels of a second where the whole is shown
const READABLE = 180; // where it is longer than that, and shown page by page
const PEAK = 64; // samples
const FULL_HEIGHT = 0.5; // the amplitude that fills the waveform, unless there is a larger one
const [WAVE, MEL, WORDS, ALIGNMENT] = [[0, 56], [64, 140], [204, 36], [248, 112]]; // top and height, pixels
const WHOLE = 255; // all of the attention
const STOPS = [
  [10, 12, 34], [44, 30, 92], [112, 42, 122], [186, 62, 96], [236, 116, 70], [252, 196, 110], [254, 248, 214],
];
const COLOURS = new Uint32Array(256); // pixels
for (let level = 0; level < 256; level++) {
  const place = (level / 255) * (STOPS.length - 1);
  const below = Math.min(Math.floor(place), STOPS.length - 2);
  const colour = STOPS[below].map((value, i) => value + (STOPS[below + 1][i] - value) * (place - below));
  new Uint8ClampedArray(COLOURS.buffer).set([...colour, 255], 4 * level);
}

export class Picture {
  // A canvas, and the words that say what it shows.
  constructor(canvas, caption) {
    Object.assign(this, { canvas, caption });
    this.clear(null);
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  clear(contract) {
    Object.assign(this, { contract, peaks: [], loudest: FULL_HEIGHT, samples: 0, position: 0 });
    Object.assign(this, { words: [], utterances: [] });
    this.caption.textContent = "";
    this.draw();
  }

  // Seconds that were made.
  get seconds() {
    return this.contract ? this.samples / this.contract.sampling_rate : 0;
  }

  add(samples) {
    for (const sample of samples) {
      if (this.samples % PEAK === 0) this.peaks.push(0);
      this.samples += 1;
      const amplitude = Math.abs(sample);
      if (amplitude > this.peaks.at(-1)) this.peaks[this.peaks.length - 1] = amplitude;
      if (amplitude > this.loudest) this.loudest = amplitude;
    }
  }

  // The mel and alignment of an utterance, before its samples.
  align({ start, symbols, seconds, attention, mel }) {
    if (!mel.frames) return;
    const frame = this.contract.hop_length / this.contract.sampling_rate;
    const frames = seconds.map((one) => Math.round(one / frame));
    const levels = attention ? bytesOf(attention.weights) : stairs(frames);
    this.utterances.push({
      start,
      end: start + mel.frames * frame,
      symbols: symbols.length,
      steps: levels.length / symbols.length,
      attended: attention && sumOfLargest(levels, symbols.length) / WHOLE,
      alignment: imageOf(levels, symbols.length),
      mel: imageOf(bytesOf(mel.levels), this.contract.n_mel_channels),
    });
    this.caption.textContent = describe(this.utterances);
  }

  // The seconds under a place of the canvas.
  secondsAt(x) {
    return this.#page.start + x / this.#page.scale;
  }

  // What is shown: the seconds at the left edge, and how many pixels one takes.
  get #page() {
    const width = this.canvas.clientWidth;
    const whole = Math.max(this.seconds, this.utterances.at(-1)?.end ?? 0);
    if (whole * LEAST <= width) return { start: 0, scale: width / whole };
    const span = width / READABLE;
    const turned = Math.floor(Math.min(this.position, whole) / span) * span;
    return { start: Math.min(turned, whole - span), scale: READABLE };
  }

  draw() {
    const { context, width, height } = prepared(this.canvas);
    if (!this.seconds) return;
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`);
    const { start, scale } = this.#page;
    const across = (seconds) => (seconds - start) * scale;
    const made = Math.min(width, across(this.seconds));
    const peaksPerSecond = this.contract.sampling_rate / PEAK;
    context.fillStyle = colour("wave");
    for (let x = 0; x < made; x++) {
      const [first, end] = [x, x + 1].map((edge) => Math.floor((start + edge / scale) * peaksPerSecond));
      const peak = Math.max(...this.peaks.slice(first, Math.max(first + 1, end)));
      const size = Math.max(1, (peak / this.loudest) * WAVE[1]);
      context.fillRect(x, WAVE[0] + (WAVE[1] - size) / 2, 1, size);
    }
    context.save();
    context.beginPath();
    context.rect(0, 0, made, height); // what was not made yet is not shown
    context.clip();
    context.fillStyle = `rgb(${STOPS[0]})`; // of pauses
    for (const [top, tall] of [MEL, ALIGNMENT]) context.fillRect(0, top, width, tall);
    for (const one of this.utterances) {
      const [left, right] = [across(one.start), across(one.end)];
      for (const [image, [top, tall]] of [[one.mel, MEL], [one.alignment, ALIGNMENT]]) {
        context.imageSmoothingEnabled = image === one.mel || image.height > tall;
        context.drawImage(image, left, top, right - left, tall);
      }
    }
    this.#drawWords(context, across, colour);
    context.restore();
    context.fillStyle = colour("head");
    context.fillRect(across(this.position) - 1, 0, 2, height);
  }

  #drawWords(context, across, colour) {
    const [top, tall] = WORDS;
    for (const word of this.words) {
      const [left, right] = [across(word.start), across(word.end)];
      if (right < 0 || left > this.canvas.clientWidth) continue;
      context.fillStyle = colour("shade");
      const now = word.start <= this.position && this.position < word.end;
      if (now) context.fillRect(left, top, right - left, tall);
      for (const { text, start, end } of word.phonemes) {
        context.fillStyle = colour("line");
        context.fillRect(across(start), top, 1, tall / 2);
        label(context, text, across(start), across(end), top + 9, 9, colour("soft"));
      }
      context.fillStyle = colour("soft");
      context.fillRect(left, top, 1, tall);
      context.fillRect(right, top, 1, tall);
      label(context, word.text, left, right, top + 27, 12, colour("text"));
    }
  }
}

// Of rows of levels, one a step: the first step at the left, its first level at the bottom.
function imageOf(levels, rows) {
  const steps = levels.length / rows;
  const image = new ImageData(steps, rows);
  const pixels = new Uint32Array(image.data.buffer);
  levels.forEach((level, i) => {
    pixels[(rows - 1 - (i % rows)) * steps + Math.floor(i / rows)] = COLOURS[level];
  });
  const canvas = new OffscreenCanvas(steps, rows);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// All of each frame on the symbol whose time it is.
function stairs(frames) {
  const count = frames.length;
  const rows = frames.flatMap((times, symbol) => Array.from({ length: times }, () => symbol));
  const levels = new Uint8Array(rows.length * count);
  rows.forEach((symbol, step) => (levels[step * count + symbol] = WHOLE));
  return levels;
}

function sumOfLargest(levels, count) {
  let sum = 0;
  for (let place = 0; place < levels.length; place += count) {
    sum += Math.max(...levels.subarray(place, place + count));
  }
  return sum;
}

function describe(utterances) {
  const total = (name) => utterances.reduce((sum, one) => sum + one[name], 0);
  const rows = `${total("symbols")} symbols from bottom to top`;
  if (utterances[0].attended === null) return `Waveform, mel spectrogram, and durations of ${rows}`;
  const share = Math.round((100 * total("attended")) / total("steps"));
  return `Waveform, mel spectrogram, and attention to ${rows}, ${share}\u00a0% on one at a time`;
}

// The canvas at the screen's own resolution, empty, with CSS pixels as its unit.
function prepared(canvas) {
  const scale = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across || canvas.height !== down) [canvas.width, canvas.height] = [across, down];
  const context = canvas.getContext("2d");
  context.reset();
  context.scale(scale, scale);
  return { context, width, height };
}

// A word in the middle of its time, if it fits there.
function label(context, text, left, right, middle, size, colour) {
  context.font = `${size}px system-ui, sans-serif`;
  if (context.measureText(text).width > right - left - 2) return;
  context.fillStyle = colour;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, (left + right) / 2, middle);
}
