"""Makes a training corpus: the teacher or one of our voices reads transcripts, or LJSpeech is labelled."""

import os
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from melforge.common.cli import options
from melforge.common.errors import InputError, require_package
from melforge.common.files import read_text
from melforge.common.text.cmudict import load_cmudict
from melforge.common.text.frontends import get_frontend
from melforge.common.text.split import split_sentences
from melforge.common.training.corpus.dataset import (
    HOP,
    METADATA,
    RATE,
    Labels,
    load_labels,
    save_labels,
    write_metadata,
)
from melforge.common.training.corpus.intonation import asks_yes_or_no
from melforge.common.training.corpus.pitch import pitch_per_symbol
from melforge.common.training.corpus.processes import in_processes
from melforge.common.training.corpus.sources import SOURCES
from melforge.common.training.corpus.texts import extra_sentences


class NamedText(NamedTuple):
    """A wav's name and the text that is spoken in it."""

    name: str
    text: str


def read_metadata(folder: Path) -> list[NamedText]:
    """LJSpeech's metadata.csv: `name|text|normalised text` (the last column counts)."""
    path = folder / METADATA
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} not found: a corpus folder holds {METADATA} and wavs/ as LJSpeech does"
        )
    return [NamedText(row[0], row[-1]) for row in _rows(path)]


def read_transcripts(path: Path) -> list[NamedText]:
    """`name|text` a line, as in the published LJSpeech file lists; also a metadata.csv (its last column)."""
    return [NamedText(Path(row[0]).stem, row[-1].strip()) for row in _rows(path)]


def _rows(path: Path) -> list[list[str]]:
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            rows.append(line.split("|"))
            if len(rows[-1]) < 2:
                raise InputError(f"{path} line {number}: expected name|text")
    if not rows:
        raise InputError(f"{path} is empty: write a line name|text for each recording")
    return rows


def line_symbols(frontend, text: str) -> tuple[list[str], np.ndarray]:
    """Symbols and ids of a whole line as one sequence: its sentences stand in one recording."""
    utterances = frontend(text).utterances
    if not utterances:
        raise InputError("nothing to speak")
    return [s for u in utterances for s in u.symbols], np.concatenate([u.ids for u in utterances])


_worker: dict = {}


def _start_worker(
    folder: Path, speak: bool, label: bool, sources: bool = False, voice: str | None = None
) -> None:
    _worker.clear()
    _worker.update(folder=folder, sources=sources)
    if voice:
        from melforge.common.training.corpus.reader import Reader

        _worker["reader"] = reader = Reader(voice)
        _worker["frontend"] = reader.tts.frontend
        return
    _worker["frontend"] = get_frontend("english")
    if label:
        from melforge.common.training.corpus.alignment import Aligner

        _worker["aligner"] = Aligner()
    if speak:
        from melforge.common.training.corpus.teacher import Teacher

        _worker["teacher"] = Teacher()


def _seed(line: NamedText) -> int:
    return zlib.crc32(line.name.encode())


def _write(line: NamedText, audio: np.ndarray) -> None:
    import soundfile

    soundfile.write(_worker["folder"] / "wavs" / f"{line.name}.wav", audio, RATE, subtype="PCM_16")


def _speak(line: NamedText, symbols: list[str]) -> np.ndarray:
    """The teacher's reading of one line, also written to its wav; the name seeds it."""
    how = symbols, RATE, _seed(line), asks_yes_or_no(line.text)
    if _worker["sources"]:
        audio, source = _worker["teacher"].speak_with_source(*how)
        source.save(_worker["folder"], line.name)
    else:
        audio = _worker["teacher"].speak(*how)
    _write(line, audio)
    return audio


def _label(line: NamedText) -> tuple[np.ndarray, np.ndarray, np.ndarray] | str:
    """Ids, durations and pitch, or the reason why the line can't be used."""
    import soundfile

    try:
        symbols, ids = line_symbols(_worker["frontend"], line.text)
        if "reader" in _worker:
            audio, durations = _worker["reader"].read(ids, _seed(line))
            _write(line, audio)
            return ids, durations, pitch_per_symbol(audio, durations)
        if "teacher" in _worker:
            audio = _speak(line, symbols)
        else:
            audio, rate = soundfile.read(_worker["folder"] / "wavs" / f"{line.name}.wav", dtype="float32")
            if rate != RATE:
                raise InputError(f"{rate} Hz, expected {RATE}")
        durations = _worker["aligner"].durations(audio, RATE, HOP, symbols)
        return ids, durations, pitch_per_symbol(audio, durations)
    except (ValueError, RuntimeError, OSError) as error:
        return str(error)


def prepare(
    folder: Path,
    lines: list[NamedText],
    speak: bool,
    workers: int,
    sources: bool = False,
    voice: str | None = None,
) -> Labels:
    """Labels every line (speaking it first when `speak`), writes labels.npz and, when speaking, metadata.csv.

    With `sources` the teacher's harmonic sources are kept too (see `sources.py`). A `voice` speaks in the
    teacher's place (see `reader.py`).

    A line gets its symbols, durations (forced alignment, or the voice's own) and pitch (WORLD's DIO with
    StoneMask).
    Lines that fail are left out and listed in failed.txt with the reason.
    """
    if voice:
        from melforge.common.training.corpus.reader import Reader

        Reader(voice)  # a voice that cannot is said here, not in each process
    packages = ["pyworld"] + ["pocketsphinx"] * (not voice) + ["hibari"] * (speak and not voice)
    for package in packages:  # said before anything is written
        require_package(package, "preparing a corpus")
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    if sources:
        (folder / SOURCES).mkdir(exist_ok=True)
    rows, failed = [], []
    how = folder, speak, True, sources, voice
    results = in_processes(_label, lines, workers, "labelling", _start_worker, *how)
    for line, result in zip(lines, results, strict=True):
        if isinstance(result, str):
            failed.append(f"{line.name}|{result}")
        else:
            rows.append((line.name, line.text, *result))
    if not rows:
        raise InputError(f"no line of the corpus could be labelled; first reason: {failed[0]}")
    names, texts, ids, durations, pitch = map(list, zip(*rows, strict=True))
    labels = Labels(names, texts, ids, durations, pitch)
    if speak:
        write_metadata(folder, labels)
    (folder / "failed.txt").write_text("".join(f + "\n" for f in failed), encoding="utf-8")
    save_labels(folder, labels)
    return labels


def _respeak(job: tuple[NamedText, np.ndarray]) -> int:
    line, ids = job
    return len(_speak(line, [_worker["frontend"].symbols[i] for i in ids])) // HOP


def respeak(folder: Path, workers: int, sources: bool = False) -> None:
    """Makes the wavs of an existing labels.npz again; InputError where the teacher's timing is another."""
    labels = load_labels(folder)
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    if sources:
        (folder / SOURCES).mkdir(exist_ok=True)
    jobs = list(zip(map(NamedText, labels.names, labels.texts), labels.ids, strict=True))
    how = folder, True, False, sources
    frames = list(in_processes(_respeak, jobs, workers, "speaking", _start_worker, *how))
    different = int((np.array(frames) != labels.frames).sum())
    if different:
        raise InputError(
            f"{different} of {len(frames)} lines have another length than their labels: label them again"
        )


def split_sentences_into_lines(lines: list[NamedText]) -> list[NamedText]:
    """One line a sentence, as the runner will feed the models: name, name-b, name-c ..."""
    out = []
    for line in lines:
        for i, (text, _) in enumerate(split_sentences(line.text)):
            out.append(NamedText(line.name + (f"-{chr(97 + i)}" if i else ""), text))
    return out


def main(argv: Sequence[str] | None = None) -> None:
    parser = options.Parser(description=__doc__)
    option = parser.add_argument
    option("--corpus", type=Path, required=True, help="folder with metadata.csv and wavs/, LJSpeech's format")
    option("--transcripts", type=Path, help="name|text lines for the teacher to read into the folder")
    option(
        "--extra",
        action="store_true",
        help="with --transcripts: add words, questions, dialogue, lists, numbers, names",
    )
    option("--voice", help="with --transcripts: a voice whose FastPitch reads them, instead of the teacher")
    option("--respeak", action="store_true", help="let the teacher make the wavs of an existing labels.npz")
    option(
        "--sources", action="store_true", help="keep the teacher's harmonic sources, for HiFi-GAN's source"
    )
    option("--limit", type=int, help="use the first N lines only")
    option("--workers", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    args = parser.parse_args(argv)

    if args.sources and not (args.respeak or args.transcripts):
        raise InputError("--sources are the teacher's: give --transcripts or --respeak too")
    if args.voice and (args.sources or args.respeak or not args.transcripts):
        raise InputError("--voice reads --transcripts: --sources and --respeak are the teacher's")
    if args.respeak:
        respeak(args.corpus, args.workers, args.sources)
        return
    if args.transcripts:
        lines = read_transcripts(args.transcripts)
        if args.extra:
            words = [w.lower() for w in load_cmudict().words() if w.isalpha()]
            extra = extra_sentences([line.text for line in lines], words)
            lines += [NamedText(f"extra-{i:05d}", text) for i, text in enumerate(extra)]
        lines = split_sentences_into_lines(lines)
        random.Random(0).shuffle(lines)  # the recipes validate on the last ones
    else:
        lines = read_metadata(args.corpus)
    if args.limit:
        lines = lines[:: max(1, len(lines) // args.limit)][: args.limit]
    speak = args.transcripts is not None
    labels = prepare(args.corpus, lines, speak, args.workers, args.sources, args.voice)
    hours = labels.frames.sum() * HOP / RATE / 3600
    print(f"{len(labels.names)} of {len(lines)} lines labelled, {hours:.2f} h in {args.corpus}")
