"""Text frontends: written text in, the symbol ids of an acoustic model out. Here what they give."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from melforge.common.errors import InputError
from melforge.common.text.style import Style

# The frontend of each accent that speakers may have.
ACCENTS = {"en-US": "english", "en-GB": "english-gb"}
MOST_TOLD = 3  # of what is not spoken, in a sentence


@dataclass(frozen=True)
class SaidAs:
    """How a part of a text is said, whatever stands there: SSML's sub and phoneme, an entry of a lexicon."""

    start: int  # indices into the text; nothing else is read across them
    end: int
    spoken: str  # text, which may hold phonemes in braces (`phonemes.in_braces`); "" is silent


class OwnWords(Protocol):
    """What knows how parts of any text are said: a lexicon."""

    def entries(self, word: str) -> Iterable[tuple[str, str]]:
        """(what is said for a word, and where that stands) of each entry for it."""
        ...

    def add_to(self, said: Sequence[SaidAs], text: str) -> Sequence[SaidAs]:
        """`said`, and between these parts its own, in order."""
        ...


def require_in_order(said: Sequence[SaidAs], text: str) -> None:
    """An InputError for parts that overlap, are empty, out of order, or not in the text."""
    end = 0
    for one in said:
        if not end <= one.start < one.end <= len(text):
            raise InputError(
                f"characters {one.start} to {one.end} of the text cannot be said as {one.spoken[:40]!r}: "
                f"such parts must be in order, and between {end} and {len(text)}"
            )
        end = one.end


def masked(text: str, said: Iterable[SaidAs]) -> str:
    """The text, as long as it was, with a word in place of each of these parts: no sentence ends in one."""
    parts, end = [], 0
    for one in said:
        first = "x" if text[one.start].islower() else "X"
        parts += text[end : one.start], first + "x" * (one.end - one.start - 1)
        end = one.end
    return "".join([*parts, text[end:]]) if parts else text


@dataclass(frozen=True, eq=False)
class Utterance:
    """What one call of an acoustic model speaks: a sentence, or a part of a long one."""

    text: str  # as written
    normalised: str  # as spoken, in words; phonemes in braces where the frontend makes them
    symbols: tuple[str, ...]
    ids: np.ndarray  # int64 [T_text]
    pause: float  # seconds of silence that follow; a `split.Pause` where there is a reason for it
    # Where what each symbol speaks begins and ends in the given text; () where that is not known.
    places: tuple[tuple[int, int], ...] = ()
    # What marks in the text ask for, such as SSML's; () and "" where there are none.
    styles: tuple[Style, ...] = ()  # of each symbol
    bookmarks: tuple[tuple[int, str], ...] = ()  # before which symbol one stands, and its name
    speaker: str = ""
    lead: float = 0.0  # seconds of silence before it


@dataclass(frozen=True)
class Unspoken:
    """A character or symbol that the frontend had no way to speak."""

    symbol: str
    position: int  # index into the text the frontend was called with
    text: str  # the sentence it stands in


def unspoken_rows(unspoken: Iterable[Unspoken]) -> list[dict[str, Any]]:
    """As they stand in JSON, which has the text elsewhere."""
    return [{"symbol": one.symbol, "position": one.position} for one in unspoken]


def list_unspoken(unspoken: Sequence[Unspoken]) -> list[str]:
    """A sentence about the first ones and the number of the others; none where there is nothing."""
    told = [f"{one.symbol!r} at position {one.position}" for one in unspoken[:MOST_TOLD]]
    more = [f"{len(unspoken) - MOST_TOLD} more"] if len(unspoken) > MOST_TOLD else []
    return [f"{', '.join(told + more)} cannot be spoken as written"] if told else []


@dataclass(frozen=True)
class Analysis:
    """Everything a frontend made of a text, and everything that it could not speak."""

    utterances: tuple[Utterance, ...]
    unspoken: tuple[Unspoken, ...] = ()
    warnings: tuple[str, ...] = ()  # what of its marks changes nothing

    @classmethod
    def joined(cls, parts: Iterable[Analysis]) -> Analysis:
        """Of a text whose parts, one behind the other, these are of."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        return cls(
            tuple(u for part in parts for u in part.utterances),
            tuple(u for part in parts for u in part.unspoken),
            tuple(w for part in parts for w in part.warnings),
        )


class Frontend(Protocol):
    """Turns text into utterances. `symbols` is the symbol set in id order."""

    name: str
    symbols: tuple[str, ...]
    own_words: Sequence[OwnWords]  # which are said in every text; the first ones come first
    reads_addresses: bool  # of links, which only the English frontend knows

    def __call__(self, text: str, said: Sequence[SaidAs] = ()) -> Analysis: ...

    def sentences(self, text: str, said: Sequence[SaidAs] = ()) -> Iterator[Analysis]:
        """The parts of what a call gives, each made when it is asked for."""
        yield self(text, said)


def spoken_by(frontend: Frontend, speaker: str) -> Frontend:
    """The frontend as a speaker of the voice reads, who may have another accent than the others."""
    of_speaker = getattr(frontend, "of_speaker", None)
    return of_speaker(speaker) if of_speaker and speaker else frontend


def with_own_words(frontend: Frontend, own_words: OwnWords | None) -> Frontend:
    """The frontend, with these words before its own."""
    if own_words is None:
        return frontend
    changed = copy.copy(frontend)
    changed.own_words = (own_words, *frontend.own_words)
    return changed
