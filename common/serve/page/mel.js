// Log mel spectrograms of samples as they come, by the voice's mel contract (natural logarithm).

const FLOOR = 1e-9; // is added to the power, as vocoders are trained

const SCALES = {
  htk: {
    mel: (hz) => 2595 * Math.log10(1 + hz / 700),
    hz: (mel) => 700 * (10 ** (mel / 2595) - 1),
  },
  slaney: {
    mel: (hz) => (hz < 1000 ? hz * 0.015 : 15 + (Math.log(hz / 1000) * 27) / Math.log(6.4)),
    hz: (mel) => (mel < 15 ? mel / 0.015 : 1000 * Math.exp(((mel - 15) * Math.log(6.4)) / 27)),
  },
};

export class MelSpectrogram {
  constructor(contract) {
    this.contract = contract;
    this.size = 2 ** Math.ceil(Math.log2(contract.filter_length));
    this.padding = (contract.filter_length - contract.hop_length) / 2;
    this.window = windowOf(contract);
    this.filters = filtersOf(contract, this.size);
    this.transform = new Transform(this.size);
    this.pending = new Float32Array(0);
    this.padded = false;
  }

  // The frames that are complete, each a Float32Array of n_mel_channels.
  push(samples) {
    this.pending = joined(this.pending, samples);
    if (!this.padded) {
      if (this.pending.length <= this.padding) return [];
      this.pending = joined(this.pending.slice(1, this.padding + 1).reverse(), this.pending);
      this.padded = true;
    }
    return this.#frames();
  }

  // The last frames, whose end is the reflected end of the samples.
  finish() {
    if (!this.padded) return [];
    const end = this.pending.length - 1;
    this.pending = joined(this.pending, this.pending.slice(end - this.padding, end).reverse());
    return this.#frames();
  }

  #frames() {
    const { filter_length: length, hop_length: hop } = this.contract;
    const frames = [];
    let start = 0;
    for (; start + length <= this.pending.length; start += hop) frames.push(this.#frame(start));
    this.pending = this.pending.slice(start);
    return frames;
  }

  #frame(start) {
    const { real, imaginary } = this.transform;
    real.fill(0);
    imaginary.fill(0);
    for (let i = 0; i < this.window.length; i++) real[i] = this.pending[start + i] * this.window[i];
    this.transform.run();
    const frame = new Float32Array(this.filters.length);
    for (let band = 0; band < frame.length; band++) {
      const { first, weights } = this.filters[band];
      let sum = 0;
      for (let i = 0; i < weights.length; i++) {
        const x = real[first + i];
        const y = imaginary[first + i];
        sum += weights[i] * Math.sqrt(x * x + y * y + FLOOR);
      }
      frame[band] = Math.log(Math.max(sum, this.contract.mel_clamp));
    }
    return frame;
  }
}

// Periodic Hann window of win_length, centred in filter_length.
function windowOf({ filter_length: size, win_length: length }) {
  const window = new Float64Array(size);
  const start = Math.floor((size - length) / 2);
  for (let i = 0; i < length; i++) window[start + i] = 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / length);
  return window;
}

// Triangular filters: the first bin and the weights of each.
function filtersOf(contract, size) {
  const { sampling_rate: rate, n_mel_channels: count, mel_fmin: low } = contract;
  const scale = SCALES[contract.mel_scale];
  const [from, to] = [low, contract.mel_fmax ?? rate / 2].map(scale.mel);
  const step = (to - from) / (count + 1);
  const corners = Array.from({ length: count + 2 }, (_, i) => scale.hz(from + step * i));
  return Array.from({ length: count }, (_, i) => {
    const [left, centre, right] = corners.slice(i, i + 3);
    const area = contract.mel_norm === "slaney" ? 2 / (right - left) : 1;
    const first = Math.ceil((left * size) / rate);
    const last = Math.floor((right * size) / rate);
    const weights = Array.from({ length: Math.max(0, last - first + 1) }, (_, bin) => {
      const hz = ((first + bin) * rate) / size;
      return area * Math.max(0, Math.min((hz - left) / (centre - left), (right - hz) / (right - centre)));
    });
    return { first, weights };
  });
}

function joined(one, other) {
  const both = new Float32Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}

// A Fourier transform in place, of a power of two (radix 2).
class Transform {
  constructor(size) {
    this.real = new Float64Array(size);
    this.imaginary = new Float64Array(size);
    const angles = Float64Array.from({ length: size / 2 }, (_, i) => (-2 * Math.PI * i) / size);
    this.cosines = angles.map(Math.cos);
    this.sines = angles.map(Math.sin);
    this.swaps = swapsOf(size);
  }

  run() {
    const { real, imaginary, cosines, sines } = this;
    const size = real.length;
    for (const [i, j] of this.swaps) {
      const [x, y] = [real[i], imaginary[i]];
      real[i] = real[j];
      imaginary[i] = imaginary[j];
      real[j] = x;
      imaginary[j] = y;
    }
    for (let half = 1; half < size; half *= 2) {
      const step = size / (2 * half);
      for (let start = 0; start < size; start += 2 * half) {
        for (let k = 0; k < half; k++) {
          const cosine = cosines[k * step];
          const sine = sines[k * step];
          const a = start + k;
          const b = a + half;
          const x = real[b] * cosine - imaginary[b] * sine;
          const y = real[b] * sine + imaginary[b] * cosine;
          real[b] = real[a] - x;
          imaginary[b] = imaginary[a] - y;
          real[a] += x;
          imaginary[a] += y;
        }
      }
    }
  }
}

// Pairs of places whose numbers are each other's in reverse binary.
function swapsOf(size) {
  const swaps = [];
  for (let i = 1, j = 0; i < size; i++) {
    let bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) swaps.push([i, j]);
  }
  return swaps;
}
