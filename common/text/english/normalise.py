"""Written English to words: numbers, dates, money, abbreviations, symbols, addresses, emoji.

One pass from left to right. At each place the rules for the character there are tried in turn; the first that
fits says how its stretch of text is spoken. So every spoken word knows where it was written.
"""

from __future__ import annotations

from common.text.english.reading.addresses import Addresses
from common.text.english.reading.amounts import Amounts
from common.text.english.reading.capitals import Capitals
from common.text.english.reading.characters import LeftOut, clean
from common.text.english.reading.cursor import Piece
from common.text.english.reading.formats import SHORT_FRACTION, Formats
from common.text.english.reading.signs import Signs
from common.text.english.reading.words import Words


def normalise(text: str) -> tuple[list[Piece], list[LeftOut]]:
    """A sentence in words and marks. Words in capitals are spelled; a word's "-" joins it to the next."""
    characters, positions, left_out = clean(text)
    reader = _Reader(characters)
    reader.run()
    if positions is None:
        return reader.pieces, left_out + reader.left_out
    pieces = [Piece(p.text, positions[p.start], positions[p.end - 1] + 1) for p in reader.pieces]
    return pieces, left_out + [LeftOut(o.symbol, positions[o.position], o.kind) for o in reader.left_out]


class _Reader(Formats, Amounts, Words, Capitals, Addresses, Signs):
    """All the rules, and which of them are tried at a character."""

    def run(self) -> None:
        text, length = self.text, len(self.text)
        while self.at < length:
            char = text[self.at]
            if char.isspace():
                self.at += 1
                continue
            start = self.at
            is_point = char == "." and text[start + 1 : start + 2].isdecimal() and not self._touches_word()
            if char.isdecimal() or is_point:
                end = self._number(start)
            elif char.isalpha():
                end = self._word(start)
            elif SHORT_FRACTION.match(text, start):
                end = self._number(start)
            else:
                end = self._symbol(start, char)
            assert end > start
            self.earlier, self.previous = self.previous, text[start:end] if end - start < 100 else ""
            self.at = end
