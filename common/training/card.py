"""A voice's model card, README.md: what its training runs say of themselves, and how its speech is heard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from melforge.common.errors import InputError
from melforge.common.recognition.listener import Listener
from melforge.common.recognition.loading import make_recogniser
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.weights.voices import ModelSource, Voice, read_header, read_voice

SHOWN = {  # held-out numbers: what the card calls them
    "validation_mel": "mel L1",
    "duration_ms": "duration error, ms a phone",
    "pitch_hz": "pitch error, Hz a phone",
}
SPEAKERS = 8  # that are heard, of a voice of many
EAR_LIMIT = 1.0  # of words heard as others: a card only tells how many


def run_info(source: ModelSource) -> dict[str, Any]:
    """What a training run wrote beside its weights."""
    _, metadata = read_header(source.weights)
    return json.loads(metadata.get("info", "{}"))


def write_card(
    folder: Path, infos: Mapping[str, Mapping[str, Any]], start: Voice | None, ear: Voice | None
) -> None:
    """Writes README.md of the voice in `folder`; `infos` are by model, of those that were trained."""
    voice = read_voice(folder)
    first = next(iter(infos.values()))
    parts = [f"# {voice.name}\n", introduction(voice), "## Origin\n", origin(first, start), "## Training\n"]
    parts += [table(training_rows(infos)), "## Scores\n", scores(folder, first.get("sentences", []), ear)]
    (folder / "README.md").write_text("\n".join(parts), encoding="utf-8")


def introduction(voice: Voice) -> str:
    mel = next(iter(voice.models.values())).mel
    pairs = " or ".join(voice.models_of("acoustic")) + " into " + " or ".join(voice.models_of("vocoder"))
    speakers = dict.fromkeys(name for source in voice.models.values() for name in source.speakers)
    lines = [f"{voice.description}\n"] if voice.description else []
    lines += [f"{pairs}, {mel.sampling_rate} Hz. Licence: {voice.licence or 'not stated'}."]
    lines += [f"Speakers: {', '.join(speakers)} (`--speaker NAME`)."] if speakers else []
    return "\n".join(lines) + "\n"


def origin(info: Mapping[str, Any], start: Voice | None) -> str:
    if "speech_minutes" not in info:
        return "The training run says nothing of its corpus.\n"
    lines = [f"{info['speech_minutes']} minutes of speech (corpus `{info['corpus']}`)."]
    for name, minutes in info["corpus_speakers"].items():
        lines.append(f"- {name}: {minutes} minutes")
    begun = f"`{info['start']}`" if start is None else f"the voice {start.name}"
    licence = f", whose licence is {start.licence}" if start and start.licence else ""
    return "\n".join([*lines, "", f"Training began with the weights of {begun}{licence}."]) + "\n"


def training_rows(infos: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each held-out number of each model: at the start, and of the weights that were kept."""
    rows = [("model", "steps", "minutes", "device", "held-out", "at the start", "kept")]
    for model, info in infos.items():
        about = (model, str(info.get("steps", "")), str(info.get("minutes", "")), str(info.get("device", "")))
        values = info.get("scores", {})
        named = {key: name for key, name in SHOWN.items() if key in values.get("best", {})}
        rows += [
            (*about, name, f"{values['start'][key]:.3g}", f"{values['best'][key]:.3g}")
            for key, name in named.items()
        ] or [(*about, "", "", "")]
    return rows


def table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest]) + "\n"


def scores(folder: Path, sentences: Sequence[str], ear: Voice | None) -> str:
    """The word error rate of the held-out sentences, spoken by each speaker and heard by an ear."""
    if not sentences:
        return "No sentences were held out to be heard.\n"
    if ear is None:
        return "Not measured: no ear (a recogniser's folder) heard it.\n"
    tts, recogniser = TextToSpeech.load(voice=folder, device="cpu"), make_recogniser(ear.only)
    rows = [("speaker", "sentences", "words", "word error rate")]
    for name in tts.acoustic.source.speakers[:SPEAKERS] or ("",):
        listener = Listener(recogniser, EAR_LIMIT)
        controls = Controls(speaker=name) if name else Controls()
        for text in sentences:
            try:
                listener.listen(tts.speak(text, controls))
            except InputError:  # nothing in it is a word
                continue
        words = sum(len(reference) for reference, _ in listener.pairs)
        row = (name or "the voice", str(len(listener.pairs)), str(words), f"{100 * listener.rate:.1f} %")
        rows.append(row)
    return f"Held-out sentences, heard by the ear {ear.name}:\n\n" + table(rows)
