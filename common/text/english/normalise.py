"""Written English to words: numbers, dates, money, abbreviations, symbols, addresses, emoji.

One pass from left to right. At each place the rules for the character there are tried in order; the first one
that applies says how its stretch of text is spoken. So every spoken word has its place in the written text.
"""

from typing import NamedTuple

from common.text.english.reading.addresses import address
from common.text.english.reading.characters import LeftOut, clean
from common.text.english.reading.cursor import begin, first_reading
from common.text.english.reading.formats import NUMBERS
from common.text.english.reading.signs import SIGNS
from common.text.english.reading.words import WORDS

_LETTERS = (address, *WORDS, *SIGNS)  # not every letter begins a word: "ⁿ"


class Span(NamedTuple):
    """Words and marks as spoken, and the part of the written text that they stand for."""

    text: str
    start: int
    end: int


def normalise(text: str) -> tuple[list[Span], list[LeftOut]]:
    """A sentence in words and marks, and what of it is not spoken.

    Words in capitals are spelled; a word's "-" joins it to the next.
    """
    characters, positions, left_out = clean(text)
    spans, unread = _read(characters)
    if positions is not None:
        spans = [Span(s.text, positions[s.start], positions[s.end - 1] + 1) for s in spans]
        unread = [LeftOut(o.symbol, positions[o.position], o.kind) for o in unread]
    return spans, left_out + unread


def _read(text: str) -> tuple[list[Span], list[LeftOut]]:
    spans: list[Span] = []
    left_out: list[LeftOut] = []
    cursor = begin(text)
    while char := cursor.char:
        if char.isspace():
            cursor.move(cursor.at + 1)
            continue
        rules = NUMBERS if char.isdecimal() else _LETTERS if char.isalpha() else SIGNS
        reading = first_reading(rules, cursor)
        if reading.spoken:
            spans.append(Span(reading.spoken, cursor.at, reading.end))
        left_out += reading.left_out
        cursor.advance(reading)
    return spans, left_out
