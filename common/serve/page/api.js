// The server: what it offers, and speech as it is made.

const KEY = "melforge.key";
const EVENT_END = "\n\n";

// An answer that is no speech: the server's own sentence, and which field it is about.
export class ServerError extends Error {
  constructor(status, error, retryAfter) {
    super(error.message);
    this.status = status;
    this.param = error.param;
    this.retryAfter = retryAfter;
  }

  get words() {
    const sentence = /[.!?]$/.test(this.message) ? this.message : `${this.message}.`;
    const again = this.retryAfter ? ` Try again in ${this.retryAfter} s.` : "";
    if (this.status === 429) return `Too many requests: ${sentence}${again}`;
    if (this.status === 503) return `The server is busy: ${sentence}${again}`;
    if (this.status >= 500) return `The server failed (${this.status}): ${sentence}`;
    return sentence;
  }
}

// What goes wrong on the way: no server, or an answer without its end.
export class ConnectionError extends Error {
  get words() {
    return this.message;
  }
}

export function keptKey() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function keepKey(key) {
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // A browser that keeps nothing asks again.
  }
}

async function ask(path, key, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ConnectionError("The server does not answer.");
  }
  if (!answer.ok) {
    const content = await answer.json().catch(() => ({}));
    const error = content.error ?? { message: answer.statusText || "no reason was given" };
    throw new ServerError(answer.status, error, answer.headers.get("Retry-After"));
  }
  return answer;
}

function post(fields, key, signal) {
  const headers = { "Content-Type": "application/json" };
  return ask("v1/audio/speech", key, { method: "POST", headers, body: JSON.stringify(fields), signal });
}

export async function readOptions(key) {
  return (await ask("v1/audio/options", key)).json();
}

// The whole file in a format.
export async function download(fields, format, key) {
  return (await post({ ...fields, response_format: format }, key)).blob();
}

// {samples: Float32Array}, {words: [...]} and {alignment: {...}} as they come.
export async function* speech(fields, rate, key, signal) {
  const wanted = {
    ...fields, response_format: "pcm", sample_rate: rate, stream_format: "sse",
    timestamps: true, alignment: true,
  };
  const answer = await post(wanted, key, signal);
  let whole = false;
  for await (const event of events(answer.body)) {
    if (event.type === "speech.audio.delta") yield { samples: samplesOf(event.audio) };
    else if (event.type === "speech.audio.timestamps") yield { words: event.words };
    else if (event.type === "speech.audio.alignment") yield { alignment: event };
    else if (event.type === "speech.audio.done") whole = true;
  }
  if (!whole) throw new ConnectionError("The speech broke off.");
}

// Server-sent events as objects.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      let end;
      while ((end = text.indexOf(EVENT_END)) >= 0) {
        yield JSON.parse(text.slice("data: ".length, end));
        text = text.slice(end + EVENT_END.length);
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ConnectionError("The speech broke off.");
  } finally {
    reader.cancel().catch(() => {});
  }
}

// 16 bits, little endian, in base64 -> [-1, 1].
function samplesOf(base64) {
  const bytes = atob(base64);
  const samples = new Float32Array(bytes.length / 2);
  for (let i = 0; i < samples.length; i++) {
    const high = (bytes.charCodeAt(2 * i + 1) << 24) >> 16; // with its sign
    samples[i] = (high | bytes.charCodeAt(2 * i)) / 32767;
  }
  return samples;
}
