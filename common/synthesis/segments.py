"""Segments of utterances: those too long for a model are cut, and those that it did not speak well.

Cutting works on symbols, so it needs nothing of the frontend but its symbol set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from melforge.common.errors import InputError
from melforge.common.text import Utterance
from melforge.common.text.split import CLAUSE_PAUSE
from melforge.common.text.words import common_breaks, words_of

MARKS = frozenset(",;:.?!")
BLANK, COMMA = " ", ","
SHORTEST = 12  # symbols of a segment: a word or two alone sound cut off
_SPOKEN = re.compile(r"\w")


@dataclass(frozen=True, eq=False)
class Segment:
    """Part of an utterance, itself an utterance."""

    utterance: Utterance
    start: int  # the whole utterance's symbols from here
    end: int  # to here; behind them the segment may have a comma of its own


def fit(utterance: Utterance, longest: int, symbols: Sequence[str]) -> Iterator[Utterance]:
    """The utterance, or where it has more than `longest` symbols the segments that fit, in order."""
    if len(utterance.ids) <= longest:
        yield utterance
        return
    if longest < 4:  # a blank, a letter and two marks
        raise InputError(f"the acoustic model takes {longest} symbols at a time: no text fits")
    for segment in cut(utterance, symbols, shortest=1):
        yield from fit(segment.utterance, longest, symbols)


def cut(utterance: Utterance, symbols: Sequence[str], shortest: int = SHORTEST) -> tuple[Segment, ...]:
    """Two segments, cut behind the mark that is nearest to the middle, else at the nearest blank.

    Neither is shorter than `shortest` symbols. One segment, the whole, where there is no such place; with
    `shortest` 1 a word is cut where it has to be. `symbols` is the frontend's symbol set.
    """
    place = _place(utterance.symbols, shortest)
    if place is None:
        return (Segment(utterance, 0, len(utterance.ids)),)
    end, start = place
    if utterance.symbols[0] != BLANK and utterance.symbols[start] == BLANK:
        start += 1  # only some frontends begin an utterance with a blank
    return (
        Segment(_part(utterance, 0, end, symbols, CLAUSE_PAUSE), 0, end),
        Segment(
            _part(utterance, start, len(utterance.ids), symbols, utterance.pause), start, len(utterance.ids)
        ),
    )


def _place(symbols: Sequence[str], shortest: int) -> tuple[int, int] | None:
    """Where the first segment ends and the second begins."""
    middle = len(symbols) / 2
    inner = range(shortest, len(symbols) - shortest)
    spoken = [i for i, symbol in enumerate(symbols) if _SPOKEN.search(symbol)] or [0]
    blanks = [i for i in inner if symbols[i] == BLANK and spoken[0] < i < spoken[-1]]
    marks = [i for i in blanks if symbols[i - 1] in MARKS and abs(i - middle) <= len(symbols) / 4]
    for places in (marks, blanks):
        if places:
            place = min(places, key=lambda i: abs(i - middle))
            return place, place
    if shortest == 1 and len(symbols) > 1:
        return len(symbols) // 2, len(symbols) // 2
    return None


def _part(utterance: Utterance, start: int, end: int, symbols: Sequence[str], pause: float) -> Utterance:
    part, ids = utterance.symbols[start:end], utterance.ids[start:end]
    styles = utterance.styles[start:end]
    inside = end < len(utterance.ids)
    if inside and part[-1] not in MARKS and COMMA in symbols:  # models expect a mark at the end
        part, ids = (*part, COMMA), np.append(ids, symbols.index(COMMA))
        styles += styles[-1:]
    text, normalised = _texts(utterance, start, end)
    return replace(
        utterance,
        text=text,
        normalised=normalised,
        symbols=tuple(part),
        ids=ids.astype(np.int64),
        pause=pause,
        places=utterance.places[start:end],
        styles=styles,
        bookmarks=tuple(
            (at - start, name) for at, name in utterance.bookmarks if start <= at < end + 1 - inside
        ),
        lead=0.0 if start else utterance.lead,
    )


def _texts(utterance: Utterance, start: int, end: int) -> tuple[str, str]:
    """The words that these symbols speak, with the marks behind them: as written, and normalised.

    All that is written, where the cut is within what one written word stands for: an amount, for one.
    """
    words = words_of(utterance.normalised, utterance.symbols)
    inside = [number for number, word in enumerate(words) if word.end > start and word.start < end]
    if not inside:
        return utterance.text, ""
    first, following = inside[0], inside[-1] + 1
    places = [0, *(word.place for word in words[1:]), len(utterance.normalised)]
    normalised = utterance.normalised[places[first] : places[following]].strip()
    breaks = common_breaks(utterance.text, [word.text for word in words])
    offsets = {number: offset for offset, number in breaks}
    if first not in offsets or following not in offsets:
        return utterance.text, normalised
    return utterance.text[offsets[first] : offsets[following]].strip(), normalised
