"""What goes into speaking and what comes out: controls, the acoustic model's answer, audio, timings."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

import numpy as np

from common.arrays import Array
from common.errors import InputError
from common.text import Unspoken, Utterance

PACE_RANGE = (0.1, 10.0)
LOUDEST = 10.0


@dataclass(frozen=True)
class Controls:
    """How to speak. The defaults leave everything as the models predict it."""

    pace: float = 1.0  # speed: 2 is twice as fast
    pitch_shift: float = 0.0  # Hz
    pitch_amplify: float = 1.0  # times the deviation from the voice's mean pitch
    pitch_flatten: bool = False  # the mean pitch throughout
    pitch_invert: bool = False  # mirrored at the mean pitch
    denoising_strength: float | None = None  # how much of the vocoder's hum goes; None: as the voice says
    volume: float = 1.0  # times the amplitude; what would clip is rounded off
    seed: int = 0  # for models that draw noise
    speaker: int = 0
    sigma: float | None = None  # spread of the vocoder's noise, where it draws any; None: as the voice says
    sharpness: float | None = None  # Tacotron 2: contrast between bands of its mel; None: as the voice says
    dropout: bool = True  # Tacotron 2's prenet dropout; off, its speech no longer depends on the seed
    gate_threshold: float | None = None  # certainty at which Tacotron 2 stops; None: as its config says
    step_limit: int | None = None  # decoder steps at most for an utterance; None: as its config says

    def __post_init__(self) -> None:
        _require_number("pace", self.pace, *PACE_RANGE)
        _require_number("pitch_shift", self.pitch_shift, -1000.0, 1000.0)
        _require_number("pitch_amplify", self.pitch_amplify, -10.0, 10.0)
        _require_number("volume", self.volume, 0.0, LOUDEST)
        if self.denoising_strength is not None:
            _require_number("denoising_strength", self.denoising_strength, 0.0, 10.0)
        if self.sigma is not None:
            _require_number("sigma", self.sigma, 0.0, 10.0)
        if self.sharpness is not None:
            _require_number("sharpness", self.sharpness, 0.0, 2.0)
        if self.gate_threshold is not None:
            _require_number("gate_threshold", self.gate_threshold, 0.0, 1.0)
        if self.step_limit is not None and (not isinstance(self.step_limit, int) or self.step_limit < 1):
            raise InputError(f"step_limit must be a whole number from 1 on, not {self.step_limit!r}")
        for name in ("seed", "speaker"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise InputError(f"{name} must be a whole number from 0 on, not {value!r}")

    def asked(self) -> list[str]:
        """The names of the controls that differ from their defaults."""
        return [f.name for f in fields(self) if getattr(self, f.name) != f.default]


def _require_number(name: str, value: float, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")


@dataclass(frozen=True, eq=False)
class AcousticOutput:
    """A batch from an acoustic model. `mel` and `energy` stay on the model's device; the rest is numpy."""

    mel: Array  # float32 [B, n_mels, T_mel]
    mel_lengths: np.ndarray  # int64 [B]
    durations: np.ndarray  # int64 [B, T_text], frames; where attention decides, those that each symbol got
    pitch: np.ndarray | None = None  # float32 [B, T_text], Hz
    energy: Array | None = None  # float32 [B, T_text]
    alignment: np.ndarray | None = None  # float32 [B, decoder steps, T_text]: attention; rows sum to 1
    alignment_lengths: np.ndarray | None = None  # int64 [B], decoder steps
    problems: tuple[str, ...] = ()  # what went wrong with each item ("": nothing), [B]


class MelTooLong(ValueError):
    """Items of a batch, by their rows, whose mel is longer than the model can make. None was made."""

    def __init__(self, message: str, rows: Sequence[int]):
        super().__init__(message)
        self.rows = tuple(rows)


def check_ids(ids: Sequence[np.ndarray], n_symbols: int, longest_text: int) -> None:
    """An InputError where an utterance's symbol ids, int64 [T_text], are none that a model takes."""
    for row in ids:
        if not len(row):
            raise InputError("an utterance without symbols cannot be spoken")
        if len(row) > longest_text:
            raise InputError(f"an utterance of {len(row)} symbols; this model goes up to {longest_text}")
        if row.min() < 0 or row.max() >= n_symbols:
            raise InputError(
                f"symbol ids from {row.min()} to {row.max()}, but the model has {n_symbols} "
                "symbols: text frontend and model do not belong together"
            )


@dataclass
class Timings:
    """Seconds spent in each stage of one call, and what they made."""

    stages: dict[str, float] = field(default_factory=dict)
    audio: float = 0.0  # seconds of audio made
    first_audio: float = 0.0  # seconds of work until the first samples left

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + time.perf_counter() - start

    def add(self, other: Timings, share: float) -> None:
        """Adds this text's share of a batch's work."""
        for name, seconds in other.stages.items():
            self.stages[name] = self.stages.get(name, 0.0) + seconds * share

    @property
    def total(self) -> float:
        """Seconds of work; of a batch, this text's share by length."""
        return sum(self.stages.values())

    @property
    def rtf(self) -> float:
        """Seconds of audio for each second of work."""
        return self.audio / self.total if self.total else 0.0

    def summary(self) -> dict[str, float]:
        named = {f"{name}_s": seconds for name, seconds in self.stages.items()}
        return {
            **named,
            "total_s": self.total,
            "first_audio_s": self.first_audio,
            "audio_s": self.audio,
            "rtf": self.rtf,
        }


@dataclass(frozen=True)
class Problem:
    """An utterance that the acoustic model may not have spoken as written."""

    utterance: int  # its number, from 0
    text: str  # as written
    what: str  # what happened
    advice: str  # what to do about it

    def __str__(self) -> str:
        return f"{shown(self.text)}: {self.what}; {self.advice}"


def shown(text: str, longest: int = 48) -> str:
    """A text in quotes, in one line, with dots for what is too long."""
    text = " ".join(text.split())
    return f'"{text if len(text) <= longest else text[: longest - 3].rstrip() + "..."}"'


@dataclass(frozen=True, eq=False)
class Audio:
    """A spoken text, with everything on the way to it, one entry for each utterance.

    `pitches` and `alignments` are None where the acoustic model has none.
    """

    text: str
    samples: np.ndarray  # float32 [T_audio] in [-1, 1]
    sampling_rate: int
    hop_length: int  # samples of a mel frame
    utterances: tuple[Utterance, ...]
    unspoken: tuple[Unspoken, ...]
    starts: tuple[float, ...]  # seconds at which each utterance begins
    mels: tuple[np.ndarray, ...]  # float32 [n_mels, T_mel]
    durations: tuple[np.ndarray, ...]  # int64 [T_text], frames
    pitches: tuple[np.ndarray, ...] | None  # float32 [T_text], Hz
    alignments: tuple[np.ndarray, ...] | None  # float32 [decoder steps, T_text]: attention; rows sum to 1
    notes: tuple[str, ...]  # how an utterance that was spoken again was; "" for most
    problems: tuple[Problem, ...]  # what may not be as written; empty if all is well
    timings: Timings

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sampling_rate

    @property
    def frame_seconds(self) -> float:
        return self.hop_length / self.sampling_rate

    @property
    def mel(self) -> np.ndarray:
        """All utterances' mels in a row, float32 [n_mels, T_mel], without the pauses."""
        return np.concatenate(self.mels, axis=1)
