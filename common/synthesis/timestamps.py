"""When each word and phoneme is spoken, from the durations that the acoustic model gave its symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Protocol

import numpy as np

from melforge.common.arguments import checked
from melforge.common.text import Utterance
from melforge.common.text.words import common_breaks, words_of


@dataclass(frozen=True)
class Phoneme:
    """A phone (ARPAbet with its stress), or a letter where the frontend speaks letters; seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Word:
    """A word of the normalised text, without marks; seconds from the beginning of the audio."""

    text: str
    start: float
    end: float
    phonemes: tuple[Phoneme, ...]


@dataclass(frozen=True)
class Bookmark:
    """A mark of the text (SSML's `mark`), and the seconds at which it is reached."""

    name: str
    time: float


class Spoken(Protocol):
    """What was spoken so far: `Audio`, and a `Stream` while it is read."""

    @property
    def utterances(self) -> Sequence[Utterance]: ...

    @property
    def starts(self) -> Sequence[float]: ...

    @property
    def durations(self) -> Sequence[np.ndarray]: ...

    @property
    def frame_seconds(self) -> float: ...


@checked
def timestamps(spoken: Spoken) -> list[Word]:
    """The words of all that was spoken, in order; none overlaps another. Pauses are between words.

    Tacotron 2 has no durations of its own: a symbol lasts as long as it has most of the attention.
    """
    return [word for words in utterance_timestamps(spoken) for word in words]


@checked
def utterance_timestamps(spoken: Spoken, first: int = 0, end: int | None = None) -> list[list[Word]]:
    """The words of each utterance that was spoken so far, or of those from `first` to before `end`."""
    made = islice(zip(spoken.utterances, spoken.starts, spoken.durations, strict=False), first, end)
    return [_words(utterance, durations, start, spoken.frame_seconds) for utterance, start, durations in made]


@checked
def bookmarks(spoken: Spoken, first: int = 0, end: int | None = None) -> list[Bookmark]:
    """Those of the utterances that were spoken so far, or of those from `first` to before `end`."""
    made = islice(zip(spoken.utterances, spoken.starts, spoken.durations, strict=False), first, end)
    return [
        Bookmark(name, _edges(durations, start, spoken.frame_seconds)[place])
        for utterance, start, durations in made
        for place, name in utterance.bookmarks
    ]


def _edges(durations: np.ndarray, start: float, frame_seconds: float) -> list[float]:
    """Seconds at which symbols begin, and the last one ends: of durations int64 [T_text], frames."""
    return (start + np.concatenate(([0], np.cumsum(durations))) * frame_seconds).tolist()


def _words(utterance: Utterance, durations: np.ndarray, start: float, frame_seconds: float) -> list[Word]:
    """durations int64 [T_text], frames; `start`: seconds at which the utterance begins."""
    edges = _edges(durations, start, frame_seconds)
    return [
        Word(
            word.text,
            edges[word.start],
            edges[word.end],
            tuple(
                Phoneme(symbol.removeprefix("@"), edges[place], edges[place + 1])
                for place, symbol in enumerate(utterance.symbols[word.start : word.end], start=word.start)
                if symbol[-1].isalnum()
            ),
        )
        for word in words_of(utterance.normalised, utterance.symbols)
    ]


def pieces_as_written(text: str, words: Sequence[Word]) -> list[dict[str, Any]]:
    """An utterance's text as written in pieces, each with the number of words that speak it."""
    breaks = dict(common_breaks(text, [word.text for word in words])) | {0: 0}
    return [
        {"text": text[start:end].strip(), "words": following - word}
        for (start, word), (end, following) in pairwise(breaks.items())
    ]


def bookmark_rows(found: Sequence[Bookmark]) -> list[dict[str, Any]]:
    """Marks for JSON, with times to a tenth of a millisecond."""
    return [{"name": one.name, "time": round(one.time, 4)} for one in found]


def as_rows(words: Sequence[Word]) -> list[dict[str, Any]]:
    """Words for JSON, with times to a tenth of a millisecond."""
    return [
        {
            "text": word.text,
            "start": round(word.start, 4),
            "end": round(word.end, 4),
            "phonemes": [
                {"text": phoneme.text, "start": round(phoneme.start, 4), "end": round(phoneme.end, 4)}
                for phoneme in word.phonemes
            ],
        }
        for word in words
    ]
