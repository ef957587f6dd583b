// One pair with its controls, and what it speaks: played, drawn, and read along.

import { download, speech } from "./api.js";
import { ControlFields } from "./controls.js";
import { Picture } from "./picture.js";
import { Player } from "./player.js";

export class Column {
  // `notify` is what the page does for a column: it shows a status or an error, draws what has changed,
  // pauses the others before one plays, and knows the text and the API key.
  constructor(letter, options, notify) {
    this.letter = letter;
    this.options = options;
    this.notify = notify;
    this.root = document.getElementById("column").content.cloneNode(true).firstElementChild;
    this.parts = Object.fromEntries(
      [...this.root.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]),
    );
    this.#name();
    const { parts } = this;
    this.controls = new ControlFields(parts.controls, options.controls, letter, () => this.#countChanged());
    this.picture = new Picture(parts.wave, parts.mel, parts.alignment, parts.caption);
    fill(parts.model, options.pairs.map(({ name }) => name));
    fill(parts.format, options.formats);
    parts.model.addEventListener("change", () => this.#offer());
    parts.voice.addEventListener("change", () => this.#offerControls());
    parts.reset.addEventListener("click", () => (this.controls.values = {}));
    parts.play.addEventListener("click", () => this.#toggle());
    parts.position.addEventListener("input", () => this.#seek(Number(parts.position.value)));
    parts.wave.addEventListener("click", (event) => {
      if (this.player) this.#seek((event.offsetX / parts.wave.clientWidth) * this.player.duration);
    });
    parts.download.addEventListener("click", () => this.#download());
    this.#offer();
    this.#clear();
  }

  get state() {
    const { model, voice } = this.parts;
    return { model: model.value, voice: voice.value, controls: this.controls.values };
  }

  set state({ model, voice, controls }) {
    this.parts.model.value = model;
    if (!this.parts.model.value) this.parts.model.selectedIndex = 0;
    this.#offer();
    if (this.#pair.voices[voice]) this.parts.voice.value = voice;
    this.#offerControls();
    this.controls.values = controls;
  }

  get busy() {
    return this.receiving || Boolean(this.player?.playing);
  }

  get receiving() {
    return ["asking", "receiving"].includes(this.root.dataset.state);
  }

  // Asks for the text and plays it when it is its turn, `heard` being a promise of that.
  // Resolves when all of it is there; then `this.ended` is a promise of its last sound.
  async speak(text, key, heard) {
    this.stop();
    this.#clear();
    const { mel } = this.#pair.voices[this.parts.voice.value];
    const abort = (this.abort = new AbortController());
    let player;
    this.ended = new Promise((resolve) => {
      player = this.player = new Player(mel.sampling_rate, resolve);
    });
    player.context.resume(); // now, as long as the browser knows that somebody pressed a key
    this.picture.clear(mel);
    this.root.dataset.state = "asking";
    this.notify.status(`${this.#prefix}Asking …`);
    heard.then(() => abort.signal.aborted || this.#play());
    const begun = performance.now();
    try {
      await this.#receive(speech(this.#fields(text), mel.sampling_rate, key, abort.signal), player, begun);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.root.dataset.state = "failed";
      if (this.controls.mark(error.param)) this.root.querySelector("details").open = true;
      throw error;
    } finally {
      if (this.player === player) {
        player.close();
        this.picture.finish();
        this.notify.changed();
      }
    }
  }

  stop() {
    this.abort?.abort();
    if (this.receiving) this.root.dataset.state = "stopped";
    this.pause();
  }

  pause() {
    if (this.player?.playing) this.player.pause();
    this.notify.changed();
  }

  // Shows where it is now.
  tick() {
    const { parts, player } = this;
    const [position, duration] = player ? [player.position, player.duration] : [0, 0];
    parts.play.disabled = parts.position.disabled = !duration;
    parts.play.textContent = player?.playing ? "Pause" : "Play";
    parts.position.max = duration.toFixed(2);
    parts.position.value = position;
    parts.position.setAttribute("aria-valuetext", `${position.toFixed(1)} of ${duration.toFixed(1)} seconds`);
    parts.time.textContent = `${position.toFixed(1)} / ${duration.toFixed(1)} s`;
    this.picture.position = position;
    this.picture.draw();
    this.#markWord(position);
  }

  async #receive(answer, player, begun) {
    const { parts } = this;
    let first = 0;
    for await (const { samples, words, alignment } of answer) {
      if (words) this.#addWords(words);
      if (alignment) this.picture.align(alignment);
      if (!samples) continue;
      player.append(samples);
      this.picture.add(samples);
      parts.audio.textContent = `${player.duration.toFixed(2)} s`;
      if (!first) {
        first = performance.now() - begun;
        parts.first.textContent = `${Math.round(first)} ms`;
        this.root.dataset.state = "receiving";
        this.notify.status(`${this.#prefix}Speaking. The first audio came after ${Math.round(first)} ms.`);
      }
      this.notify.changed();
    }
    const [total, seconds] = [(performance.now() - begun) / 1000, player.duration];
    parts.total.textContent = `${total.toFixed(2)} s`;
    parts.rtf.textContent = (seconds / total).toFixed(1);
    this.root.dataset.state = "whole";
    this.notify.status(`${this.#prefix}${seconds.toFixed(1)} s of audio, made in ${total.toFixed(2)} s.`);
  }

  async #download() {
    const { parts } = this;
    const format = parts.format.value;
    parts.download.disabled = true;
    try {
      const file = await download(this.#fields(this.notify.text()), format, this.notify.key());
      const link = document.createElement("a");
      link.href = URL.createObjectURL(file);
      link.download = `${parts.model.value}.${format}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser is still reading it
      this.notify.status(`${link.download} is saved.`);
    } catch (error) {
      this.notify.failed(error);
    } finally {
      parts.download.disabled = false;
    }
  }

  #fields(text) {
    const { model, voice, controls } = this.state;
    return { model, voice, input: text, ...controls };
  }

  get #pair() {
    return this.options.pairs.find(({ name }) => name === this.parts.model.value);
  }

  get #prefix() {
    return this.root.parentElement?.classList.contains("compare") ? `${this.letter.toUpperCase()}: ` : "";
  }

  // The voices and controls of the chosen pair.
  #offer() {
    const { voice } = this.parts;
    const before = voice.value;
    const about = Object.fromEntries(this.options.voices.map(({ id, description }) => [id, description]));
    fill(voice, Object.keys(this.#pair.voices), about);
    if (this.#pair.voices[before]) voice.value = before;
    this.#offerControls();
  }

  // A speaker is for a voice that has several.
  #offerControls() {
    const { speakers } = this.#pair.voices[this.parts.voice.value];
    this.controls.suggest("speaker", speakers);
    this.controls.offer(this.#pair.controls.filter((name) => name !== "speaker" || speakers.length));
  }

  #play(seconds) {
    this.notify.playing(this);
    this.player.play(seconds);
    this.notify.changed();
  }

  #toggle() {
    if (this.player.playing) this.pause();
    else this.#play();
  }

  #seek(seconds) {
    this.player?.seek(seconds);
    this.notify.changed();
  }

  #clear() {
    const { parts } = this;
    this.player = null;
    this.words = [];
    this.current = null;
    this.picture.clear(null);
    parts.words.replaceChildren();
    for (const part of [parts.first, parts.total, parts.audio, parts.rtf]) part.textContent = "–";
    this.root.dataset.state = "idle";
    this.tick();
  }

  #addWords(words) {
    for (const word of words) {
      const span = document.createElement("span");
      span.textContent = word.text;
      span.addEventListener("click", () => this.#seek(word.start));
      this.parts.words.append(span, " ");
      this.words.push({ ...word, span });
    }
    this.picture.words = this.words;
  }

  #markWord(position) {
    const found = this.words.find(({ start, end }) => start <= position && position < end) ?? null;
    if (found === this.current || (!found && this.player?.playing)) return; // in a pause the last one stays
    this.current?.span.removeAttribute("aria-current");
    this.current = found;
    if (!found) return;
    found.span.setAttribute("aria-current", "true");
    const { words } = this.parts;
    const { offsetTop: top, offsetHeight: height } = found.span;
    const seen = top >= words.scrollTop && top + height <= words.scrollTop + words.clientHeight;
    if (!seen) words.scrollTop = top - words.clientHeight / 3;
  }

  #countChanged() {
    const count = Object.keys(this.controls?.values ?? {}).length;
    this.parts.changed.textContent = count ? `${count} changed` : "";
  }

  #name() {
    const letter = this.letter.toUpperCase();
    this.root.setAttribute("aria-label", `Speech ${letter}`);
    this.root.querySelector("h2").textContent = letter;
    this.parts.words.setAttribute("aria-label", "The words as they are spoken");
    this.parts.position.setAttribute("aria-label", "Position");
    this.parts.format.setAttribute("aria-label", "Format");
    this.parts.caption.id = `${this.letter}-caption`;
    this.parts.alignment.setAttribute("aria-labelledby", this.parts.caption.id);
    for (const part of ["model", "voice"]) {
      this.parts[part].id = `${this.letter}-${part}`;
      this.parts[part].previousElementSibling.htmlFor = `${this.letter}-${part}`;
    }
  }
}

function fill(select, names, titles = {}) {
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  select.title = titles[select.value] ?? "";
}
