"""The frontend of the shipped voice: any English text to phonemes in the published symbol set.

Unlike the published frontends it makes phonemes of every word. It reports what it can't speak.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from melforge.common.errors import InputError, unknown
from melforge.common.text import (
    ACCENTS,
    Analysis,
    OwnWords,
    SaidAs,
    Unspoken,
    Utterance,
    masked,
    require_in_order,
)
from melforge.common.text.english import pronounce
from melforge.common.text.english.british import load_british
from melforge.common.text.english.layout import plain_text
from melforge.common.text.english.normalise import Span, normalise
from melforge.common.text.english.pronounce import Phones
from melforge.common.text.split import CLAUSE_PAUSE, pause_between, split_sentences
from melforge.common.text.symbols import get_symbols

SYMBOLS = "english_basic"
MAX_SYMBOLS = 220  # an utterance of about fifteen seconds

LONGEST_WORD = 60  # letters: reading a longer one takes time, and guesses nonsense
_TOKEN = re.compile(rf"\{{([A-Z012 ]+)\}}|[A-Za-z']{{1,{LONGEST_WORD}}}-?|[.,;:?!-]")
_NO_WORD = re.compile(rf"[A-Za-z]{{{LONGEST_WORD + 1},}}")
_DRAWN_OUT = re.compile(r"([A-Za-z])\1{2,}")  # "sooo" is a word, whatever its length
SPELT_TOGETHER = 20  # letters
_STRONGEST_FIRST = "?!.;:,-"
_MAY_END = ".?!,;:"


class _Token(NamedTuple):
    """A word or mark of the normalised text and the part of the sentence that it stands for."""

    text: str
    start: int
    end: int
    phones: Phones = ()

    @property
    def is_mark(self) -> bool:
        return not self.phones

    @property
    def size(self) -> int:
        return 1 + len(self.phones)


class Pronunciation(Protocol):
    """How words are said: `pronounce` is one."""

    def read(self, tokens: Sequence[str], given: Sequence[Phones] = ()) -> list[Phones]: ...

    def of_word(self, word: str) -> Phones: ...

    def readings(self, written: str) -> list[tuple[Phones, str]]: ...


class EnglishFrontend:
    """Text to utterances. Each begins with a space, which is the leading silence, and ends in a mark."""

    name = "english"
    symbol_set = SYMBOLS
    is_british = False
    own_words: Sequence[OwnWords] = ()
    reads_addresses = False

    def __init__(self, max_symbols: int = MAX_SYMBOLS, accents: dict[str, str] | None = None) -> None:
        """`max_symbols`: longer sentences are cut into clauses, symbols an utterance.

        `accents` of speakers, en-US or en-GB, where a voice has both: its model knows the symbols of both.
        """
        if max_symbols < 8:
            raise InputError(f"max_symbols must be at least 8, not {max_symbols}")
        if unknown_ones := sorted(set((accents or {}).values()) - ACCENTS.keys()):
            raise InputError(unknown("accent", unknown_ones[0], ACCENTS))
        self.accents = accents or {}
        self.symbols = get_symbols(BritishFrontend.symbol_set if accents else self.symbol_set)
        self.max_symbols = max_symbols
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        self._phone_ids = {symbol[1:]: i for symbol, i in self._ids.items() if symbol[0] == "@"}
        self._may_end = frozenset(self._ids[mark] for mark in _MAY_END)

    @property
    def pronunciation(self) -> Pronunciation:
        return pronounce

    def of_speaker(self, name: str) -> EnglishFrontend:
        """The same as this speaker reads."""
        accent = ACCENTS.get(self.accents.get(name, ""), self.name)
        if accent == self.name:
            return self
        made = (BritishFrontend if accent == BritishFrontend.name else EnglishFrontend)(
            self.max_symbols, self.accents
        )
        made.own_words = self.own_words
        return made

    def __call__(self, text: str, said: Sequence[SaidAs] = ()) -> Analysis:
        return Analysis.joined(self.sentences(text, said))

    def sentences(self, text: str, said: Sequence[SaidAs] = ()) -> Iterator[Analysis]:
        """The analysis of each sentence; what cannot be spoken is in that of the first one that has it."""
        require_in_order(said, text)
        plain, layout = plain_text(text, self.reads_addresses)
        for own in self.own_words:
            said = own.add_to(said, plain)
        sentences = split_sentences(masked(plain, said)) or [("", 0)][: len(layout)]
        layout.reverse()
        reported: set[str] = set()
        given = deque(said)
        for number, (piece, offset) in enumerate(sentences):
            end = offset + len(piece)
            spans, left_out = normalise(plain[offset:end], _within(given, offset, end), self.is_british)
            is_last = number + 1 == len(sentences)
            following = len(text) if is_last else sentences[number + 1][1]
            left_out = [item._replace(position=offset + item.position) for item in left_out]
            while layout and layout[-1].position < following:
                left_out.append(layout.pop())
            written = text[offset:end]
            pause = 0.0 if is_last else pause_between(plain, end, following)
            utterances = self._utterances(written, offset, self._tokens(spans), pause)
            unspoken = []
            for item in sorted(left_out, key=lambda item: item.position):
                if item.kind not in reported:
                    reported.add(item.kind)
                    unspoken.append(Unspoken(item.symbol, item.position, written))
            yield Analysis(tuple(utterances), tuple(unspoken))

    def _tokens(self, spans: Iterable[Span]) -> list[_Token]:
        """Words with phones and single marks between them; none before the first word."""
        tokens: list[_Token | Span] = []
        for span in spans:
            text = span.text
            if len(text) > LONGEST_WORD:
                text = _NO_WORD.sub(_in_capitals, text)
            elif text.isascii() and text.isalpha():
                tokens.append(span)  # as most are
                continue
            for match in _TOKEN.finditer(text):
                word = match[0]
                if word not in _STRONGEST_FIRST:
                    phones = tuple(match[1].split()) if match[1] else span.phones
                    tokens.append(_Token(word, span.start, span.end, phones))
                elif tokens and tokens[-1].text in _STRONGEST_FIRST:
                    stronger = min(tokens[-1].text, word, key=_STRONGEST_FIRST.index)
                    if stronger != tokens[-1].text:
                        tokens[-1] = _Token(word, span.start, span.end, span.phones)
                elif tokens:
                    tokens.append(_Token(word, span.start, span.end, span.phones))
        readings = self.pronunciation.read(
            [token.text for token in tokens], [token.phones for token in tokens]
        )
        return [
            _Token(token.text, token.start, token.end, phones)
            for token, phones in zip(tokens, readings, strict=True)
            if phones or token.text in _STRONGEST_FIRST
        ]

    def _utterances(self, sentence: str, offset: int, tokens: list[_Token], pause: float) -> list[Utterance]:
        parts = self._parts(tokens)
        utterances = []
        for number, part in enumerate(parts):
            start = 0 if number == 0 else part[0].start
            end = len(sentence) if number + 1 == len(parts) else max(parts[number + 1][0].start, part[-1].end)
            words = _shown(part)
            ids, places = self._encoded(part, words, offset)
            if ids[-1] == self._ids["-"]:
                ids.pop()
            if ids[-1] not in self._may_end:
                ids.append(self._ids["." if number + 1 == len(parts) else ","])
            end_place = offset + part[-1].end
            places += [(end_place, end_place)] * (len(ids) - len(places))  # a mark that nobody wrote
            symbols = tuple([self.symbols[i] for i in ids])  # the same strings for all texts
            after = pause if number + 1 == len(parts) else CLAUSE_PAUSE
            utterances.append(
                Utterance(
                    sentence[start:end].strip(),
                    words,
                    symbols,
                    np.array(ids, dtype=np.int64),
                    after,
                    tuple(places[: len(ids)]),
                )
            )
        return utterances

    def _encoded(
        self, tokens: list[_Token], words: str, offset: int
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of the tokens, which are these words, and where what each speaks stands."""
        ids: list[int] = []
        places: list[tuple[int, int]] = []
        blank, of_phone = self._ids[" "], self._phone_ids.__getitem__
        try:
            for token in tokens:
                place = (offset + token.start, offset + token.end)
                if token.phones:
                    ids.append(blank)
                    ids.extend(map(of_phone, token.phones))
                    places += [place] * (1 + len(token.phones))
                else:
                    ids.append(self._ids[token.text])
                    places.append(place)
        except KeyError as error:
            raise InputError(
                f"phoneme {error.args[0]} in {words!r}: the text frontend {self.name} has no British "
                "vowels; give American ones, or a voice with the frontend english-gb"
            ) from None
        return ids, places

    def _parts(self, tokens: list[_Token]) -> list[list[_Token]]:
        """The tokens of a sentence in parts that fit, about equally long, cut behind marks if possible."""
        limit = self.max_symbols - 1  # an end mark may be added
        left = _size(tokens)
        if left > limit:
            tokens = [piece for token in tokens for piece in _cut_word(token, limit)]
            left = _size(tokens)
        parts, start = [], 0
        while left > limit:
            parts.append(_first_part(tokens, start, limit, left / -(-left // limit)))
            start += len(parts[-1])
            left -= _size(parts[-1])
        parts.append(tokens[start:])
        return [part for part in parts if any(token.phones for token in part)]


class BritishFrontend(EnglishFrontend):
    """The same in British English: its reading and words, and vowels of its own behind the symbols."""

    name = "english-gb"
    symbol_set = "english_accents"
    is_british = True

    @property
    def pronunciation(self) -> Pronunciation:
        return load_british()


def _within(given: deque[SaidAs], start: int, end: int) -> list[SaidAs]:
    """Those that begin before `end`, taken out of `given`, with their places from `start` on."""
    inside = []
    while given and given[0].start < end:
        one = given.popleft()
        inside.append(SaidAs(one.start - start, one.end - start, one.spoken))
    return inside


def _in_capitals(letters: re.Match[str]) -> str:
    """Letters that make no word as they are spelt: in capitals."""
    run = letters[0].upper()
    if not _NO_WORD.fullmatch(_DRAWN_OUT.sub(r"\1\1", run)):
        return letters[0]
    return " ".join(run[start : start + SPELT_TOGETHER] for start in range(0, len(run), SPELT_TOGETHER))


def _size(tokens: Sequence[_Token]) -> int:
    """How many symbols they take."""
    return len(tokens) + sum([len(token.phones) for token in tokens])


def _shown(tokens: Sequence[_Token]) -> str:
    """How tokens appear in the normalised text."""
    shown = ""
    for token in tokens:
        text = token.text
        if not token.phones:
            shown += " -" if text == "-" else text
            continue
        if len(text) == 2 and text[1] == "-":
            text = text[0]
        is_tied = not shown or (shown[-1] == "-" and shown[-2:-1] != " ")
        shown += text if is_tied else f" {text}"
    return shown


def _cut_word(token: _Token, limit: int) -> list[_Token]:
    if token.size <= limit:
        return [token]
    step = limit - 1
    return [
        _Token(token.text if i == 0 else "", token.start, token.end, token.phones[i : i + step])
        for i in range(0, len(token.phones), step)
    ]


def _first_part(tokens: list[_Token], start: int, limit: int, target: float) -> list[_Token]:
    """The first tokens from `start` on that make a good part: near `target` symbols, at most `limit`."""
    size, best, best_cost = 0, start + 1, float("inf")
    for index in range(start, len(tokens)):
        size += tokens[index].size
        if size > limit:
            break
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if following is not None and following.is_mark:
            continue
        strength = {"": 0.6, "-": 0.1, ",": 0.1}.get(tokens[index].text if tokens[index].is_mark else "", 0.0)
        cost = abs(size - target) / target + strength
        if cost < best_cost:
            best, best_cost = index + 1, cost
    return tokens[start:best]
