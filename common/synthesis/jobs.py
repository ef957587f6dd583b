"""Texts on their way through the models: what the frontend made of them, and which go together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from melforge.common.errors import InputError
from melforge.common.speech import Controls, Timings, speaker_shares
from melforge.common.synthesis.finish import volumes_of
from melforge.common.synthesis.segments import fit
from melforge.common.synthesis.utterances import (
    SpokenUtterance,
    alike_batches,
    speak_utterances,
    without_silence,
)
from melforge.common.text import Analysis, Frontend, Utterance
from melforge.common.text.style import PLAIN, Style

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


def possible_utterances(
    acoustic: AcousticModel, utterances: Sequence[Utterance]
) -> tuple[Sequence[Utterance], tuple[str, ...]]:
    """Without what this model cannot do of what a text's marks ask for, and a sentence on each of that."""
    if not any(one.styles or one.speaker for one in utterances):
        return utterances, ()
    asked = {style for one in utterances for style in one.styles}
    changed = {
        name for style in asked for name in Style._fields if getattr(style, name) != getattr(PLAIN, name)
    }
    words = {"rate" if name == "rate" else "pitch" for name in changed - {"volume"} - acoustic.by_symbol}
    ignored = [
        f"{acoustic.source.model} cannot change the {word} of a part of a text" for word in sorted(words)
    ]
    known = {}
    for speaker in dict.fromkeys(one.speaker for one in utterances if one.speaker):
        try:
            if "speaker" not in acoustic.controls:
                raise InputError(f"speaker {speaker!r} does not exist: this voice has one speaker")
            speaker_shares(speaker, acoustic.source.speakers)
            known[speaker] = speaker
        except InputError as error:
            ignored.append(f"{error}; the speaker of the whole text says it")
    return [replace(one, speaker=known.get(one.speaker, "")) for one in utterances], tuple(ignored)


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


class Gap(NamedTuple):
    """The silence between two utterances, or at an end of the text."""

    seconds: float  # that are inserted
    kept: int | None = None  # frames of silence that the speech keeps on each side at most; None: all


@dataclass(eq=False)
class Job:
    """One text on its way; its utterances may be spoken in any order."""

    number: int
    text: AnalysedText
    controls: Controls
    clock: Timings
    gaps: Sequence[Gap]  # before the first utterance, and behind each
    hop: int
    rate: int
    parts: dict[int, SpokenPart] = field(default_factory=dict)

    def controls_of(self, i: int) -> Controls:
        """Those of an utterance: the text may ask for another speaker."""
        speaker = self.text.utterances[i].speaker
        return replace(self.controls, speaker=speaker) if speaker else self.controls

    def volumes(self, i: int, durations: np.ndarray) -> float | np.ndarray:
        """Of an utterance with these durations: one, or float32 [S] of its samples."""
        return (
            volumes_of(self.text.utterances[i].styles, durations, self.hop, self.rate) * self.controls.volume
        )


KEPT = 1  # frames of its own silence that speech keeps beside a break: a vowel dies away in it

JobUtterance = tuple[Job, int]  # and the utterance's number


class Models(Protocol):
    """What speaks: a `TextToSpeech`."""

    frontend: Frontend
    acoustic: AcousticModel
    vocoder: Vocoder
    sampling_rate: int
    batch_size: int | None
    models_turn: AbstractContextManager[Any]

    def analyse_each(
        self, texts: Sequence[str | AnalysedText], speakers: Sequence[int | str]
    ) -> Iterator[AnalysedText]: ...

    def speak_ahead(self, streams: Sequence[Any]) -> None: ...


@contextmanager
def turn_of(models: Models) -> Iterator[None]:
    """What a call holds while it uses the models; a GPU is told all of it on one stream."""
    global _last_turn
    with models.models_turn, models.acoustic.on_its_stream():
        try:
            yield
        finally:
            _last_turn = time.monotonic()


_last_turn = time.monotonic()  # its end, in this process


def seconds_idle() -> float:
    """Since a call of this process last used models."""
    return time.monotonic() - _last_turn


def make_job(models: Models, number: int, text: AnalysedText, controls: Controls) -> Job:
    """A text with its controls, on its way."""
    hop, rate = models.vocoder.hop, models.sampling_rate
    gaps = gaps_of(text.utterances, controls, hop / rate)
    return Job(number, text, controls, Timings({"text": text.seconds}), gaps, hop, rate)


def gaps_of(utterances: Sequence[Utterance], controls: Controls, frame: float) -> list[Gap]:
    """Before a text's first utterance and behind each; a frame of the mel lasts so many seconds."""
    last, lead = len(utterances) - 1, utterances[0].lead
    gaps = [_gap(lead, True, 1, frame) if lead else Gap(0.0)]
    for i, utterance in enumerate(utterances):
        gaps.append(_gap(*controls.silence(utterance.pause), 1 if i == last else 2, frame))
    return gaps


def _gap(seconds: float, is_all: bool, sides: int, frame: float) -> Gap:
    """Of so many seconds, which include the silence of the speech on its sides or come to it."""
    if not is_all:
        return Gap(seconds)
    kept = min(KEPT, int(seconds / sides / frame))
    return Gap(seconds - kept * sides * frame, kept)


def speak_jobs(models: Models, batch: Sequence[JobUtterance], retries: int) -> list[SpokenUtterance]:
    """One batch through the acoustic model, as `speak_utterances`."""
    utterances = [job.text.utterances[i] for job, i in batch]
    controls = [job.controls_of(i) for job, i in batch]
    spoken = speak_utterances(models.acoustic, models.frontend.symbols, utterances, controls, retries)
    return [
        without_silence(one, job.gaps[i].kept, job.gaps[i + 1].kept)
        for (job, i), one in zip(batch, spoken, strict=True)
    ]


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
