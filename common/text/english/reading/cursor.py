"""What all reading rules share: the text, the place in it, and what has been said so far."""

from __future__ import annotations

import re
from dataclasses import dataclass

from common.text.english.reading import number_words as say
from common.text.english.reading.characters import LeftOut

# Every pattern of this package is tried at one place only and never looks far beyond what it reads: a long
# text costs time in proportion to its length.
LETTER = r"[^\W\d_²³¹¼-¾⁰-ⁿ₀-₉⅐-↏①-⓿]"
N = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
NUMBER = re.compile(N)
WORD = re.compile(rf"{LETTER}+(?:'{LETTER}+)*")
_NEXT = re.compile(rf"\s*(\d+|{LETTER}+|[^\w\s])?")
PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True)
class Piece:
    """Words and marks as spoken, and the part of the text that they stand for."""

    text: str
    start: int
    end: int


class Cursor:
    """Reads a text from left to right. A rule returns the end of what it read, 0 if it does not apply."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[Piece] = []
        self.left_out: list[LeftOut] = []
        self.previous = ""  # the last word, number or mark as written
        self.earlier = ""  # the one before
        self.is_argument = False  # inside the brackets of f(x)
        self.at = 0
        words = re.findall(r"[A-Za-z]{2,}", text)
        capitals = sum(word.isupper() for word in words)
        self.is_sum = "=" in text or "hat is " in text  # x means times
        self.is_shouted = len(words) > 2 and capitals > 0.7 * len(words)

    def _emit(self, spoken: str, end: int) -> int:
        """Says what stands for the text from here to `end`."""
        if spoken:
            self.pieces.append(Piece(spoken, self.at, end))
        return end

    def _leave_out(self, end: int, kind: str = "") -> int:
        """Reports what is not said."""
        symbol = self.text[self.at : end]
        self.left_out.append(LeftOut(symbol[:40], self.at, kind or symbol))
        return end

    def _next(self, at: int) -> str:
        """The word, number or sign that follows."""
        return _NEXT.match(self.text, at)[1] or ""

    def _last_stop(self, end: int) -> str:
        """The full stop of an abbreviation is spoken where it also ends the sentence."""
        return "" if self.text[end : end + 40].strip("\"') ]}") else "."

    def _possessive(self, end: int) -> str:
        """The "'s" that stands here, if there is one."""
        is_own = self.text.startswith("'s", end) and not self.text[end + 2 : end + 3].isalnum()
        return "'s" if is_own else ""

    def _touches_word(self) -> bool:
        return self.at > 0 and self.text[self.at - 1].isalnum()

    def _after_blank(self) -> bool:
        return self.at == 0 or self.text[self.at - 1] in " \t\n\r\"'([{<—–=,;:"


def short_number(number: str) -> str:
    """Digits inside a name: "150" is one fifty, "3090" thirty ninety."""
    if number[0] == "0" or len(number) > 4:
        return say.digits(number)
    if len(number) < 3 or number.endswith("00"):
        return say.cardinal(int(number))
    head, tail = int(number[:-2]), int(number[-2:])
    return f"{say.cardinal(head)} {say.two_digits(tail)}"


def letter_name(letters: str) -> str:
    """A single letter "A" is marked, lest it be read as the article."""
    return f"{letters}-" if letters in ("A", "I") else letters
