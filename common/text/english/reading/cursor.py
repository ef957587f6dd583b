"""The input and the output of a reading rule: a place in a text, and how a stretch from there is spoken."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import NamedTuple

# Every pattern of this package is tried at one place only and never looks far beyond what it reads: a long
# text costs time in proportion to its length.
FILL = "\u2060"  # the word joiner: invisible, and nothing is lost with it
LETTER = r"[^\W\d_²³¹¼-¾⁰-ⁿ₀-₉⅐-↏①-⓿]"
N = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,2}(?:,\d\d){1,4},\d{3}(?!\d)|\d+)(?:\.\d+)?|\.\d+"
NUMBER = re.compile(N)
WORD = re.compile(rf"{LETTER}+(?:'{LETTER}+)*")
_NEXT = re.compile(rf"\s*(\d+|{LETTER}+|[^\w\s])?")
_WHOLE_WORD = re.compile(r"(?<![\w-])[A-Za-z]{2,}(?![\w-])")  # no code: "AB-12"
_FORMULA = re.compile("[∫∑∏√∂∇∀∃∈⧸⇒⇔∝≡]")
_AROUND = 60  # characters: a search of all of a long text at each place would take quadratic time
_LONG = 100  # characters; no rule compares what was read before with anything so long


class LeftOut(NamedTuple):
    """Something that is not spoken as written. The frontend reports each kind once."""

    symbol: str
    position: int
    kind: str


class Reading(NamedTuple):
    """How the text from the cursor to `end` is spoken."""

    spoken: str  # words and marks; "" for what is silent
    end: int
    left_out: tuple[LeftOut, ...] = ()
    phones: str = ""  # of a single word that its letters without accents would not tell


@dataclass
class Cursor:
    """A place in a text and its context. A rule only reads it."""

    text: str
    at: int = 0
    previous: str = ""  # the last word, number or mark as written
    earlier: str = ""  # the one before
    is_argument: bool = False  # inside the brackets of f(x)
    is_equation: bool = False  # "x" means times
    is_shouted: bool = False  # most words are in capitals
    is_british: bool = False
    char: str = field(init=False)  # the character at the cursor, "" at the end
    word: str = field(init=False)  # the word that begins at the cursor, "" if none does
    word_end: int = field(init=False)
    behind_word: str = field(init=False)  # the character behind that word, "" if there is none

    def __post_init__(self) -> None:
        self.move(self.at)

    def move(self, at: int) -> None:
        """Puts the cursor elsewhere, with what was read before unchanged."""
        self.at, self.char = at, self.text[at : at + 1]
        match = WORD.match(self.text, at) if self.char.isalpha() else None
        self.word, self.word_end = (match[0], match.end()) if match else ("", at)
        self.behind_word = self.text[self.word_end : self.word_end + 1] if match else ""

    def advance(self, reading: Reading) -> None:
        """Moves the cursor behind what was read and a blank behind that."""
        if self.char == ")":
            self.is_argument = False
        elif self.char == "(" and reading.spoken == "of":
            self.is_argument = True
        is_short = reading.end - self.at < _LONG
        self.earlier, self.previous = self.previous, self.text[self.at : reading.end] if is_short else ""
        self.move(reading.end + self.text.startswith(" ", reading.end))

    def next(self, at: int) -> str:
        """The word, number or sign that follows the index `at`, "" at the end."""
        match = _NEXT.match(self.text, at)
        return match[1] or "" if match else ""

    def last_stop(self, end: int) -> str:
        """The full stop of an abbreviation that ends at `end`: spoken where it also ends the sentence."""
        return "" if self.text[end : end + 40].strip("\"') ]}") else "."

    def is_near(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern is found in what stands around the cursor."""
        return pattern.search(self.text[max(0, self.at - _AROUND) : self.at + _AROUND]) is not None

    def possessive(self, end: int) -> str:
        """The "'s" at the index `end`, if there is one."""
        is_own = self.text.startswith("'s", end) and not self.text[end + 2 : end + 3].isalnum()
        return "'s" if is_own else ""

    def leave_out(self, end: int, kind: str = "") -> Reading:
        """Nothing is said up to `end`, and that is reported."""
        written = self.text[self.at : end]
        return Reading("", end, (LeftOut(written[:40], self.at, kind or written),))

    @property
    def touches_word(self) -> bool:
        return self.at > 0 and self.text[self.at - 1].isalnum()

    @property
    def is_after_blank(self) -> bool:
        return self.at == 0 or self.text[self.at - 1] in " \t\n\r\"'`([{<—–=,;:"


Rule = Callable[[Cursor], Reading | None]  # None: the rule does not apply at the cursor


def first_reading(rules: tuple[Rule, ...], cursor: Cursor) -> Reading:
    """What the first rule that applies makes of the text at the cursor. The last rule always applies."""
    for rule in rules:  # a generator would take twice as long
        if reading := rule(cursor):
            return reading
    raise AssertionError("the last rule always applies")


def begin(text: str, is_british: bool = False) -> Cursor:
    """The cursor at the beginning of a sentence."""
    words = _WHOLE_WORD.findall(text)
    capitals = [word for word in words if word.isupper()]
    return Cursor(
        text,
        is_equation="=" in text or "hat is " in text or _FORMULA.search(text) is not None,
        is_shouted=len(words) > 2 and len(capitals) > 0.7 * len(words) and max(map(len, capitals)) > 3,
        is_british=is_british,
    )


def form(pattern: str) -> Callable[[Callable[[Cursor, re.Match], str]], Rule]:
    """Makes a rule of a function that says what the pattern matches; "" where the rule does not apply.

    The pattern is compiled when the rule is first tried: most texts try few of the rules.
    """

    @cache
    def compiled() -> re.Pattern:
        return re.compile(pattern)

    def decorate(say_match: Callable[[Cursor, re.Match], str]) -> Rule:
        @wraps(say_match)
        def rule(cursor: Cursor) -> Reading | None:
            match = compiled().match(cursor.text, cursor.at)
            spoken = say_match(cursor, match) if match else ""
            return Reading(spoken, match.end()) if spoken else None

        return rule

    return decorate
