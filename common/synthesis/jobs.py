"""Texts on their way through the models: what the frontend made of them, and which go together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from melforge.common.errors import InputError
from melforge.common.speech import Controls, Timings
from melforge.common.synthesis.segments import fit
from melforge.common.synthesis.utterances import SpokenUtterance, alike_batches, speak_utterances
from melforge.common.text import Analysis, Frontend, Utterance

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from melforge.common.synthesis.acoustic import AcousticModel
    from melforge.common.synthesis.vocoder import Vocoder


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


JobUtterance = tuple[Job, int]  # and the utterance's number


class Models(Protocol):
    """What speaks: a `TextToSpeech`."""

    frontend: Frontend
    acoustic: AcousticModel
    vocoder: Vocoder
    sampling_rate: int
    batch_size: int | None
    models_turn: AbstractContextManager[Any]

    def analyse_each(self, texts: Sequence[str | AnalysedText]) -> Iterator[AnalysedText]: ...

    def speak_ahead(self, streams: Sequence[Any]) -> None: ...


def speak_jobs(models: Models, batch: Sequence[JobUtterance], retries: int) -> list[SpokenUtterance]:
    """One batch through the acoustic model, as `speak_utterances`."""
    utterances = [job.text.utterances[i] for job, i in batch]
    controls = [job.controls for job, _ in batch]
    return speak_utterances(models.acoustic, models.frontend.symbols, utterances, controls, retries)


def alike_jobs(
    acoustic: AcousticModel, queue: Sequence[JobUtterance], batch_size: int
) -> Iterator[list[JobUtterance]]:
    """The utterances of a queue, by job and number, so many of similar length at a time; together only what
    the same bucket covers and has the same `batch_key`. One by one it keeps its order.
    """
    lengths = [len(job.text.utterances[i].ids) for job, i in queue]
    controls = [job.controls for job, _ in queue]
    for rows in alike_batches(acoustic, lengths, controls, batch_size):
        yield [queue[row] for row in rows]
