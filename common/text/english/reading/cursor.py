"""The input and the output of a reading rule: a place in a text, and how a stretch from there is spoken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, update_wrapper, wraps
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
_CAPITALS = re.compile("[A-Z]{4}")  # of what is shouted
_FORMULA = re.compile("[∫∑∏√∂∇∀∃∈⧸⇒⇔∝≡]")
_AROUND = 60  # characters: a search of all of a long text at each place would take quadratic time
_LONG = 100  # characters; no rule compares what was read before with anything so long
# A group in a pattern, or what only looks like one.
_GROUP = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)", re.DOTALL)
_NUMBER_OF_GROUP = re.compile(r"\\[1-9]")


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


class PlacedRule:
    """A rule that tells, before it is tried, where it does not apply."""

    def __init__(
        self, rule: Rule, at: Iterable[str] = (), behind: Iterable[str] = (), pattern: str | None = None
    ) -> None:
        """`at`: one of these is the character at the cursor. `behind`: one stands behind the word there.
        `pattern`: this matches there, or the rule does not apply.
        """
        update_wrapper(self, rule)
        self.rule, self.pattern = rule, pattern
        self._at, self._behind = frozenset(at), frozenset(behind)

    def __call__(self, cursor: Cursor) -> Reading | None:
        return self.rule(cursor) if self.is_for(cursor.char, cursor.behind_word) else None

    def is_for(self, char: str, behind_word: str) -> bool:
        return (not self._at or char in self._at) and (not self._behind or behind_word in self._behind)


def only(at: Iterable[str] = (), behind: Iterable[str] = ()) -> Callable[[Rule], PlacedRule]:
    """Keeps a rule to these characters at the cursor, or behind the word there."""
    return lambda rule: PlacedRule(rule, at, behind)


def form(pattern: str) -> Callable[[Callable[[Cursor, re.Match], str]], PlacedRule]:
    """Makes a rule of a function that says what the pattern matches; "" where the rule does not apply.

    The pattern is compiled when the rule is first tried: most texts try few of the rules.
    """

    def decorate(say_match: Callable[[Cursor, re.Match], str]) -> PlacedRule:
        @wraps(say_match)
        def rule(cursor: Cursor) -> Reading | None:
            match = _compiled(pattern).match(cursor.text, cursor.at)
            if not match or not (spoken := say_match(cursor, match)):
                return None
            own = cursor.possessive(match.end())  # "the F-16C's gun"
            return Reading(spoken + own, match.end() + len(own))

        has_numbers = _NUMBER_OF_GROUP.search(pattern)  # which would be others in the search for all
        return PlacedRule(rule, pattern=None if has_numbers else pattern)

    return decorate


_compiled = cache(re.compile)


class Rules:
    """Rules in the order in which they are tried. The last one always applies.

    A text is in few places what a rule is for, so those that cannot apply are passed over all at once: by the
    character at the cursor and the one behind its word (`only`), and by one search for all patterns (`form`).
    """

    def __init__(self, *rules: Rule) -> None:
        self.all = [rule if isinstance(rule, PlacedRule) else PlacedRule(rule) for rule in rules]
        self._tried = lru_cache(maxsize=4096)(self._find)

    def first_reading(self, cursor: Cursor) -> Reading:
        """What the first rule that applies makes of the text at the cursor."""
        match = self._patterns.match(cursor.text, cursor.at)
        assert match  # each of them may be absent
        for rule in self._tried(cursor.char, cursor.behind_word, match.groups()):
            if reading := rule(cursor):
                return reading
        raise AssertionError("the last rule always applies")

    def _find(self, char: str, behind_word: str, found: tuple[str | None, ...]) -> list[Rule]:
        """The rules to try at a character and before one, where these of the patterns are found."""
        patterns = iter(found)
        are_found = [rule.pattern is None or next(patterns) is not None for rule in self.all]
        pairs = zip(self.all, are_found, strict=True)
        return [one.rule for one, is_found in pairs if is_found and one.is_for(char, behind_word)]

    @cached_property
    def _patterns(self) -> re.Pattern[str]:
        """All patterns at one place; behind each that is found there is a group."""
        patterns = (_GROUP.sub(_without_number, rule.pattern) for rule in self.all if rule.pattern)
        return _compiled("".join(f"(?:(?=(?:{pattern})())|)" for pattern in patterns))


def _without_number(group: re.Match[str]) -> str:
    """A group in a pattern as one that has no number."""
    return "(?:" if group[0] == "(" else group[0]


def begin(text: str, is_british: bool = False) -> Cursor:
    """The cursor at the beginning of a sentence."""
    is_equation = "=" in text or "hat is " in text
    return Cursor(
        text,
        is_equation=is_equation or (not text.isascii() and _FORMULA.search(text) is not None),
        is_shouted=_CAPITALS.search(text) is not None and _is_shouted(_WHOLE_WORD.findall(text)),
        is_british=is_british,
    )


def _is_shouted(words: list[str]) -> bool:
    capitals = [word for word in words if word.isupper()]
    return len(words) > 2 and len(capitals) > 0.7 * len(words) and max(map(len, capitals)) > 3
