"""Makes a training corpus: the teacher or one of our voices reads transcripts."""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.hazel.prepare")

import os
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError
from melforge.common.text.cmudict import load_cmudict
from melforge.common.training.corpus.dataset import HOP, RATE
from recipes.corpus import (
    NamedText,
    Reader,
    aligned_reader,
    one_line_a_sentence,
    read_transcripts,
    write_corpus,
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


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m recipes.hazel.prepare", description=__doc__)
    option = parser.add_argument
    option("--corpus", type=Path, required=True, help="folder to write, in LJSpeech's format")
    option("--transcripts", type=Path, required=True, help="name|text lines to read")
    option("--extra", action="store_true", help="add words, questions, dialogue, lists, numbers, names")
    option("--voice", help="a voice whose FastPitch reads them, instead of the teacher")
    what = "keep the teacher's harmonic sources, for HiFi-GAN's source"
    option("--sources", action="store_true", help=what)
    option("--limit", type=int, help="use the first N lines only")
    option("--workers", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    args = parser.parse_args(argv)

    if args.voice and args.sources:
        raise InputError("--sources are the teacher's: leave --voice out")
    lines = read_transcripts(args.transcripts)
    if args.extra:
        words = [w.lower() for w in load_cmudict().words() if w.isalpha()]
        extra = extra_sentences([line.text for line in lines], words)
        lines += [NamedText(f"extra-{i:05d}", text) for i, text in enumerate(extra)]
    lines = one_line_a_sentence(lines)
    random.Random(0).shuffle(lines)  # the recipes validate on the last ones
    if args.limit:
        lines = lines[:: max(1, len(lines) // args.limit)][: args.limit]
    if args.voice:
        VoiceReader(args.voice)  # a voice that cannot is said here, not in each process
        reader, packages = partial(voice_reader, voice=args.voice), ()
    else:
        reader, packages = partial(teacher_reader, sources=args.sources), ("pocketsphinx", "hibari")
    labels = write_corpus(args.corpus, lines, reader, args.workers, packages)
    hours = labels.frames.sum() * HOP / RATE / 3600
    print(f"{len(labels.names)} of {len(lines)} lines labelled, {hours:.2f} h in {args.corpus}")
