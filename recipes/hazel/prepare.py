"""Makes a training corpus: the teacher or one of our voices reads transcripts, or LJSpeech is labelled."""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.hazel.prepare")

import os
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.recognition.lists import read_list
from melforge.common.text.cmudict import load_cmudict
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus.dataset import HOP, METADATA, RATE, load_labels
from melforge.common.training.corpus.processes import in_processes
from recipes.corpus import (
    NamedText,
    Reader,
    aligned_reader,
    one_line_a_sentence,
    read_transcripts,
    write_corpus,
    write_wav,
)
from recipes.hazel.intonation import asks_yes_or_no
from recipes.hazel.teacher import Teacher
from recipes.hazel.texts import extra_sentences
from recipes.hazel.voice_reader import VoiceReader


def speak(
    teacher: Teacher, folder: Path, line: NamedText, symbols: Sequence[str], sources: bool
) -> np.ndarray:
    """The teacher's reading of one line; `sources`: its harmonic source is written too."""
    how = symbols, RATE, line.seed, asks_yes_or_no(line.text)
    if not sources:
        return teacher.speak(*how)
    audio, source = teacher.speak_with_source(*how)
    source.save(folder, line.name)
    return audio


def teacher_reader(folder: Path, sources: bool) -> Reader:
    teacher = Teacher()
    return aligned_reader(lambda line, symbols: speak(teacher, folder, line, symbols, sources))


def voice_reader(folder: Path, voice: str) -> Reader:
    return VoiceReader(voice).read


def recordings_reader(folder: Path) -> Reader:
    """Of the wavs that the folder holds already."""

    def recorded(line: NamedText, symbols: Sequence[str]) -> np.ndarray:
        audio, rate = soundfile.read(folder / "wavs" / f"{line.name}.wav", dtype="float32")
        if rate != RATE:
            raise InputError(f"{rate} Hz, expected {RATE}")
        return audio

    return aligned_reader(recorded)


def read_metadata(folder: Path) -> list[NamedText]:
    """LJSpeech's metadata.csv: `name|text|normalised text` (the last column counts)."""
    path = folder / METADATA
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} not found: a corpus folder holds {METADATA} and wavs/ as LJSpeech does"
        )
    return [NamedText(row.file, row.text or "") for row in read_list(path)]


_worker: dict = {}


def _start_worker(folder: Path, sources: bool) -> None:
    symbols = get_frontend("english").symbols
    _worker.update(teacher=Teacher(), folder=folder, sources=sources, symbols=symbols)


def _respeak(job: tuple[NamedText, np.ndarray]) -> int:
    line, ids = job
    symbols = [_worker["symbols"][number] for number in ids]
    audio = speak(_worker["teacher"], _worker["folder"], line, symbols, _worker["sources"])
    write_wav(_worker["folder"], line.name, audio)
    return len(audio) // HOP


def respeak(folder: Path, workers: int, sources: bool = False) -> None:
    """Makes the wavs of an existing labels.npz again; InputError where the teacher's timing is another."""
    labels = load_labels(folder)
    (folder / "wavs").mkdir(exist_ok=True)
    jobs = list(zip(map(NamedText, labels.names, labels.texts), labels.ids, strict=True))
    frames = list(in_processes(_respeak, jobs, workers, "speaking", _start_worker, folder, sources))
    different = int((np.array(frames) != labels.frames).sum())
    if different:
        raise InputError(
            f"{different} of {len(frames)} lines have another length than their labels: label them again"
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m recipes.hazel.prepare", description=__doc__)
    option = parser.add_argument
    option("--corpus", type=Path, required=True, help="folder with metadata.csv and wavs/, LJSpeech's format")
    option("--transcripts", type=Path, help="name|text lines for the teacher to read into the folder")
    what = "with --transcripts: add words, questions, dialogue, lists, numbers, names"
    option("--extra", action="store_true", help=what)
    option("--voice", help="with --transcripts: a voice whose FastPitch reads them, instead of the teacher")
    option("--respeak", action="store_true", help="let the teacher make the wavs of an existing labels.npz")
    what = "keep the teacher's harmonic sources, for HiFi-GAN's source"
    option("--sources", action="store_true", help=what)
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
        lines = one_line_a_sentence(lines)
        random.Random(0).shuffle(lines)  # the recipes validate on the last ones
    else:
        lines = read_metadata(args.corpus)
    if args.limit:
        lines = lines[:: max(1, len(lines) // args.limit)][: args.limit]
    if args.voice:
        VoiceReader(args.voice)  # a voice that cannot is said here, not in each process
        reader, packages = partial(voice_reader, voice=args.voice), ()
    elif args.transcripts:
        reader, packages = partial(teacher_reader, sources=args.sources), ("pocketsphinx", "hibari")
    else:
        reader, packages = recordings_reader, ("pocketsphinx",)
    spoken = args.transcripts is not None
    labels = write_corpus(args.corpus, lines, reader, args.workers, packages, write_audio=spoken)
    hours = labels.frames.sum() * HOP / RATE / 3600
    print(f"{len(labels.names)} of {len(lines)} lines labelled, {hours:.2f} h in {args.corpus}")
