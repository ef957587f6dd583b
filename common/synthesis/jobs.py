"""Texts on their way through the models: what the frontend made of them, and which go together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from melforge.common.errors import InputError
from melforge.common.speech import Controls, Timings
from melforge.common.synthesis.segments import fit
from melforge.common.synthesis.utterances import SpokenUtterance, alike_batches
from melforge.common.text import Analysis, Utterance

if TYPE_CHECKING:
    from melforge.common.synthesis.acoustic import AcousticModel


def fitting_utterances(
    text: str, utterances: Sequence[Utterance], longest: int, symbols: Sequence[str]
) -> tuple[Utterance, ...]:
    """A text's utterances, in segments where one has more than `longest` symbols.

    An InputError where there is nothing to speak.
    """
    if not utterances:
        why = f"nothing in {text.strip()[:40]!r} can be spoken" if text.strip() else "the text is empty"
        raise InputError(f"no audio made: {why}")
    return tuple(part for utterance in utterances for part in fit(utterance, longest, symbols))


@dataclass(frozen=True)
class AnalysedText(Analysis):
    """A text with what the frontend made of it, cut where the acoustic model takes no longer utterances."""

    text: str = ""
    seconds: float = 0.0  # that it took


@dataclass(frozen=True, eq=False)
class SpokenPart:
    """One utterance with its samples; the mel is numpy's."""

    samples: np.ndarray
    spoken: SpokenUtterance


@dataclass(eq=False)
class Job:
    """One text on its way; its utterances may be spoken in any order."""

    number: int
    text: AnalysedText
    controls: Controls
    clock: Timings
    parts: dict[int, SpokenPart] = field(default_factory=dict)


def alike_jobs(
    acoustic: AcousticModel, queue: Sequence[tuple[Job, int]], batch_size: int
) -> Iterator[list[tuple[Job, int]]]:
    """The utterances of a queue, by job and number, so many of similar length at a time; together only what
    the same bucket covers and has the same `batch_key`. One by one it keeps its order.
    """
    lengths = [len(job.text.utterances[i].ids) for job, i in queue]
    controls = [job.controls for job, _ in queue]
    for rows in alike_batches(acoustic, lengths, controls, batch_size):
        yield [queue[row] for row in rows]
