// One pair with its controls, and what it speaks: played, drawn, and read along.

import { download, speech } from "./api.js";
import { ControlFields } from "./controls.js";
import { Picture } from "./picture.js";
import { Player } from "./player.js";
import { Speakers } from "./speakers.js";

const EMPTY = "Press Speak to hear the text, and to see its waveform, mel spectrogram and alignment.";

export class Column {
  // `page` is what it does for a column: shows an error or a status, draws what has changed, pauses the
  // others before one plays, lets its greeting be heard, and knows the text.
  constructor(letter, options, page) {
    this.options = options;
    this.page = page;
    this.root = document.getElementById("column").content.cloneNode(true).firstElementChild;
    this.parts = Object.fromEntries(
      [...this.root.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]),
    );
    const { parts } = this;
    this.root.setAttribute("aria-label", `Speech ${letter.toUpperCase()}`);
    this.root.querySelector("h2").textContent = letter.toUpperCase();
    parts.caption.id = `${letter}-caption`;
    parts.picture.setAttribute("aria-labelledby", parts.caption.id);
    const controls = options.controls.filter(({ name }) => name !== "speaker");
    this.controls = new ControlFields(parts.controls, controls, letter, () => this.#countChanged());
    this.speakers = new Speakers(parts);
    this.picture = new Picture(parts.picture, parts.caption);
    fill(parts.model, options.pairs.map(({ name }) => name));
    fill(parts.format, options.formats);
    parts.model.addEventListener("change", () => this.#offer());
    parts.voice.addEventListener("change", () => this.#offerControls());
    parts.hear.addEventListener("click", () => page.hear(this));
    parts.reset.addEventListener("click", () => (this.controls.values = {}));
    parts.play.addEventListener("click", () => (this.player.playing ? this.pause() : this.#play()));
    parts.stop.addEventListener("click", () => this.stop());
    parts.position.addEventListener("input", () => this.#seek(Number(parts.position.value)));
    parts.picture.addEventListener("click", ({ offsetX }) => this.#seek(this.picture.secondsAt(offsetX)));
    parts.download.addEventListener("click", () => this.#download());
    this.#offer();
    this.#clear("");
    this.#say(EMPTY);
  }

  get state() {
    const { model, voice } = this.parts;
    const speaker = this.speakers.value;
    const controls = { ...this.controls.values, ...(speaker && { speaker }) };
    return { model: model.value, voice: voice.value, controls };
  }

  set state({ model, voice, controls }) {
    this.parts.model.value = model;
    if (!this.parts.model.value) this.parts.model.selectedIndex = 0;
    this.#offer();
    if (this.#pair.voices[voice]) this.parts.voice.value = voice;
    this.#offerControls();
    this.controls.values = controls;
    this.speakers.value = controls.speaker;
  }

  // What its voice says of itself.
  get greeting() {
    const name = this.speakers.value?.split(":")[0] ?? (this.speakers.names[0] || this.parts.voice.value);
    return `Hello, this is ${name}. How do I sound to you?`;
  }

  get busy() {
    return this.receiving || Boolean(this.player?.playing);
  }

  get receiving() {
    return ["asking", "receiving"].includes(this.root.dataset.state);
  }

  // Asks for the text and plays it when it is its turn, `heard` being a promise of that.
  // Resolves when all of it is there; then `this.ended` is a promise of its last sound.
  async speak(text, heard) {
    this.stop();
    this.#clear(text);
    const { mel } = this.#pair.voices[this.parts.voice.value];
    const abort = (this.abort = new AbortController());
    let player;
    this.ended = new Promise((resolve) => {
      player = this.player = new Player(mel.sampling_rate, resolve);
    });
    player.context.resume(); // now, as long as the browser knows that somebody pressed a key
    this.picture.clear(mel);
    this.#say("Asking …", "asking");
    heard.then(() => abort.signal.aborted || this.#play());
    try {
      await this.#receive(speech(this.#fields(text), mel.sampling_rate, abort.signal), player);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#say("", "failed");
      if (this.controls.mark(error.param)) this.root.querySelector("details").open = true;
      throw error;
    } finally {
      player.close();
      this.page.changed();
    }
  }

  stop() {
    this.abort?.abort();
    if (this.receiving) this.#say("Stopped.", "stopped");
    this.pause();
    this.player?.onEnd();
  }

  pause() {
    if (this.player?.playing) this.player.pause();
    this.page.changed();
  }

  // Shows where it is now.
  tick() {
    const { parts, player } = this;
    const [position, duration] = player ? [player.position, player.duration] : [0, 0];
    parts.result.hidden = !duration;
    parts.stop.disabled = !this.busy;
    parts.play.textContent = player?.playing ? "Pause" : "Play";
    parts.position.max = duration.toFixed(2);
    parts.position.value = position;
    parts.position.setAttribute("aria-valuetext", `${position.toFixed(1)} of ${duration.toFixed(1)} seconds`);
    parts.time.textContent = `${position.toFixed(1)} / ${duration.toFixed(1)} s`;
    this.picture.position = position;
    this.picture.draw();
    this.#markWord(position);
  }

  async #receive(events, player) {
    const { parts } = this;
    const begun = performance.now();
    for await (const event of events) {
      if (event.words) this.#addWords(event);
      if (event.symbols) this.picture.align(event);
      if (!event.samples) continue;
      if (!player.duration) {
        parts.first.textContent = `${Math.round(performance.now() - begun)} ms`;
        this.#say(`Speaking. The first audio came after ${parts.first.textContent}.`, "receiving");
      }
      player.append(event.samples);
      this.picture.add(event.samples);
      this.page.changed();
    }
    const total = (performance.now() - begun) / 1000;
    parts.audio.textContent = `${player.duration.toFixed(2)} s`;
    parts.total.textContent = `${total.toFixed(2)} s`;
    parts.rtf.textContent = (player.duration / total).toFixed(1);
    this.#say("", "whole");
  }

  async #download() {
    const { model, format, rate, download: button } = this.parts;
    const how = { response_format: format.value, sample_rate: Number(rate.value) };
    button.disabled = true;
    try {
      const file = await download({ ...this.#fields(this.page.text()), ...how });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(file);
      link.download = `${model.value}.${format.value}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser is still reading it
      this.page.status(`${link.download} is saved.`);
    } catch (error) {
      this.page.failed(error);
    } finally {
      button.disabled = false;
    }
  }

  #fields(text) {
    const { model, voice, controls } = this.state;
    return { model, voice, input: text, ...controls };
  }

  get #pair() {
    return this.options.pairs.find(({ name }) => name === this.parts.model.value);
  }

  // The voices and controls of the chosen pair.
  #offer() {
    const { voice } = this.parts;
    const before = voice.value;
    fill(voice, Object.keys(this.#pair.voices));
    if (this.#pair.voices[before]) voice.value = before;
    this.#offerControls();
  }

  #offerControls() {
    const { voice, about } = this.parts;
    const { speakers } = this.#pair.voices[voice.value];
    about.textContent = this.options.voices.find(({ id }) => id === voice.value).description;
    this.speakers.offer(speakers);
    this.controls.offer(this.#pair.controls);
  }

  #play() {
    this.page.playing(this);
    this.player.play();
    this.page.changed();
  }

  #seek(seconds) {
    this.player.seek(seconds);
    this.page.changed();
  }

  #clear(text) {
    Object.assign(this, { player: null, text, read: 0, spans: [], current: null });
    this.rest = document.createTextNode(text);
    this.parts.words.replaceChildren(this.rest);
    this.picture.clear(null);
    this.tick();
  }

  // Where it is, in words; the figures take their place when all of it is there.
  #say(words, state = "idle") {
    this.root.dataset.state = state;
    this.parts.said.textContent = words;
    this.parts.figures.hidden = state !== "whole";
  }

  // Marks the pieces of the text that an utterance's words speak.
  #addWords({ words, written }) {
    this.picture.words.push(...words);
    let place = 0;
    for (const { text, words: count } of written.filter((piece) => piece.words)) {
      const spoken = words.slice(place, (place += count));
      const [start, end] = [spoken[0].start, spoken.at(-1).end];
      const at = this.text.indexOf(text, this.read);
      const span = document.createElement("span");
      span.textContent = text;
      span.addEventListener("click", () => this.#seek(start));
      this.rest.before(this.text.slice(this.read, at), span);
      this.read = at + text.length;
      this.rest.data = this.text.slice(this.read);
      this.spans.push({ start, end, span });
    }
  }

  #markWord(position) {
    const found = this.spans.find(({ start, end }) => start <= position && position < end) ?? null;
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
}

function fill(select, names) {
  select.replaceChildren(...names.map((name) => new Option(name, name)));
}
