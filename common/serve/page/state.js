// What is asked for, {text, columns: [{model, voice, controls}]}, as a link and as a history in this browser.

const HISTORY = "melforge.history";
const LONGEST = 20;
const LETTERS = ["a", "b"];

export function toFragment({ text, columns }) {
  const words = new URLSearchParams({ text });
  columns.forEach(({ model, voice, controls }, i) => {
    const fields = { model, voice, ...controls };
    for (const [name, value] of Object.entries(fields)) words.set(`${LETTERS[i]}.${name}`, value);
  });
  return `#${words}`;
}

// null where the fragment says nothing.
export function fromFragment(fragment, controls) {
  const words = new URLSearchParams(fragment.slice(1));
  if (!words.has("text")) return null;
  const columns = LETTERS.filter((letter) => words.has(`${letter}.model`)).map((letter) => ({
    model: words.get(`${letter}.model`),
    voice: words.get(`${letter}.voice`),
    controls: Object.fromEntries(
      controls
        .filter(({ name }) => words.has(`${letter}.${name}`))
        .map(({ name, kind }) => [name, valueOf(words.get(`${letter}.${name}`), kind)])
        .filter(([, value]) => !Number.isNaN(value)),
    ),
  }));
  return { text: words.get("text"), columns };
}

function valueOf(word, kind) {
  if (kind === "text") return word;
  return kind === "switch" ? word === "true" : Number(word);
}

export function readHistory() {
  try {
    const entries = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
    return Array.isArray(entries) ? entries : [];
  } catch {
    return [];
  }
}

// The same state is listed once, the newest first.
export function addToHistory(state) {
  const others = readHistory().filter((other) => toFragment(other) !== toFragment(state));
  writeHistory([state, ...others].slice(0, LONGEST));
}

export function clearHistory() {
  writeHistory([]);
}

function writeHistory(entries) {
  try {
    localStorage.setItem(HISTORY, JSON.stringify(entries));
  } catch {
    // A browser that keeps nothing has no history.
  }
}
