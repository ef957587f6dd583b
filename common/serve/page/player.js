// Samples that are played as they come, without a gap, from any position.

const LEAD = 0.05; // seconds until the first sample is heard, which a late one needs too
const contexts = new Map(); // by rate: at the samples' own one, chunks join without resampling each

function contextOf(rate) {
  if (!contexts.has(rate)) contexts.set(rate, new AudioContext({ sampleRate: rate }));
  return contexts.get(rate);
}

export class Player {
  // `onEnd` is called when all was played.
  constructor(rate, onEnd) {
    this.rate = rate;
    this.onEnd = onEnd;
    this.context = contextOf(rate);
    this.chunks = [];
    this.length = 0; // samples
    this.closed = false; // no more will come
    this.playing = false;
    this.held = 0; // seconds, where it was paused
    this.sources = new Set();
    this.plan = []; // what was scheduled: frame of the context, and the sample that is heard then
    this.nextFrame = 0;
  }

  get duration() {
    return this.length / this.rate;
  }

  // Seconds; of what is heard now, not of what has come.
  get position() {
    if (!this.playing) return this.held;
    const now = (this.context.currentTime - (this.context.outputLatency || 0)) * this.rate;
    const part = this.plan.findLast(({ frame }) => frame <= now);
    if (!part) return this.held;
    return Math.min(part.sample + now - part.frame, part.sample + part.length) / this.rate;
  }

  append(samples) {
    const sample = this.length;
    this.chunks.push(samples);
    this.length += samples.length;
    if (this.playing) this.#schedule(samples, sample);
  }

  close() {
    this.closed = true;
    if (this.playing && !this.sources.size) this.#end();
  }

  // From the beginning, if it is at the end.
  play(seconds = this.#ends(this.held) ? 0 : this.held) {
    this.#silence();
    this.held = seconds;
    this.playing = true;
    this.context.resume();
    const first = Math.round(this.held * this.rate);
    if (first < this.length) this.#schedule(this.#from(first), first);
  }

  pause() {
    this.held = this.position;
    this.playing = false;
    this.#silence();
  }

  seek(seconds) {
    if (this.playing && !this.#ends(seconds)) return this.play(seconds);
    if (this.playing) this.pause();
    this.held = Math.min(seconds, this.duration);
  }

  #ends(seconds) {
    return this.closed && seconds >= this.duration;
  }

  #from(first) {
    const rest = new Float32Array(this.length - first);
    let place = -first;
    for (const chunk of this.chunks) {
      if (place + chunk.length > 0) rest.set(chunk.subarray(Math.max(0, -place)), Math.max(0, place));
      place += chunk.length;
    }
    return rest;
  }

  #schedule(samples, sample) {
    const { context, rate } = this;
    const ready = Math.ceil((context.currentTime + LEAD) * rate);
    const late = this.nextFrame <= context.currentTime * rate;
    const frame = late ? ready : this.nextFrame;
    const buffer = context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    source.onended = () => {
      this.sources.delete(source);
      if (this.closed && !this.sources.size) this.#end();
    };
    source.start(frame / rate);
    this.sources.add(source);
    this.plan.push({ frame, sample, length: samples.length });
    this.nextFrame = frame + samples.length;
  }

  #end() {
    this.playing = false;
    this.held = this.duration;
    this.#silence();
    this.onEnd();
  }

  #silence() {
    for (const source of this.sources) {
      source.onended = null;
      source.stop();
    }
    this.sources.clear();
    this.plan = [];
    this.nextFrame = 0;
  }
}
