"""Utterances to mels, in pieces where a mel would be too long, and again where one went wrong.

A model that finds its own way through the text (Tacotron 2's attention) can repeat, skip or never end. Other
noise often helps, and short pieces nearly always: both are tried in turn, and the best result is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.arrays import Array, concatenate
from common.errors import InputError
from common.speech import AcousticOutput, Controls, MelTooLong
from common.text import Frontend, Utterance
from common.text.split import CLAUSE_PAUSE

CUTS = 2  # how often an utterance is halved at most
ADVICE = "try --retry, another --seed, or split the sentence"
ADVICE_AFTER_RETRIES = "retries did not help: try another --seed, or put it in other words"


@dataclass(frozen=True, eq=False)
class Said:
    """One utterance between the acoustic model and the vocoder."""

    mel: Array  # float32 [n_mels, T_mel]
    durations: np.ndarray  # int64 [T_text]
    pitch: np.ndarray | None  # float32 [T_text]
    alignment: np.ndarray | None  # float32 [decoder steps, T_text]
    problem: str = ""
    trouble: float = 0.0  # the share of its symbols that stand in pieces with a problem
    note: str = ""
    pieces: int = 1


def say(
    acoustic: Any, frontend: Frontend, utterances: Sequence[Utterance], controls: Controls, retries: int
) -> list[Said]:
    """One batch through the acoustic model: for each utterance what is to be heard.

    One whose mel would be longer than the model can make is spoken in pieces. With `retries`, utterances with
    a problem are spoken again with that many further seeds, then in pieces.
    """
    said = _batch(acoustic, frontend, utterances, controls)
    if retries:
        said = _again(acoustic, frontend, utterances, said, controls, retries, len(utterances), CUTS)
    return said


def _batch(
    acoustic: Any, frontend: Frontend, utterances: Sequence[Utterance], controls: Controls
) -> list[Said]:
    """What the acoustic model makes of a batch; what is too long for it in two pieces, if need be again."""
    try:
        output = acoustic.synthesise([utterance.ids for utterance in utterances], controls)
    except MelTooLong as error:
        long = {row: cut(utterances[row], frontend.symbols, shortest=1) for row in error.rows}
        for row, pieces in long.items():
            # A piece may get a comma: one letter would be cut into itself for ever.
            if any(len(piece.utterance.ids) >= len(utterances[row].ids) for piece in pieces):
                raise
        fitting = [row for row in range(len(utterances)) if row not in long]
        said: dict[int, Said] = {}
        if fitting:
            spoken = _batch(acoustic, frontend, [utterances[row] for row in fitting], controls)
            said.update(zip(fitting, spoken, strict=True))
        for row, pieces in long.items():
            parts = [_batch(acoustic, frontend, [piece.utterance], controls)[0] for piece in pieces]
            said[row] = _join(parts, pieces, len(utterances[row].ids))
        return [said[row] for row in range(len(utterances))]
    return [_row(output, row, len(utterance.ids)) for row, utterance in enumerate(utterances)]


def _row(output: AcousticOutput, row: int, symbols: int) -> Said:
    problem = output.problems[row] if output.problems else ""
    alignment = output.alignment
    if alignment is not None:
        alignment = alignment[row, : int(output.alignment_lengths[row]), :symbols]
    return Said(
        mel=output.mel[row, :, : int(output.mel_lengths[row])],
        durations=output.durations[row, :symbols],
        pitch=None if output.pitch is None else output.pitch[row, :symbols],
        alignment=alignment,
        problem=problem,
        trouble=float(bool(problem)),
    )


def _again(
    acoustic: Any,
    frontend: Frontend,
    utterances: Sequence[Utterance],
    said: Sequence[Said],
    controls: Controls,
    retries: int,
    batch_size: int,
    cuts: int,
) -> list[Said]:
    """The best of what was said and of further tries, for each utterance."""
    best = list(said)
    # Without noise another seed gives the same speech again.
    seeds = range(controls.seed + 1, controls.seed + 1 + retries) if controls.dropout else ()
    for seed in seeds:
        bad = _troubled(best)
        again = [utterances[i] for i in bad]
        tries = _speak(acoustic, frontend, again, replace(controls, seed=seed), batch_size)
        for i, attempt in zip(bad, tries, strict=True):
            best[i] = _better(best[i], replace(attempt, note=f"spoken again with seed {seed}"))
    if not cuts:
        return best
    halves = {i: cut(utterances[i], frontend.symbols) for i in _troubled(best)}
    halves = {i: pieces for i, pieces in halves.items() if len(pieces) > 1}
    parts = [piece.utterance for pieces in halves.values() for piece in pieces]
    spoken = _speak(acoustic, frontend, parts, controls, batch_size)
    spoken = _again(acoustic, frontend, parts, spoken, controls, retries, batch_size, cuts - 1)
    for number, (i, pieces) in enumerate(halves.items()):
        joined = _join(spoken[2 * number : 2 * number + 2], pieces, len(utterances[i].ids))
        best[i] = _better(best[i], joined)
    return best


def _troubled(said: Sequence[Said]) -> list[int]:
    return [i for i, one in enumerate(said) if one.problem]


def _better(one: Said, other: Said) -> Said:
    """The one with less trouble; of equals the first."""
    return min(one, other, key=lambda said: said.trouble)


def _speak(
    acoustic: Any, frontend: Frontend, utterances: Sequence[Utterance], controls: Controls, batch_size: int
) -> list[Said]:
    said = []
    for start in range(0, len(utterances), batch_size):
        said += _batch(acoustic, frontend, utterances[start : start + batch_size], controls)
    return said


def _join(said: Sequence[Said], pieces: Sequence[Piece], symbols: int) -> Said:
    """Pieces one behind the other, as one utterance of so many symbols.

    A comma that only a piece had counts to the symbol before it; a blank between two pieces takes no time.
    """
    durations = np.zeros(symbols, np.int64)
    pitch = None if said[0].pitch is None else np.zeros(symbols, np.float32)
    steps = [0 if one.alignment is None else len(one.alignment) for one in said]
    alignment = None if said[0].alignment is None else np.zeros((sum(steps), symbols), np.float32)
    for number, (one, piece) in enumerate(zip(said, pieces, strict=True)):
        size, last = piece.end - piece.start, piece.end - 1
        durations[piece.start : piece.end] = one.durations[:size]
        durations[last] += one.durations[size:].sum()
        if pitch is not None:
            pitch[piece.start : piece.end] = one.pitch[:size]
        if alignment is not None:
            rows = alignment[sum(steps[:number]) : sum(steps[: number + 1])]
            rows[:, piece.start : piece.end] = one.alignment[:, :size]
            rows[:, last] += one.alignment[:, size:].sum(1)
    count = sum(one.pieces for one in said)
    sizes = [piece.end - piece.start for piece in pieces]
    return Said(
        mel=concatenate([one.mel for one in said], axis=1),
        durations=durations,
        pitch=pitch,
        alignment=alignment,
        problem="; ".join(dict.fromkeys(one.problem for one in said if one.problem)),
        trouble=sum(one.trouble * size for one, size in zip(said, sizes, strict=True)) / sum(sizes),
        note=f"spoken in {count} pieces",
        pieces=count,
    )


MARKS = frozenset(",;:.?!")
BLANK, COMMA = " ", ","
SHORTEST = 12  # symbols of a piece that was cut to be spoken better: a word or two alone sound torn off
_WORD = re.compile(r"(?:\{[^{}]*\}|\S)+")  # phonemes in braces are one word
_SPOKEN = re.compile(r"\w")


@dataclass(frozen=True, eq=False)
class Piece:
    """Part of an utterance, itself an utterance."""

    utterance: Utterance
    start: int  # the whole utterance's symbols from here
    end: int  # to here; behind them the piece may have a comma of its own


def fit(utterance: Utterance, longest: int, symbols: Sequence[str]) -> Iterator[Utterance]:
    """The utterance, or where it has more than `longest` symbols the pieces that fit, in order."""
    if len(utterance.ids) <= longest:
        yield utterance
        return
    if longest < 4:  # a blank, a letter and two marks
        raise InputError(f"the acoustic model takes {longest} symbols at a time: no text fits")
    for piece in cut(utterance, symbols, shortest=1):
        yield from fit(piece.utterance, longest, symbols)


def cut(utterance: Utterance, symbols: Sequence[str], shortest: int = SHORTEST) -> tuple[Piece, ...]:
    """Two pieces, cut behind the mark that is nearest to the middle, else at the nearest blank.

    Neither is shorter than `shortest` symbols. One piece, the whole, where there is no such place; with
    `shortest` 1 a word is cut where it has to be. `symbols` is the frontend's symbol set.
    """
    place = _place(utterance.symbols, shortest)
    if place is None:
        return (Piece(utterance, 0, len(utterance.ids)),)
    end, start = place
    if utterance.symbols[0] != BLANK and utterance.symbols[start] == BLANK:
        start += 1  # only some frontends begin an utterance with a blank
    return (
        Piece(_part(utterance, 0, end, symbols, CLAUSE_PAUSE), 0, end),
        Piece(
            _part(utterance, start, len(utterance.ids), symbols, utterance.pause), start, len(utterance.ids)
        ),
    )


def _place(symbols: Sequence[str], shortest: int) -> tuple[int, int] | None:
    """Where the first piece ends and the second begins."""
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
    inside = end < len(utterance.ids)
    if inside and part[-1] not in MARKS and COMMA in symbols:  # models expect a mark at the end
        part, ids = (*part, COMMA), np.append(ids, symbols.index(COMMA))
    return Utterance(
        text=_same_words(utterance.text, utterance.symbols, start, end),
        normalised=_same_words(utterance.normalised, utterance.symbols, start, end),
        symbols=tuple(part),
        ids=ids.astype(np.int64),
        pause=pause,
    )


def _same_words(text: str, symbols: Sequence[str], start: int, end: int) -> str:
    """The words of a text that these symbols speak.

    All of it, where it has not as many words as the symbols: figures, for one, are several.
    """
    words = [word for word in _WORD.findall(text) if _SPOKEN.search(word)]
    spoken = _count(symbols, 0, len(symbols))
    if len(words) != spoken:
        return text
    first, last = _count(symbols, 0, start), _count(symbols, 0, end)
    places = [match.start() for match in _WORD.finditer(text) if _SPOKEN.search(match[0])] + [len(text)]
    return text[places[first] if first else 0 : places[last]].strip()


def _count(symbols: Sequence[str], start: int, end: int) -> int:
    """Words among the symbols."""
    return sum(_SPOKEN.search(word) is not None for word in "".join(symbols[start:end]).split(BLANK))
