"""Sentences that LJSpeech lacks: words, short phrases, questions, lists, dialogue, numbers, names, letters.

LJSpeech is long, declarative prose without a digit. A voice trained on it alone reads "Yes?" or "B 52"
badly. These are drawn from the transcripts themselves, from CMUdict and from `templates.yaml`, seeded.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from melforge.common.text.english.reading.number_words import (
    cardinal,
    decimal,
    digits,
    ordinal,
    two_digits,
    year,
)
from melforge.common.text.english.reading.tables import MONTHS

_FILE = yaml.safe_load(Path(__file__).with_name("templates.yaml").read_text(encoding="utf-8"))


def _templates(text: str) -> list[str]:
    return [template for part in re.split(r"[|\n]", text) if (template := part.strip())]


WORDS: dict[str, list[str]] = {slot: words.split(", ") for slot, words in _FILE["words"].items()}
TEMPLATES = _templates(_FILE["written_out"])
# Kinds of sentences: how many of each, and their templates.
CONVERSATION: dict[str, tuple[int, list[str]]] = {
    kind: (part["count"], _templates(part["templates"])) for kind, part in _FILE["conversation"].items()
}
QUESTION_STARTS = ("did you know", "is it true", "who said", "why is it", "do you think", "are you sure")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def fill(template: str, rng: random.Random) -> str:
    """A sentence of a template: a word or number for each slot, and another where the slot comes again."""
    draw = rng.randint

    def time() -> str:
        minute = rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50))
        return f"{cardinal(draw(1, 12))} {two_digits(minute) if minute else ''} {rng.choice('ap')} m"

    fractions = ("one half", "one quarter", "three quarters", "two thirds", "one third")
    phone = ((200, 999), (200, 999), (1000, 9999))
    values = {
        "money": lambda: f"{cardinal(draw(2, 999))} dollars and {cardinal(draw(2, 99))} cents",
        "phone": lambda: ", ".join(digits(str(draw(*limits))) for limits in phone),
        "time": time,
        "date": lambda: f"{rng.choice(MONTHS)} {ordinal(draw(1, 28))}, {year(draw(1700, 2030))}",
        "year": lambda: year(draw(1100, 2030)),
        "big": lambda: cardinal(rng.choice((draw(100, 999), draw(1000, 99999), draw(10**5, 10**7)))),
        "small": lambda: cardinal(draw(2, 99)),
        "decimal": lambda: decimal(f"{draw(0, 99)}.{draw(1, 99)}"),
        "ordinal": lambda: ordinal(draw(3, 20)),
        "fraction": lambda: rng.choice(fractions),
        "acronym": lambda: " ".join(rng.sample(LETTERS, 3)),
    }
    slots = re.findall(r"\{(\w+)\}", template)
    unused = {slot: rng.sample(words, len(words)) for slot, words in WORDS.items() if slot in slots}
    filled: list[str] = []

    def word(match: re.Match[str]) -> str:
        slot = match.group(1)
        if slot == "same":
            return filled[0]
        filled.append(unused[slot].pop() if slot in unused else values[slot]())
        return filled[-1]

    text = re.sub(r"\{(\w+)\}", word, template)
    return re.sub(r"[A-Za-z]", lambda first: first.group().upper(), text, count=1)


def conversation(rng: random.Random) -> list[str]:
    """So many different sentences of each kind as `CONVERSATION` says."""
    sentences: dict[str, None] = {}
    for count, templates in CONVERSATION.values():
        aim = len(sentences) + count
        while len(sentences) < aim:
            sentences.setdefault(fill(rng.choice(templates), rng))
    return list(sentences)


def extra_sentences(transcripts: Sequence[str], dictionary: Sequence[str], seed: int = 7) -> list[str]:
    """About 9,650 sentences; `dictionary` is a list of words with known pronunciations."""
    rng = random.Random(seed)
    words = sorted({w for line in transcripts for w in re.findall(r"[A-Za-z']{2,}", line)})
    out = [word.capitalize() + rng.choice("...?!") for word in rng.sample(words, min(1100, len(words)))]
    for line in rng.sample(list(transcripts), min(1600, len(transcripts))):
        tokens = re.findall(r"[A-Za-z']+", line)
        count = rng.randint(2, 6)
        start = rng.randrange(max(1, len(tokens) - count))
        phrase = " ".join(tokens[start : start + count])
        out.append(phrase[:1].upper() + phrase[1:] + rng.choice("...?!"))
    for line in rng.sample(list(transcripts), min(700, len(transcripts))):
        tokens = re.findall(r"[A-Za-z']+", line)[: rng.randint(5, 14)]
        out.append(f"{rng.choice(QUESTION_STARTS)} that {' '.join(tokens)}?".capitalize())
    out += [fill(rng.choice(TEMPLATES), rng) for _ in range(1400)]
    for _ in range(1500):
        chosen = rng.sample(list(dictionary), rng.randint(3, 6))
        out.append(rng.choice((" ", ", ")).join(chosen).capitalize() + ".")
    out += [", ".join(rng.sample(LETTERS, rng.randint(2, 6))) + "." for _ in range(200)]
    return out + conversation(rng)
