"""Text frontends: written text in, the symbol ids of an acoustic model out. Here what they give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, eq=False)
class Utterance:
    """What one call of an acoustic model speaks: a sentence, or a part of a long one."""

    text: str  # as written
    normalised: str  # as spoken, in words; phonemes in braces where the frontend makes them
    symbols: tuple[str, ...]
    ids: np.ndarray  # int64 [T_text]
    pause: float  # seconds of silence that follow


@dataclass(frozen=True)
class Unspoken:
    """A character or symbol that the frontend had no way to speak."""

    symbol: str
    position: int  # index into the text the frontend was called with
    text: str  # the sentence it stands in


def unspoken_rows(unspoken: Iterable[Unspoken]) -> list[dict[str, Any]]:
    """As they stand in JSON, which has the text elsewhere."""
    return [{"symbol": one.symbol, "position": one.position} for one in unspoken]


@dataclass(frozen=True)
class Analysis:
    """Everything a frontend made of a text, and everything that it could not speak."""

    utterances: tuple[Utterance, ...]
    unspoken: tuple[Unspoken, ...] = ()

    @classmethod
    def joined(cls, parts: Iterable[Analysis]) -> Analysis:
        """Of a text whose parts, one behind the other, these are of."""
        parts = list(parts)
        return cls(
            tuple(u for part in parts for u in part.utterances),
            tuple(u for part in parts for u in part.unspoken),
        )


class Frontend(Protocol):
    """Turns text into utterances. `symbols` is the symbol set in id order."""

    name: str
    symbols: tuple[str, ...]

    def __call__(self, text: str) -> Analysis: ...

    def sentences(self, text: str) -> Iterator[Analysis]:
        """The parts of what a call gives, each made when it is asked for."""
        yield self(text)
