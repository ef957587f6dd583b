// The form, the keyboard, the columns A and B, links and history.

import { enter, keptToken, readOptions } from "./api.js";
import { Column } from "./column.js";
import { offerHearing } from "./hearing.js";
import { addToHistory, clearHistory, fromFragment, readHistory, toFragment } from "./state.js";

const FRAME = 40; // milliseconds
const at = (id) => document.getElementById(id);
const [text, compare, columnsPlace] = [at("text"), at("compare"), at("columns")];
let options = null;
let columns = [];
let turn = 0; // of pressing Speak
let drawing = false;
let drawn = 0; // when, in milliseconds

const page = {
  status: (words) => (at("status").textContent = words),
  failed: showError,
  changed: draw,
  text: () => text.value,
  hear: (column) => hear([column], ({ greeting }) => greeting),
  playing: (column) => columns.filter((other) => other !== column).forEach((other) => other.pause()),
};

function shown() {
  return compare.checked ? columns : columns.slice(0, 1);
}

function state() {
  return { text: text.value, columns: shown().map((column) => column.state) };
}

function speak() {
  if (!options) return;
  addToHistory(state());
  listHistory();
  hear(shown(), () => text.value);
}

// Each column is asked when the one before is whole, so that their times are their own.
async function hear(chosen, textOf) {
  stop();
  const mine = ++turn;
  showError(null);
  let heard = Promise.resolve();
  for (const column of chosen) {
    try {
      await column.speak(textOf(column), heard);
    } catch (error) {
      if (mine === turn) showError(error);
      return;
    }
    if (mine !== turn) return;
    heard = column.ended;
  }
}

function stop() {
  turn += 1;
  columns.forEach((column) => column.stop());
}

// A server that wants a key asks for it, and again when the token in its place holds no longer.
function showError(error) {
  page.status("");
  const wanted = error?.status === 401;
  const again =
    keptToken() && "Please enter the key again: its two hours are over, or the server was started again.";
  const words = wanted ? again : error?.message;
  at("error").textContent = words ?? "";
  if (!wanted) return;
  at("key-form").hidden = false;
  at("key").focus();
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
  const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  page.status(`The link is in the address bar${copied ? " and on the clipboard" : ""}.`);
}

function listHistory() {
  const entries = readHistory();
  at("past").hidden = !entries.length;
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
  const count = [...text.value].length;
  at("count").textContent = `${count} of ${options.max_characters} characters`;
  at("count").classList.toggle("error", count > options.max_characters);
}

async function start() {
  showError(null);
  try {
    options = await readOptions();
  } catch (error) {
    showError(error);
    return;
  }
  columns = ["a", "b"].map((letter) => new Column(letter, options, page));
  columnsPlace.replaceChildren(...columns.map(({ root }) => root));
  const other = options.pairs[1] ?? options.pairs[0];
  columns[1].state = { ...columns[1].state, model: other.name };
  offerHearing(options.ear);
  at("form").hidden = false;
  restoreLink();
  countCharacters();
  showColumns();
  listHistory();
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
at("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await enter(at("key").value.trim());
  } catch (error) {
    showError(error);
    return;
  }
  at("key").value = "";
  showError(null);
  if (!options) await start();
  if (!options) return;
  at("key-form").hidden = true;
  page.status("The key is accepted.");
  text.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
  else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speak();
  }
});
addEventListener("hashchange", () => options && restoreLink());
start();
