// The waveform of all that was made, and a page of the mel with its words and phonemes and of the alignment.

import { alignmentOf, describe } from "./alignment.js";
import { MelSpectrogram } from "./mel.js";

const PIXELS_PER_SECOND = 180; // of mel and alignment
const TILE = 512; // frames in one stored image
const PEAK = 64; // samples
const FULL_HEIGHT = 0.5; // the amplitude that fills the waveform, unless there is a larger one
const ROWS = 36; // pixels under the mel: phonemes, then words
const [QUIET, LOUD] = [-10, 1]; // natural logarithms of the ends of the colours
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
  // Three canvases, and the words that say what the last one shows.
  constructor(wave, mel, alignment, caption) {
    Object.assign(this, { wave, mel, alignment, caption });
    this.position = 0;
    this.clear(null);
    const watcher = new ResizeObserver(() => this.draw());
    for (const canvas of [wave, mel, alignment]) watcher.observe(canvas);
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
    this.alignments = [];
    this.caption.textContent = describe([]);
    this.position = 0;
    this.draw();
  }

  get seconds() {
    return this.contract ? this.samples / this.contract.sampling_rate : 0;
  }

  add(samples) {
    for (const sample of samples) {
      if (this.samples % PEAK === 0) this.peaks.push(0);
      this.samples += 1;
      const amplitude = Math.abs(sample);
      if (amplitude > this.peaks[this.peaks.length - 1]) this.peaks[this.peaks.length - 1] = amplitude;
      if (amplitude > this.loudest) this.loudest = amplitude;
    }
    this.#store(this.spectrogram.push(samples));
  }

  // An utterance's, before its samples.
  align(content) {
    const { hop_length: hop, sampling_rate: rate } = this.contract;
    const one = alignmentOf(content, hop / rate);
    if (!one.steps) return;
    const image = imageOf(one.steps, one.symbols, (step, symbol) => one.levels[step * one.symbols + symbol]);
    const tile = newTile(one.steps, one.symbols);
    tile.getContext("2d").putImageData(image, 0, 0);
    this.alignments.push({ ...one, tile });
    this.caption.textContent = describe(this.alignments);
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
    this.#drawAlignment(colours);
  }

  // Seconds at the left edge of mel and alignment, and how many it shows.
  get page() {
    const span = this.mel.clientWidth / PIXELS_PER_SECOND;
    const last = Math.max(0, this.seconds - 1e-3);
    return { start: Math.floor(Math.min(this.position, last) / span) * span, span };
  }

  #store(frames) {
    for (let first = 0; first < frames.length; ) {
      const place = this.frames % TILE;
      const count = Math.min(frames.length - first, TILE - place);
      const bands = frames[first].length;
      if (!place) this.tiles.push(newTile(TILE, bands));
      const from = first;
      const image = imageOf(count, bands, (x, band) => levelOf(frames[from + x][band]));
      this.tiles.at(-1).getContext("2d").putImageData(image, place, 0);
      this.frames += count;
      first += count;
    }
  }

  #drawWave(colours) {
    const { context, width, height } = prepared(this.wave);
    const { seconds } = this;
    if (!seconds) return;
    const { start, span } = this.page;
    if (seconds > span) {
      context.fillStyle = colours.shade;
      context.fillRect((start / seconds) * width, 0, (span / seconds) * width, height);
    }
    context.fillStyle = colours.wave;
    context.fill(this.#outline(width, height));
    context.fillStyle = colours.head;
    context.fillRect((this.position / seconds) * width - 1, 0, 2, height);
  }

  // The waveform's shape, made again when it has grown or its place has another size.
  #outline(width, height) {
    const made = `${width} ${height} ${this.samples}`;
    if (this.outline?.made === made) return this.outline.path;
    const { peaks } = this;
    const path = new Path2D();
    for (let x = 0; x < width; x++) {
      const first = Math.floor((x / width) * peaks.length);
      const end = Math.max(first + 1, Math.floor(((x + 1) / width) * peaks.length));
      let peak = 0;
      for (let i = first; i < end; i++) peak = Math.max(peak, peaks[i] ?? 0);
      const half = Math.max(0.5, ((peak / this.loudest) * height) / 2);
      path.rect(x, height / 2 - half, 1, 2 * half);
    }
    this.outline = { made, path };
    return path;
  }

  #drawMel(colours) {
    const { context, width, height } = prepared(this.mel);
    if (!this.seconds) return;
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

  // Each utterance's symbols from bottom to top, as far as it was made.
  #drawAlignment(colours) {
    const { context, width, height } = prepared(this.alignment);
    if (!this.seconds) return;
    const across = (seconds) => (seconds - this.page.start) * PIXELS_PER_SECOND;
    for (const { start, end, tile } of this.alignments) {
      const made = Math.min(end, this.seconds);
      const [left, right] = [across(start), across(made)];
      if (made <= start || right <= 0 || left >= width) continue;
      context.imageSmoothingEnabled = tile.height > height;
      const steps = (tile.width * (made - start)) / (end - start);
      context.drawImage(tile, 0, 0, steps, tile.height, left, 0, right - left, height);
    }
    context.fillStyle = colours.head;
    context.fillRect(across(this.position) - 1, 0, 2, height);
  }
}

function newTile(width, height) {
  const tile = document.createElement("canvas");
  [tile.width, tile.height] = [width, height];
  return tile;
}

// Of a band in a frame: the colour's number.
function levelOf(value) {
  return Math.min(255, Math.max(0, Math.round((255 * (value - QUIET)) / (LOUD - QUIET))));
}

// `levelAt(x, y)` is the number of a colour, y from the bottom.
function imageOf(width, height, levelAt) {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let x = 0; x < width; x++) {
    for (let y = 0; y < height; y++) pixels[(height - 1 - y) * width + x] = COLOURS[levelAt(x, y)];
  }
  return image;
}

// The canvas at the screen's own resolution, empty, with CSS pixels as its unit.
function prepared(canvas) {
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
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
