// The server: what it offers, speech as it is made, and what it hears.

const TOKEN = "melforge.token";
const TOKEN_SECONDS = 7200;
const EVENT_END = "\n\n";

// An answer that is no success: the server's own sentence, and which field it is about.
export class ServerError extends Error {
  constructor(status, { message, param }, retryAfter) {
    const sentence = /[.!?]$/.test(message) ? message : `${message}.`;
    const again = retryAfter ? ` Try again in ${retryAfter} s.` : "";
    if (status === 429) super(`Too many requests: ${sentence}${again}`);
    else if (status === 503) super(`The server is busy: ${sentence}${again}`);
    else if (status >= 500) super(`The server failed (${status}): ${sentence}`);
    else super(sentence);
    Object.assign(this, { status, param });
  }
}

export function keptToken() {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

function keepToken(token) {
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    // A browser that keeps nothing asks again.
  }
}

// Gets a token in the place of the key, which nothing keeps.
export async function enter(key) {
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
  const body = JSON.stringify({ expires_after: { anchor: "created_at", seconds: TOKEN_SECONDS } });
  try {
    const answer = await ask("v1/realtime/client_secrets", { method: "POST", headers, body });
    keepToken((await answer.json()).value);
  } catch (error) {
    throw error.status === 401 ? new Error("This is no valid key.") : error;
  }
}

async function ask(path, { headers = {}, ...options } = {}) {
  if (keptToken()) headers.Authorization ??= `Bearer ${keptToken()}`;
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer.");
  }
  if (!answer.ok) {
    const content = await answer.json().catch(() => ({}));
    const error = content.error ?? { message: answer.statusText || "no reason was given" };
    throw new ServerError(answer.status, error, answer.headers.get("Retry-After"));
  }
  return answer;
}

function speak(fields, signal) {
  const headers = { "Content-Type": "application/json" };
  return ask("v1/audio/speech", { method: "POST", headers, body: JSON.stringify(fields), signal });
}

export async function readOptions() {
  return (await ask("v1/audio/options")).json();
}

// The whole file.
export async function download(fields) {
  return (await speak(fields)).blob();
}

// A transcript as text in a format.
export async function transcribe(file, model, format, signal) {
  const body = new FormData();
  body.append("file", file);
  body.append("model", model);
  body.append("response_format", format);
  return (await ask("v1/audio/transcriptions", { method: "POST", body, signal })).text();
}

// The server's events as they come; those of audio have `samples`, a Float32Array.
export async function* speech(fields, rate, signal) {
  const wanted = { response_format: "pcm", sample_rate: rate, stream_format: "sse" };
  const answer = await speak({ ...fields, ...wanted, timestamps: true, alignment: true }, signal);
  let whole = false;
  for await (const event of events(answer.body)) {
    if (event.audio) event.samples = samplesOf(event.audio);
    whole ||= event.type === "speech.audio.done";
    yield event;
  }
  if (!whole) throw new Error("The speech broke off.");
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
    throw new Error("The speech broke off.");
  } finally {
    reader.cancel().catch(() => {});
  }
}

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

// 16 bits, little endian, in base64 -> [-1, 1].
function samplesOf(base64) {
  const view = new DataView(bytesOf(base64).buffer);
  return Float32Array.from({ length: view.byteLength / 2 }, (_, i) => view.getInt16(2 * i, true) / 32767);
}
