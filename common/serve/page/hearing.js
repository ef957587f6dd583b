// Recordings that are chosen or dropped, and what the server's ear hears in them.

import { transcribe } from "./api.js";

const at = (id) => document.getElementById(id);
const [place, recording, format] = [at("hearing"), at("recording"), at("transcript")];
const [status, heard] = [at("heard-status"), at("heard")];
let abort = new AbortController(); // of the one under way

// Shown where the server has an ear, whose name this is.
export function offerHearing(ear) {
  place.hidden = !ear;
  place.dataset.ear = ear;
}

async function hear() {
  abort.abort();
  abort = new AbortController();
  const [file] = recording.files;
  const { signal } = abort;
  heard.hidden = true;
  if (!file) return;
  const show = (words, failed) => {
    status.textContent = words;
    status.classList.toggle("error", Boolean(failed));
  };
  show(`Listening to ${file.name} …`);
  const begun = performance.now();
  try {
    heard.textContent = await transcribe(file, place.dataset.ear, format.value, signal);
    heard.hidden = !heard.textContent.trim();
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    show(`${place.dataset.ear} heard ${heard.hidden ? "no speech in " : ""}${file.name} in ${seconds} s.`);
  } catch (error) {
    if (!signal.aborted) show(error.message, true);
  }
}

recording.addEventListener("change", hear);
format.addEventListener("change", hear);
document.addEventListener("dragover", (event) => {
  if (place.hidden || !event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  place.classList.add("over");
});
document.addEventListener("dragleave", () => place.classList.remove("over"));
document.addEventListener("drop", (event) => {
  place.classList.remove("over");
  if (place.hidden || !event.dataTransfer.files.length) return;
  event.preventDefault();
  recording.files = event.dataTransfer.files;
  place.scrollIntoView({ block: "nearest" });
  hear();
});
