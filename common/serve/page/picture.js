// The waveform of all that was made, and a page of the mel with its words and phonemes.

import { MelSpectrogram } from "./mel.js";

const PIXELS_PER_SECOND = 180; // of the mel
const TILE = 512; // frames in one stored image
const PEAK = 64; // samples
const FULL_HEIGHT = 0.5; // the amplitude that fills the waveform, unless there is a larger one
const ROWS = 36; // pixels under the mel: phonemes, then words
const [QUIET, LOUD] = [-10, 1]; // natural logarithms of the ends of the colours
const STOPS = [
  [10, 12, 34], [44, 30, 92], [112, 42, 122], [186, 62, 96], [236, 116, 70], [252, 196, 110], [254, 248, 214],
];
const COLOURS = Array.from({ length: 256 }, (_, level) => {
  const place = (level / 255) * (STOPS.length - 1);
  const below = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[below].map((value, i) => value + (STOPS[below + 1][i] - value) * (place - below));
});

export class Picture {
  constructor(wave, mel) {
    this.wave = wave;
    this.mel = mel;
    this.position = 0;
    this.clear(null);
    const watcher = new ResizeObserver(() => this.draw());
    watcher.observe(wave);
    watcher.observe(mel);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  clear(contract) {
    this.contract = contract;
    this.spectrogram = contract && new MelSpectrogram(contract);
    this.tiles = [];
    this.frames = 0;
    this.peaks = []; // the largest amplitude of each PEAK samples
    this.loudest = FULL_HEIGHT;
    this.samples = 0;
    this.words = [];
    this.position = 0;
    this.draw();
  }

  get seconds() {
    return this.contract ? this.samples / this.contract.sampling_rate : 0;
  }

  add(samples) {
    for (let i = 0; i < samples.length; i++) {
      const place = Math.floor((this.samples + i) / PEAK);
      const amplitude = Math.abs(samples[i]);
      this.peaks[place] = Math.max(this.peaks[place] ?? 0, amplitude);
      this.loudest = Math.max(this.loudest, amplitude);
    }
    this.samples += samples.length;
    this.#store(this.spectrogram.push(samples));
  }

  finish() {
    this.#store(this.spectrogram.finish());
    const long = `${this.seconds.toFixed(1)} seconds`;
    this.wave.setAttribute("aria-label", `Waveform, ${long}`);
    this.mel.setAttribute("aria-label", `Mel spectrogram with words and phonemes, ${long}`);
    this.draw();
  }

  draw() {
    if (!this.wave.clientWidth) return;
    const style = getComputedStyle(this.wave);
    const colour = (name) => style.getPropertyValue(name).trim();
    const colours = {
      wave: colour("--wave"), head: colour("--head"), faint: colour("--line"), text: colour("--text"),
      soft: colour("--soft"), shade: colour("--shade"),
    };
    this.#drawWave(colours);
    this.#drawMel(colours);
  }

  // Seconds at the left edge of the mel, and how many it shows.
  get page() {
    const span = this.mel.clientWidth / PIXELS_PER_SECOND;
    const last = Math.max(0, this.seconds - 1e-3);
    return { start: Math.floor(Math.min(this.position, last) / span) * span, span };
  }

  #store(frames) {
    for (const frame of frames) {
      const place = this.frames % TILE;
      if (!place) {
        const tile = document.createElement("canvas");
        [tile.width, tile.height] = [TILE, frame.length];
        this.tiles.push(tile);
      }
      const column = new ImageData(1, frame.length);
      frame.forEach((value, band) => {
        const level = Math.round((255 * (value - QUIET)) / (LOUD - QUIET));
        const colour = COLOURS[Math.min(255, Math.max(0, level))];
        column.data.set([...colour, 255], 4 * (frame.length - 1 - band));
      });
      this.tiles.at(-1).getContext("2d").putImageData(column, place, 0);
      this.frames += 1;
    }
  }

  #drawWave(colours) {
    const { context, width, height } = prepared(this.wave);
    const { seconds, peaks } = this;
    if (!seconds) return;
    const { start, span } = this.page;
    if (seconds > span) {
      context.fillStyle = colours.shade;
      context.fillRect((start / seconds) * width, 0, (span / seconds) * width, height);
    }
    context.fillStyle = colours.wave;
    for (let x = 0; x < width; x++) {
      const first = Math.floor((x / width) * peaks.length);
      const end = Math.max(first + 1, Math.floor(((x + 1) / width) * peaks.length));
      let peak = 0;
      for (let i = first; i < end; i++) peak = Math.max(peak, peaks[i] ?? 0);
      const half = Math.max(0.5, ((peak / this.loudest) * height) / 2);
      context.fillRect(x, height / 2 - half, 1, 2 * half);
    }
    context.fillStyle = colours.head;
    context.fillRect((this.position / seconds) * width - 1, 0, 2, height);
  }

  #drawMel(colours) {
    const { context, width, height } = prepared(this.mel);
    if (!this.contract) return;
    const { start, span } = this.page;
    const across = (seconds) => (seconds - start) * PIXELS_PER_SECOND;
    const bottom = height - ROWS;
    const frame = this.contract.hop_length / this.contract.sampling_rate;
    this.tiles.forEach((tile, i) => {
      const frames = Math.min(TILE, this.frames - i * TILE);
      const [left, right] = [across(i * TILE * frame), across((i * TILE + frames) * frame)];
      if (right > 0 && left < width) {
        context.drawImage(tile, 0, 0, frames, tile.height, left, 0, right - left, bottom);
      }
    });
    const inPage = ({ start: from, end }) => end > start && from < start + span;
    const made = (one) => inPage(one) && one.start < this.seconds;
    for (const word of this.words.filter(made)) {
      const now = word.start <= this.position && this.position < word.end;
      context.fillStyle = colours.shade;
      if (now) context.fillRect(across(word.start), bottom, across(word.end) - across(word.start), ROWS);
      for (const phoneme of word.phonemes.filter(made)) {
        context.fillStyle = colours.faint;
        context.fillRect(across(phoneme.start), bottom, 1, ROWS / 2);
        label(context, phoneme.text, across(phoneme.start), across(phoneme.end), bottom + 9, 9, colours.soft);
      }
      context.fillStyle = colours.soft;
      context.fillRect(across(word.start), bottom, 1, ROWS);
      context.fillRect(across(word.end), bottom, 1, ROWS);
      label(context, word.text, across(word.start), across(word.end), bottom + 27, 12, colours.text);
    }
    context.fillStyle = colours.head;
    context.fillRect(across(this.position) - 1, 0, 2, height);
  }
}

// The canvas at the screen's own resolution, empty, with CSS pixels as its unit.
function prepared(canvas) {
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
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
