"""A lexicon: words, phrases and patterns, and what is said where they are written.

A text is walked once, word by word, and at each place the longest entry counts. The files are read by
`melforge.common.config.lexicon`.
"""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from melforge.common.errors import InputError
from melforge.common.text import SaidAs
from melforge.common.text.english.homographs.network import load_network
from melforge.common.text.english.word_parts import plural

LONGEST_KEY = 100  # characters, also of what a pattern matches: they keep the work linear

_TOKEN = re.compile(r"\s+|[\w\u0300-\u036f]+|[^\w\s]")
_CONTEXT = re.compile(r"[A-Za-z']+|[.,;:?!]")
_CONTEXT_LENGTH = 150  # characters on each side that tell a part of speech
_PHONEMES = re.compile(r"\{[A-Z][A-Z012\s]*\}")
_LEXEMES = ""  # the key of a node's lexemes: no token is empty
_TAKEN = "\0"  # in place of each character that others say
_ALIKE = str.maketrans("‘’‐‑", "''--")


@dataclass(frozen=True)
class Lexeme:
    """An entry: what is said where its key is written, as far as its conditions allow."""

    key: str
    spoken: str  # text with phonemes in braces; of a pattern it may have \1 for the first group
    place: str = ""  # file and line
    case: bool = False  # written as the key is, with its capitals
    part_of_speech: str = ""
    pattern: re.Pattern[str] | None = None

    def counts_before(self, other: Lexeme) -> bool:
        """Whether an entry of the same words, tried after this one, never counts and says something else."""
        is_same_case = not self.case or (other.case and _plain(self.key) == _plain(other.key))
        is_same_part = self.part_of_speech in ("", other.part_of_speech)
        return is_same_case and is_same_part and self.spoken != other.spoken

    @property
    def source(self) -> str:
        """Its place and conditions."""
        part = f"as {self.part_of_speech}" if self.part_of_speech else ""
        case = f"only {self.key}" if self.case and self.pattern is None else ""
        return ", ".join(filter(None, (self.place, part, case)))


class Found(NamedTuple):
    """An entry in a text."""

    start: int
    end: int
    spoken: str
    lexeme: Lexeme


class Lexicon:
    """The lexemes of a file, or of a request: an `OwnWords`."""

    most: int | None = None  # characters that it may say
    said = 0  # of them

    def __init__(self, lexemes: Iterable[Lexeme]):
        self.words: dict[str, Any] = {}  # a tree: token -> what may follow it
        self.patterns: list[tuple[re.Pattern[str], Lexeme]] = []
        # What has more conditions is tried first.
        for lexeme in sorted(lexemes, key=lambda one: (not one.part_of_speech, not one.case)):
            if lexeme.pattern is not None:
                self.patterns.append((lexeme.pattern, lexeme))
                continue
            node = self.words
            for token in _keys(_TOKEN.findall(lexeme.key)):
                node = node.setdefault(token, {})
            alike = node.setdefault(_LEXEMES, [])
            if first := next((one for one in alike if one.counts_before(lexeme)), None):
                why = f"{first.key!r} has an entry, and keys are in any case"
                how = "case: true and part_of_speech tell entries apart"
                raise InputError(f"{lexeme.place}: {lexeme.key!r} can never count: {why}; {how}")
            alike.append(lexeme)
        # Where none of them matches, one call says so.
        each = (f"(?{'i' * (one.flags & re.I > 0)}:{one.pattern})" for one, _ in self.patterns)
        self.any_pattern = re.compile("|".join(each))

    def limited(self, most: int) -> Lexicon:
        """The same for one text, in which it may say so many characters; InputErrors are for more."""
        lexicon = copy.copy(self)
        lexicon.most, lexicon.said = most, 0
        return lexicon

    def add_to(self, said: Sequence[SaidAs], text: str) -> Sequence[SaidAs]:
        """`said`, and between these parts what the lexicon has for the text, in order."""
        entries = [SaidAs(one.start, one.end, one.spoken) for one in self.find(text, said)]
        if self.most is not None:
            self.said += sum(len(one.spoken) for one in entries)
            if self.said > self.most:
                raise InputError(f"lexicon: it says more than {self.most} characters in this text")
        return sorted([*said, *entries], key=lambda one: one.start) if entries else said

    def find(self, text: str, said: Sequence[SaidAs] = ()) -> Iterator[Found]:
        """The entries in a text, outside of `said` and of phonemes; an entry's 's is part of it."""
        tokens = _Tokens(text, said)
        keys = enumerate(tokens.keys)
        places = [at for at, key in keys if (key.strip() if self.patterns else key in self.words)]
        free = 0
        for at in places:
            found = list(self._found(tokens, at)) if at >= free else []
            if found:
                longest = max(found, key=lambda one: one.end)
                is_own = longest.lexeme.pattern is None and tokens.has_possessive(longest.end)
                free = longest.end + 2 if is_own else longest.end
                spoken = possessive(longest.spoken) if is_own else longest.spoken
                yield Found(tokens.starts[at], tokens.starts[free], spoken, longest.lexeme)

    def entries(self, word: str) -> list[tuple[str, str]]:
        """(what is said for a word or phrase, and where that stands, with its conditions) of each entry."""
        node: dict[str, Any] | None = self.words
        for token in _keys(_TOKEN.findall(word)):
            node = node.get(token) if node else None
        found = [(one.spoken, one.source) for one in (node or {}).get(_LEXEMES, ())]
        matches = ((pattern.fullmatch(word[:LONGEST_KEY]), one) for pattern, one in self.patterns)
        return [*found, *((match.expand(one.spoken), one.source) for match, one in matches if match)]

    def _found(self, tokens: _Tokens, at: int) -> Iterator[Found]:
        """The lexemes whose keys are written at a token; start and end are numbers of tokens."""
        node, end = self.words, at
        while (node := node.get(tokens.keys[end])) is not None:
            end += 1
            for lexeme in node.get(_LEXEMES, ()):
                if tokens.allow(lexeme, at, end):
                    yield Found(at, end, lexeme.spoken, lexeme)
                    break
        start = tokens.starts[at]
        if not self.patterns or not self.any_pattern.match(tokens.open, start, start + LONGEST_KEY):
            return
        for pattern, lexeme in self.patterns:
            match = pattern.match(tokens.open, start, start + LONGEST_KEY)
            end = tokens.number_of.get(match.end(), 0) if match else 0
            if match and end > at and _TAKEN not in match[0] and tokens.allow(lexeme, at, end):
                yield Found(at, end, match.expand(lexeme.spoken), lexeme)


class _Tokens:
    """The words, blanks and signs of a text."""

    def __init__(self, text: str, said: Sequence[SaidAs]):
        parts, end = [], 0
        for one in said:
            parts += text[end : one.start], _TAKEN * (one.end - one.start)
            end = one.end
        self.text = text
        self.open = "".join([*parts, text[end:]]) if said else text  # to the lexicon
        if "{" in text:
            self.open = _PHONEMES.sub(lambda braces: _TAKEN * len(braces[0]), self.open)
        written = _TOKEN.findall(self.open)
        self.keys = [*_keys(written), "\n"]  # which no key is
        self.starts = [0, *accumulate(map(len, written))]
        self._number_of: dict[int, int] = {}

    @property
    def number_of(self) -> dict[int, int]:
        """The token that begins at an offset."""
        if not self._number_of:
            self._number_of = {start: number for number, start in enumerate(self.starts)}
        return self._number_of

    def has_possessive(self, at: int) -> bool:
        return self.keys[at : at + 2] == ["'", "s"]

    def allow(self, lexeme: Lexeme, at: int, end: int) -> bool:
        """Whether a lexeme's conditions hold where its key is written."""
        start, stop = self.starts[at], self.starts[end]
        if lexeme.case and lexeme.pattern is None and _plain(self.text[start:stop]) != _plain(lexeme.key):
            return False
        if not lexeme.part_of_speech:
            return True
        before = _CONTEXT.findall(self.text[max(0, start - _CONTEXT_LENGTH) : start])
        behind = _CONTEXT.findall(self.text[stop : stop + _CONTEXT_LENGTH])
        sentence = [*before, self.text[start:stop], *behind]
        part, following = (load_network().part_of_speech(sentence, len(before) + i) for i in (0, 1))
        is_verb = part.startswith("VB")
        is_adjective = part == "JJ" or (not is_verb and following.startswith("NN"))  # where either fits
        return {"verb": is_verb, "noun": not is_verb, "adjective": is_adjective}[lexeme.part_of_speech]


def _keys(tokens: Iterable[str]) -> list[str]:
    """As tokens are compared: in lower case, with all blanks and apostrophes alike."""
    return [
        " " if token.isspace() else token.lower() if token.isascii() else _plain(token).lower()
        for token in tokens
    ]


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text.translate(_ALIKE)).split()) or text


def possessive(spoken: str) -> str:
    if not spoken.endswith("}"):
        return f"{spoken}'s"
    phones = tuple(spoken[:-1].split())
    return f"{' '.join((spoken[:-1], *plural(phones)))}}}"
