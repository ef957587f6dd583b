"""Writes a training corpus of what somebody reads: a teacher, or one of our voices.

A reader is a function that takes a line and answers with a `SpokenLine`. Each process makes its own reader.
"""

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from melforge.common.errors import InputError, require_package
from melforge.common.recognition.lists import read_list
from melforge.common.text.frontends import get_frontend
from melforge.common.text.split import split_sentences
from melforge.common.training.corpus.alignment import Aligner, line_symbols
from melforge.common.training.corpus.dataset import HOP, RATE, Labels, save_labels, write_metadata
from melforge.common.training.corpus.pitch import pitch_per_symbol
from melforge.common.training.corpus.processes import in_processes


class NamedText(NamedTuple):
    """A wav's name and the text that is spoken in it."""

    name: str
    text: str

    @property
    def seed(self) -> int:
        return zlib.crc32(self.name.encode())


class SpokenLine(NamedTuple):
    """A line as it was read."""

    audio: np.ndarray  # float32 [samples] at `RATE`
    ids: np.ndarray  # int64 [symbols]
    durations: np.ndarray  # frames of each symbol, int64 [symbols]


Reader = Callable[[NamedText], SpokenLine]
# Made in each process, of the corpus's folder. It crosses processes: a function of a module, or a `partial`.
MakeReader = Callable[[Path], Reader]


def read_transcripts(path: Path) -> list[NamedText]:
    """`name|text` a line, as in the published LJSpeech file lists, or a metadata.csv (its last column)."""
    return [NamedText(Path(row.file).stem, row.text or "") for row in read_list(path)]


def one_line_a_sentence(lines: Sequence[NamedText]) -> list[NamedText]:
    """As sentences are spoken one by one later: name, name-b, name-c ..."""
    return [
        NamedText(line.name + (f"-{chr(97 + number)}" if number else ""), text)
        for line in lines
        for number, (text, _) in enumerate(split_sentences(line.text))
    ]


def aligned_reader(speak: Callable[[NamedText, Sequence[str]], np.ndarray]) -> Reader:
    """A reader whose durations are found by forced alignment.

    `speak` gives the audio (float32 [samples] at `RATE`) of a line and its symbols in the frontend "english".
    """
    frontend, aligner = get_frontend("english"), Aligner()

    def read(line: NamedText) -> SpokenLine:
        symbols, ids = line_symbols(frontend(line.text).utterances)
        audio = speak(line, symbols)
        return SpokenLine(audio, ids, aligner.durations(audio, RATE, HOP, symbols))

    return read


_worker: dict = {}


def _start_worker(folder: Path, make_reader: MakeReader) -> None:
    _worker.clear()
    _worker.update(folder=folder, read=make_reader(folder))


def _label(line: NamedText) -> tuple[np.ndarray, np.ndarray, np.ndarray] | str:
    """Ids, durations and pitch, or the reason why the line can't be used."""
    import soundfile

    try:
        audio, ids, durations = _worker["read"](line)
        path = _worker["folder"] / "wavs" / f"{line.name}.wav"
        soundfile.write(path, audio, RATE, subtype="PCM_16")
        return ids, durations, pitch_per_symbol(audio, durations)
    except (ValueError, RuntimeError, OSError) as error:
        return str(error)


def write_corpus(
    folder: Path,
    lines: Sequence[NamedText],
    make_reader: MakeReader,
    workers: int,
    packages: Sequence[str] = (),
) -> Labels:
    """Labels every line with its symbols, durations and pitch (WORLD's DIO with StoneMask).

    Writes labels.npz, metadata.csv and the wavs. Lines that fail are left out and listed in failed.txt with
    the reason. An InputError where one of `packages` is missing.
    """
    for package in ("pyworld", *packages):  # said before anything is written
        require_package(package, "preparing a corpus")
    (folder / "wavs").mkdir(parents=True, exist_ok=True)
    rows, failed = [], []
    results = in_processes(_label, lines, workers, "labelling", _start_worker, folder, make_reader)
    for line, result in zip(lines, results, strict=True):
        if isinstance(result, str):
            failed.append(f"{line.name}|{result}")
        else:
            rows.append((*line, *result))
    if not rows:
        raise InputError(f"no line of the corpus could be labelled; first reason: {failed[0]}")
    names, texts, ids, durations, pitch = map(list, zip(*rows, strict=True))
    labels = Labels(names, texts, ids, durations, pitch)
    write_metadata(folder, labels)
    (folder / "failed.txt").write_text("".join(f"{line}\n" for line in failed), encoding="utf-8")
    save_labels(folder, labels)
    return labels
