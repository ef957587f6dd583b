"""Utterances to mels: in segments where a mel would be too long, and again where attention failed.

An autoregressive model (Tacotron 2) can repeat or skip words, or miss the end. Other noise often helps, and
short segments nearly always do: both are tried in turn, and the best result is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from melforge.common.arrays import Array, concatenate, to_numpy
from melforge.common.speech import AcousticOutput, Controls, MelTooLong, Problem, controls_of_each
from melforge.common.synthesis.segments import Segment, cut
from melforge.common.text import Utterance

if TYPE_CHECKING:
    from melforge.common.synthesis.acoustic import AcousticModel

CUTS = 2  # how often an utterance is halved at most
QUIET = 10**-3.5  # of the loudest frame's power: what is below is silence
ADVICE = "try retries, another seed, or split the sentence"
ADVICE_AFTER_RETRIES = "retries did not help: try another seed, or put it in other words"

Row = TypeVar("Row")
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class SpokenUtterance:
    """One utterance between the acoustic model and the vocoder."""

    mel: Array  # float32 [n_mels, T_mel]
    durations: np.ndarray  # int64 [T_text]
    pitch: np.ndarray | None  # float32 [T_text]
    alignment: np.ndarray | None  # float32 [decoder steps, T_text]
    problem: str = ""
    trouble: float = 0.0  # the share of its symbols that stand in segments with a problem
    note: str = ""
    segments: int = 1


def run_each(run: Callable[[Sequence[Row]], list[Made]], rows: Sequence[Row]) -> list[Made | Exception]:
    """What `run` makes of the rows together; where that fails, of each half, down to the row at fault."""
    if not rows:
        return []
    try:
        return list(run(rows))
    except Exception as error:
        if len(rows) == 1:
            return [error]
    half = len(rows) // 2
    return [*run_each(run, rows[:half]), *run_each(run, rows[half:])]


def speak_utterances(
    acoustic: AcousticModel,
    symbols: Sequence[str],
    utterances: Sequence[Utterance],
    controls: Controls | Sequence[Controls],
    retries: int,
) -> list[SpokenUtterance]:
    """One batch through the acoustic model: a mel for each utterance. `symbols` is the frontend's symbol set.

    `controls` are one for all, or one for each utterance; these have one `batch_key` of the acoustic model.
    One whose mel would be longer than the model can make is spoken in segments. With `retries`, utterances
    with a problem are spoken again with that many further seeds, then in segments.
    """
    attempts = _Attempts(acoustic, tuple(symbols), len(utterances), retries)
    each = controls_of_each(controls, len(utterances))
    spoken = attempts.batch(utterances, each)
    return attempts.again(utterances, spoken, each, CUTS) if retries else spoken


def describe_problem(number: int, utterance: Utterance, spoken: SpokenUtterance, retries: int) -> Problem:
    advice = ADVICE_AFTER_RETRIES if retries else ADVICE
    return Problem(number, utterance.text, spoken.problem, advice)


def alike_batches(
    acoustic: AcousticModel, lengths: Sequence[int], controls: Sequence[Controls], batch_size: int
) -> Iterator[list[int]]:
    """Utterances of so many symbols by their numbers, so many of similar length at a time.

    Together only what the same bucket covers and has the same `batch_key`. One by one they keep their order.
    """
    keys = [acoustic.batch_key(one) for one in controls]
    order = list(range(len(lengths)))
    if batch_size > 1:
        known = list(dict.fromkeys(keys))
        order.sort(key=lambda i: (known.index(keys[i]), lengths[i]))
    for _, alike in itertools.groupby(order, lambda i: (keys[i], acoustic.engines.covering(lengths[i]))):
        while batch := list(itertools.islice(alike, batch_size)):
            yield batch


@dataclass(frozen=True)
class _Attempts:
    """What every attempt at speaking utterances has in common."""

    acoustic: AcousticModel
    symbols: tuple[str, ...]
    batch_size: int
    retries: int

    def batch(self, utterances: Sequence[Utterance], controls: Sequence[Controls]) -> list[SpokenUtterance]:
        """What the acoustic model makes of a batch; what is too long for it in two segments."""
        try:
            styles = [one.styles for one in utterances] if any(one.styles for one in utterances) else ()
            output = self.acoustic.synthesise([one.ids for one in utterances], controls, styles)
        except MelTooLong as error:
            long = {row: cut(utterances[row], self.symbols, shortest=1) for row in error.rows}
            for row, segments in long.items():
                # A segment may get a comma: one letter would be cut into itself for ever.
                if any(len(segment.utterance.ids) >= len(utterances[row].ids) for segment in segments):
                    raise
            fitting = [row for row in range(len(utterances)) if row not in long]
            spoken: dict[int, SpokenUtterance] = {}
            if fitting:
                made = self.batch([utterances[row] for row in fitting], [controls[row] for row in fitting])
                spoken.update(zip(fitting, made, strict=True))
            for row, segments in long.items():
                parts = [self.batch([segment.utterance], [controls[row]])[0] for segment in segments]
                spoken[row] = _join(parts, segments, len(utterances[row].ids))
            return [spoken[row] for row in range(len(utterances))]
        return [_row(output, row, len(utterance.ids)) for row, utterance in enumerate(utterances)]

    def batches(self, utterances: Sequence[Utterance], controls: Sequence[Controls]) -> list[SpokenUtterance]:
        """Any number of utterances, as many at a time as were asked for."""
        size = self.batch_size
        parts = [slice(start, start + size) for start in range(0, len(utterances), size)]
        return [one for part in parts for one in self.batch(utterances[part], controls[part])]

    def again(
        self,
        utterances: Sequence[Utterance],
        spoken: Sequence[SpokenUtterance],
        controls: Sequence[Controls],
        cuts: int,
    ) -> list[SpokenUtterance]:
        """The best of what was spoken and of further attempts, for each utterance."""
        best = list(spoken)
        for number in range(1, self.retries + 1):
            # Without noise another seed gives the same speech again.
            bad = [i for i in _troubled(best) if controls[i].dropout]
            if not bad:
                break
            others = [replace(controls[i], seed=controls[i].seed + number) for i in bad]
            attempts = self.batches([utterances[i] for i in bad], others)
            for i, attempt, other in zip(bad, attempts, others, strict=True):
                best[i] = _better(best[i], replace(attempt, note=f"spoken again with seed {other.seed}"))
        if not cuts:
            return best
        divided = {i: cut(utterances[i], self.symbols) for i in _troubled(best)}
        parted = {i: segments for i, segments in divided.items() if len(segments) > 1}
        parts = [segment.utterance for segments in parted.values() for segment in segments]
        theirs = [controls[i] for i, segments in parted.items() for _ in segments]
        parts_spoken = iter(self.again(parts, self.batches(parts, theirs), theirs, cuts - 1))
        for i, segments in parted.items():
            its_parts = list(itertools.islice(parts_spoken, len(segments)))
            best[i] = _better(best[i], _join(its_parts, segments, len(utterances[i].ids)))
        return best


def _row(output: AcousticOutput, row: int, symbols: int) -> SpokenUtterance:
    problem = output.problems[row] if output.problems else ""
    alignment = output.alignment
    if alignment is not None and output.alignment_lengths is not None:
        alignment = alignment[row, : int(output.alignment_lengths[row]), :symbols]
    return SpokenUtterance(
        mel=output.mel[row, :, : int(output.mel_lengths[row])],
        durations=output.durations[row, :symbols],
        pitch=None if output.pitch is None else output.pitch[row, :symbols],
        alignment=alignment,
        problem=problem,
        trouble=float(bool(problem)),
    )


def without_silence(spoken: SpokenUtterance, start: int | None, end: int | None) -> SpokenUtterance:
    """With so many frames of silence at its start and its end at most (None: all)."""
    frames = spoken.mel.shape[1]
    if not frames or (start is None and end is None):
        return spoken
    power = np.square(np.exp(to_numpy(spoken.mel).astype(np.float64))).sum(0)
    heard = np.flatnonzero(power > power.max() * QUIET)
    first = 0 if start is None else max(0, int(heard[0]) - start)
    last = frames if end is None else min(frames, int(heard[-1]) + 1 + end)
    edges = np.concatenate(([0], np.cumsum(spoken.durations))).clip(first, last)
    alignment = spoken.alignment
    if alignment is not None:  # whose steps share the frames evenly
        steps = len(alignment) / frames
        alignment = alignment[round(first * steps) : round(last * steps)]
    return replace(spoken, mel=spoken.mel[:, first:last], durations=np.diff(edges), alignment=alignment)


def _troubled(spoken: Sequence[SpokenUtterance]) -> list[int]:
    return [i for i, one in enumerate(spoken) if one.problem]


def _better(one: SpokenUtterance, other: SpokenUtterance) -> SpokenUtterance:
    """The one with less trouble; of equals the first."""
    return min(one, other, key=lambda spoken: spoken.trouble)


def _join(spoken: Sequence[SpokenUtterance], segments: Sequence[Segment], symbols: int) -> SpokenUtterance:
    """Segments one behind the other, as one utterance of so many symbols.

    A comma that only a segment had counts to the symbol before it; a blank between two takes no time.
    """
    durations = np.zeros(symbols, np.int64)
    pitch = None if spoken[0].pitch is None else np.zeros(symbols, np.float32)
    steps = [0 if one.alignment is None else len(one.alignment) for one in spoken]
    alignment = None if spoken[0].alignment is None else np.zeros((sum(steps), symbols), np.float32)
    for number, (one, segment) in enumerate(zip(spoken, segments, strict=True)):
        size, last = segment.end - segment.start, segment.end - 1
        durations[segment.start : segment.end] = one.durations[:size]
        durations[last] += one.durations[size:].sum()
        if pitch is not None and one.pitch is not None:
            pitch[segment.start : segment.end] = one.pitch[:size]
        if alignment is not None and one.alignment is not None:
            rows = alignment[sum(steps[:number]) : sum(steps[: number + 1])]
            rows[:, segment.start : segment.end] = one.alignment[:, :size]
            rows[:, last] += one.alignment[:, size:].sum(1)
    count = sum(one.segments for one in spoken)
    sizes = [segment.end - segment.start for segment in segments]
    return SpokenUtterance(
        mel=concatenate([one.mel for one in spoken], axis=1),
        durations=durations,
        pitch=pitch,
        alignment=alignment,
        problem="; ".join(dict.fromkeys(one.problem for one in spoken if one.problem)),
        trouble=sum(one.trouble * size for one, size in zip(spoken, sizes, strict=True)) / sum(sizes),
        note=f"spoken in {count} pieces",
        segments=count,
    )
