// The form, the keyboard, the columns A and B, links and history.

import { keepKey, keptKey, readOptions } from "./api.js";
import { Column } from "./column.js";
import { addToHistory, clearHistory, fromFragment, readHistory, toFragment } from "./state.js";

const FRAME = 40; // milliseconds
const at = (id) => document.getElementById(id);
const [text, compare, columnsPlace] = [at("text"), at("compare"), at("columns")];
let options = null;
let columns = [];
let turn = 0; // of pressing Speak
let drawing = false;
let drawn = 0; // when, in milliseconds

const notify = {
  status: (words) => (at("status").textContent = words),
  failed: showError,
  changed: draw,
  text: () => text.value,
  key: keptKey,
  playing: (column) => columns.filter((other) => other !== column).forEach((other) => other.pause()),
};

function shown() {
  return compare.checked ? columns : columns.slice(0, 1);
}

function state() {
  return { text: text.value, columns: shown().map((column) => column.state) };
}

// Each column is asked when the one before is whole, so that their times are their own.
async function speak() {
  if (!options) return start();
  stop();
  const mine = ++turn;
  showError(null);
  addToHistory(state());
  listHistory();
  let heard = Promise.resolve();
  for (const column of shown()) {
    try {
      await column.speak(text.value, keptKey(), heard);
    } catch (error) {
      if (mine === turn) showError(error);
      return;
    }
    if (mine !== turn) return;
    heard = column.ended;
  }
}

function stop() {
  const busy = columns.some((column) => column.busy);
  turn += 1;
  columns.forEach((column) => column.stop());
  if (busy) notify.status("Stopped.");
}

function showError(error) {
  at("error").textContent = error ? error.words ?? String(error) : "";
  if (error) notify.status("");
  if (error?.status === 401) {
    at("key-row").hidden = false;
    at("key").focus();
  }
}

// Draws as long as something moves, else once; not in each of the screen's frames, for the server may need
// the same processor.
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame((now) => {
    drawing = false;
    if (now - drawn < FRAME) return draw();
    drawn = now;
    columns.forEach((column) => column.tick());
    const busy = columns.some((column) => column.busy);
    at("stop").disabled = !busy;
    if (busy) draw();
  });
}

function showColumns() {
  columns.forEach((column, i) => (column.root.hidden = i > 0 && !compare.checked));
  columnsPlace.classList.toggle("compare", compare.checked);
  if (!compare.checked) columns[1]?.stop();
  draw();
}

function restore(saved) {
  stop();
  text.value = saved.text;
  compare.checked = saved.columns.length > 1;
  saved.columns.forEach((column, i) => (columns[i].state = column));
  countCharacters();
  showColumns();
}

function restoreLink() {
  const saved = fromFragment(location.hash, options.controls);
  if (saved) restore(saved);
}

async function share() {
  history.replaceState(null, "", toFragment(state()));
  try {
    await navigator.clipboard.writeText(location.href);
    notify.status("The link is in the address bar and on the clipboard.");
  } catch {
    notify.status("The link is in the address bar.");
  }
}

function listHistory() {
  const entries = readHistory();
  at("no-history").hidden = entries.length > 0;
  at("clear").hidden = !entries.length;
  at("history").replaceChildren(
    ...entries.map((entry) => {
      const [item, button, models] = ["li", "button", "span"].map((name) => document.createElement(name));
      button.type = "button";
      button.textContent = entry.text;
      models.className = "help";
      models.textContent = entry.columns.map(({ model }) => model).join(", ");
      button.addEventListener("click", () => {
        restore(entry);
        text.focus();
      });
      item.append(button, models);
      return item;
    }),
  );
}

function countCharacters() {
  const most = options?.max_characters;
  const count = [...text.value].length;
  at("count").textContent = most ? `${count} of ${most} characters` : "";
  at("count").classList.toggle("error", count > most);
}

async function start() {
  showError(null);
  try {
    options = await readOptions(keptKey());
  } catch (error) {
    showError(error);
    return;
  }
  columns = ["a", "b"].map((letter) => new Column(letter, options, notify));
  columnsPlace.replaceChildren(...columns.map(({ root }) => root));
  const other = options.pairs[1] ?? options.pairs[0];
  columns[1].state = { ...columns[1].state, model: other.name };
  restoreLink();
  countCharacters();
  showColumns();
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  speak();
});
at("stop").addEventListener("click", stop);
at("share").addEventListener("click", share);
compare.addEventListener("change", showColumns);
text.addEventListener("input", countCharacters);
at("clear").addEventListener("click", () => {
  clearHistory();
  listHistory();
});
at("use-key").addEventListener("click", () => {
  keepKey(at("key").value.trim());
  start();
});
at("key").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  at("use-key").click();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
  else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speak();
  }
});
addEventListener("hashchange", () => options && restoreLink());
if (keptKey()) {
  at("key").value = keptKey();
  at("key-row").hidden = false;
}
listHistory();
start();
