"""Phrases from a file to sound files: what `melforge speak` does around the runner."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from melforge.common.audio.sound_files import FORMATS, encode_audio
from melforge.common.bulk.texts import file_name
from melforge.common.errors import InputError, require_package
from melforge.common.files import (
    decode_text,
    folded,
    read_text,
    require_png,
    require_writable_file,
    text_lines,
    write_files,
)
from melforge.common.progress import counting
from melforge.common.runner import AnalysedText, TextToSpeech
from melforge.common.speech import Audio, Controls, shown
from melforge.common.text import Unspoken, list_unspoken, unspoken_rows
from melforge.common.text.phonemes import as_text

if TYPE_CHECKING:
    from melforge.common.recognition.listener import HeardAgain, Listener

NAME_COLUMNS = ("name", "output", "file")
SINGLE = "speech"
DOCUMENTS = (".ssml", ".xml", ".md", ".html", ".htm")  # files whose lines are one text


@dataclass(frozen=True)
class Phrase:
    """A text to speak, the name of its files, and where it stands."""

    name: str
    text: str
    place: str  # "phrases.txt line 3", or "" for --text


def read_phrases(source: str, is_document: bool = False, output: str | None = None) -> list[Phrase]:
    """The phrases of a file (`-` is standard input); of a document there is one.

    Several lines for one sound file, or for `-`, are one text too, unless they are a table's.
    """
    where = "stdin" if source == "-" else source
    content = read_whole(source)
    lines = text_lines(content)
    is_table, is_document = source.lower().endswith(".tsv"), is_document or source.lower().endswith(DOCUMENTS)
    if lines and (is_document or (len(lines) > 1 and not is_table and _is_one_sound(output))):
        return [Phrase(SINGLE, content, where)]
    if not lines:
        raise InputError(f"{where} holds no text to speak")
    if is_table:
        return _from_table(lines, where)
    if empty := lines[-1][0] - len(lines):
        what = f"empty lines and comments ({empty}) make no sound; line N is N.wav"
        print(f"note: {where}: {what}", file=sys.stderr)
    return [Phrase(str(number), line.strip(), f"{where} line {number}") for number, line in lines]


def read_whole(source: str) -> str:
    """The text of a file (`-` is standard input)."""
    if source == "-":
        return decode_text(sys.stdin.buffer.read(), "stdin")
    return read_text(Path(source))


def from_phonemes(phrases: list[Phrase], alphabet: str | None) -> list[Phrase]:
    """Phrases that are phonemes of an alphabet, as texts; without one they are texts."""
    if alphabet is None:
        return phrases
    texts = []
    for one in phrases:
        try:
            texts.append(replace(one, text=as_text(one.text, alphabet)))
        except InputError as error:
            raise InputError(f"{one.place}: {error}" if one.place else str(error)) from None
    return texts


def read_texts(path: Path) -> tuple[str, ...]:
    """The lines of a file, without blank ones and comments."""
    texts = tuple(line.strip() for _, line in text_lines(read_text(path)))
    if not texts:
        raise InputError(f"{path} holds no text to speak")
    return texts


def _is_one_sound(output: str | None) -> bool:
    """Whether `-o` names standard output or one sound file."""
    path = Path(output or "")
    return output == "-" or (path.suffix.lower().removeprefix(".") in FORMATS and not path.is_dir())


def _from_table(lines: list[tuple[int, str]], where: str) -> list[Phrase]:
    """Columns by their heading (name, text), or without one the first two."""
    heading = [cell.strip().lower() for cell in lines[0][1].split("\t")]
    name_at, text_at, columns = 0, 1, None
    if "text" in heading:
        columns = len(heading)
        lines = lines[1:]
        text_at = heading.index("text")
        name_at = next((heading.index(word) for word in NAME_COLUMNS if word in heading), -1)
    phrases: dict[str, Phrase] = {}
    for order, (number, line) in enumerate(lines, start=1):
        place = f"{where} line {number}"
        cells = line.split("\t")
        if max(text_at, name_at) >= len(cells):
            raise InputError(f"{place} has {len(cells)} columns: name and text must be apart by a tab")
        if columns and any(cell.strip() for cell in cells[columns:]):
            raise InputError(
                f"{place} has {len(cells)} columns, and the first line {columns}: a text has no tabs"
            )
        name = str(order) if name_at < 0 else file_name(cells[name_at], place)
        key = folded(name)
        if key in phrases:
            raise InputError(f"{place}: the name {name!r} stands at {phrases[key].place} already")
        phrases[key] = Phrase(name, cells[text_at].strip(), place)
    return list(phrases.values())


class Writer:
    """Where each phrase's files go; what is wrong with that shows before anything is computed."""

    def __init__(
        self,
        output: str | None,
        phrases: Sequence[Phrase],
        save_mel: bool = False,
        plot: str | None = None,
        subtitles: Sequence[str] = (),
    ):
        many = len(phrases) > 1
        self.save_mel, self.plot, self.to_stdout = save_mel, Path(plot) if plot else None, output == "-"
        self.subtitles = [_subtitles(one, many) for one in subtitles]
        self.folder: Path | None = None
        self.file: Path | None = None
        if self.plot:
            require_package("matplotlib", "--plot")
            if not self.plot.is_dir():
                require_writable_file(self.plot)
            if not many:
                require_png(self.plot)
        if self.to_stdout:
            if many:
                raise InputError(f"-o - takes one phrase, not {len(phrases)}: give a folder")
            self._require_nothing_beside("-")
            return
        path = Path(output or (SINGLE if many else f"{SINGLE}.wav"))
        suffix = path.suffix.lower().removeprefix(".")
        is_folder = path.is_dir() or (output or "").endswith("/") or (not suffix and not path.exists())
        if many and not path.is_dir() and (suffix in FORMATS or path.exists()):
            raise InputError(f"{path} is one file for {len(phrases)} phrases: give a folder")
        if is_folder or many:
            path.mkdir(parents=True, exist_ok=True)
            self.folder = path
        else:
            if suffix not in FORMATS and not _is_device(path):
                known = ", ".join(f".{name}" for name in FORMATS)
                raise InputError(f"{path}: the suffix does not name a sound format; use one of {known}")
            require_writable_file(path)
            if _is_device(path):
                self._require_nothing_beside(str(path))
            self.file = path
        if self.plot and many:
            self.plot.mkdir(parents=True, exist_ok=True)

    def _require_nothing_beside(self, output: str) -> None:
        """An InputError where something is to be written beside a sound that is no file."""
        if self.save_mel:
            raise InputError(
                f"--save-mel saves beside the sound file, and -o {output} writes none: give a file"
            )
        for file, form in self.subtitles:
            if file is None:
                beside = f"--subtitles {form} writes beside the sound file, and -o {output} writes none"
                raise InputError(f"{beside}: give FILE.{form}")

    def write(self, phrase: Phrase, audio: Audio) -> Path | None:
        """Writes a phrase's files, all or none, and returns where its sound is."""
        path, rate = self.file or Path(self.folder or "") / f"{phrase.name}.wav", audio.sampling_rate
        suffix = path.suffix.lower().removeprefix(".")
        with counting("writing", audio.seconds, " s") as written:
            sound = encode_audio(
                audio.samples,
                rate,
                suffix if suffix in FORMATS else "wav",
                lambda count: written(count / rate),
            )
        files = {} if self.to_stdout else {path: sound}
        if self.plot:
            from melforge.common.synthesis.plot import draw

            files[self.plot / f"{phrase.name}.png" if self.plot.is_dir() else self.plot] = draw(audio)
        for file, form in self.subtitles:
            from melforge.common.synthesis.subtitles import WRITERS

            files[file or path.with_suffix(f".{form}")] = WRITERS[form](audio).encode()
        if self.save_mel:
            buffer = io.BytesIO()
            np.save(buffer, audio.mel)
            files[path.with_suffix(".npy")] = buffer.getvalue()
        if self.to_stdout:
            sys.stdout.buffer.write(sound)
            sys.stdout.buffer.flush()
        write_files(files)
        return None if self.to_stdout else path


def _subtitles(asked: str, many: bool) -> tuple[Path | None, str]:
    """The file of --subtitles (None: one beside each sound file), and its form."""
    from melforge.common.synthesis.subtitles import WRITERS

    forms = ", ".join(WRITERS)
    if asked in WRITERS:
        return None, asked
    path = Path(asked)
    if (form := path.suffix.lower().removeprefix(".")) not in WRITERS:
        raise InputError(f"--subtitles {asked}: the suffix does not name a form; use one of {forms}")
    if many:
        raise InputError(f"--subtitles {asked} is one file for many phrases: give only its form, {form}")
    require_writable_file(path)
    return path, form


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def warn_of_languages(phrases: Sequence[Phrase]) -> None:
    """Says once that only English is spoken, where a phrase is of another language."""
    from melforge.common.text.english.other_languages import other_language

    for phrase in phrases:
        if language := other_language(phrase.text):
            where = f"{phrase.place}: " if phrase.place else ""
            print(f"warning: {where}this looks {language}, and is read as English", file=sys.stderr)
            return


def describe_unspoken(phrase: Phrase, unspoken: Sequence[Unspoken]) -> list[str]:
    """What of a phrase is not spoken, in a line; none where all is."""
    where = f"{phrase.place}: " if phrase.place else ""
    return [f"{where}{what}" for what in list_unspoken(unspoken)]


def describe_audio(phrase: Phrase, audio: Audio) -> list[str]:
    """What a listener should know: utterances that were spoken again, and those that may be wrong."""
    where = f"{phrase.place}: " if phrase.place else ""
    pairs = zip(audio.utterances, audio.notes, strict=True)
    notes = [f"note: {where}{shown(utterance.text)}: {note}" for utterance, note in pairs if note]
    return notes + [f"warning: {where}{what}" for what in (*audio.warnings, *audio.problems)]


def speak_phrases(
    tts: TextToSpeech,
    phrases: Sequence[Phrase],
    writer: Writer,
    controls: Controls,
    args: argparse.Namespace,
    listener: Listener | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """Speaks and writes every phrase that can be spoken, as the options of `melforge speak` say; a record
    for each file made, and how many failed. A `listener` hears each of them again.

    A lone phrase that cannot be spoken is an error. Of several, the others are still made.
    """
    tts.require_controls(controls)
    speakable = analyse_each(tts, phrases, args.strict, controls.speaker)
    batch_size = args.batch_size if len(phrases) > 1 else args.batch_size or 1
    quiet = args.json or writer.to_stdout
    texts = [text for _, text in speakable]
    sentences = sum(len(text.utterances) for text in texts)
    records: dict[int, dict[str, Any]] = {}
    with counting("speaking", sentences, " sentences") as spoken:
        answers = tts.speak_each(texts, controls, batch_size, args.retry, spoken)
        for number, audio in answers:
            phrase, text = speakable[number]
            again, seed = None, controls.seed
            if listener:
                audio, again, seed = best_heard(tts, text, audio, controls, listener, args.retry)
            started = time.perf_counter()
            path = writer.write(phrase, audio)
            for line in describe_audio(phrase, audio):
                print(line, file=sys.stderr)
            records[number] = record(phrase, audio, path, time.perf_counter() - started)
            if again:
                records[number]["listened"] = {**again.as_json(), "seed": seed}
                parts = [f"spoken again with seed {seed}" if seed != controls.seed else "", again.describe()]
                if any(parts):
                    place = f"{phrase.place}: " if phrase.place else ""
                    print(f"heard: {place}{'; '.join(filter(None, parts))}", file=sys.stderr)
            if path and not quiet and len(phrases) == 1:
                print(f"{path}: {audio.seconds:.2f} s")
    if writer.folder and not quiet and len(phrases) > 1:
        print(f"{writer.folder}: {len(records)} files, {sum(r['seconds'] for r in records.values()):.1f} s")
    return [records[number] for number in sorted(records)], len(phrases) - len(speakable)


def analyse_each(
    tts: TextToSpeech, phrases: Sequence[Phrase], strict: bool, speaker: int | str = 0
) -> list[tuple[Phrase, AnalysedText]]:
    """The phrases that can be spoken, with their analyses. Prints what is wrong with others.

    An InputError where a lone phrase cannot be spoken. With `strict` a symbol that cannot be is an error.
    """
    found = []
    warn_of_languages(phrases)
    for phrase in phrases:
        try:
            text = tts.analyse(phrase.text, speaker=speaker)
            lines = describe_unspoken(phrase, text.unspoken)
            if strict and lines:
                raise InputError("; ".join(lines))
        except InputError as error:
            if len(phrases) == 1:
                raise
            message = str(error)
            where = "" if message.startswith(phrase.place) else f"{phrase.place}: "
            print(f"error: {where}{message}", file=sys.stderr)
            continue
        for line in lines:
            print(f"warning: {line}", file=sys.stderr)
        found.append((phrase, text))
    return found


def best_heard(
    tts: TextToSpeech, text: AnalysedText, audio: Audio, controls: Controls, listener: Listener, retries: int
) -> tuple[Audio, HeardAgain, int]:
    """A spoken text, or what came of it with a further seed, what an ear hears in it, and that seed.

    As long as words are left out or said twice, it is spoken again, with so many seeds at most; what has the
    fewest of these words is kept. Models without noise speak the same again, and are not asked.
    """
    heard, seed = listener.hear(audio), controls.seed
    if not (controls.dropout and "dropout" in tts.acoustic.controls):
        retries = 0
    for other in range(controls.seed + 1, controls.seed + retries + 1):
        if not heard.slips:
            break
        attempt = tts.speak(text, replace(controls, seed=other))
        found = listener.hear(attempt)
        if found.slips < heard.slips:
            audio, heard, seed = attempt, found, other
    return audio, listener.count(heard), seed


def record(phrase: Phrase, audio: Audio, path: Path | None, write_seconds: float) -> dict[str, Any]:
    """What --json says of a phrase. Writing is timed apart: speed is from text to samples."""
    timings = {**audio.timings.summary(), "write_s": write_seconds}
    pitches = audio.pitches or [None] * len(audio.utterances)
    utterances = zip(audio.utterances, audio.starts, audio.durations, pitches, audio.notes, strict=True)
    return {
        "name": phrase.name,
        "file": None if path is None else str(path),
        "seconds": round(audio.seconds, 4),
        "sampling_rate": audio.sampling_rate,
        "text": audio.text,
        "utterances": [
            {
                "text": utterance.text,
                "normalised": utterance.normalised,
                "start": round(start, 4),
                "pause": utterance.pause,
                "symbols": list(utterance.symbols),
                "durations": durations.tolist(),
                "pitch": None if pitch is None else [round(float(hz), 1) for hz in pitch],
                "note": note,
            }
            for utterance, start, durations, pitch, note in utterances
        ],
        "problems": [asdict(problem) for problem in audio.problems],
        "unspoken": unspoken_rows(audio.unspoken),
        "timings": {name: round(value, 6) for name, value in timings.items()},
    }
