"""The comparison of two tensors, and of a sentence spoken on two backends, with their tolerances."""

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.audio.contract import MelContract
from common.audio.mel import mel_spectrogram
from common.speech import Audio
from common.stages.choose import KERNELS

# The largest error of a tensor, as a part of its largest value. docs/verify.md gives the reasons.
TOLERANCES = {"onnx": {"fp32": 1e-4}, "trt": {"fp32": 3e-2, "fp16": 5e-2}, KERNELS: {"fp16": 5e-2}}
# The least scale of a tensor: values near zero need no smaller tolerance.
SMALLEST_SCALE = 0.05
# A stage that feeds its outputs back amplifies the rounding of its steps.
FEEDBACK = 10.0
# The mean difference of two mels in their own unit, the natural logarithm: 0.115 is a decibel.
MEL_TOLERANCES = {"onnx": {"fp32": 0.01}, "trt": {"fp32": 0.05, "fp16": 0.1}}
# The part of the symbols whose durations may differ: they lie near the middle between two frames.
DURATIONS_TOLERANCE = 0.1


@dataclass
class Comparison:
    """One tensor on both sides; of several calls of its stage, the one that is furthest out."""

    stage: str
    name: str
    layer: bool
    tolerance: float  # times `scale`
    calls: int = 0
    call: int = 0  # the one that the rest is about
    shape: tuple[int, ...] = ()
    max_error: float = 0.0
    mean_error: float = 0.0
    relative: float = 0.0  # root mean square of the error, over that of PyTorch's values
    scale: float = SMALLEST_SCALE
    at: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)  # PyTorch's and the other's, there
    reason: str = ""  # why nothing could be compared

    @property
    def full_name(self) -> str:
        return f"{self.stage}: {self.name}"

    @property
    def share(self) -> float:
        """The largest error as a part of the largest value."""
        return self.max_error / self.scale

    @property
    def ok(self) -> bool:
        return not self.reason and self.max_error <= self.tolerance * self.scale  # false for NaN

    @property
    def snr(self) -> float:
        """In decibels."""
        return float("inf") if not self.relative else -20 * float(np.log10(self.relative))

    def add(self, wanted: np.ndarray, got: np.ndarray) -> None:
        """Takes in one call's values, and keeps the worse one."""
        self.calls += 1
        new = replace(self, call=self.calls, shape=wanted.shape, max_error=0.0, reason="")
        if got.shape != wanted.shape:
            new.reason = f"its shape is {list(got.shape)}, not {list(wanted.shape)}"
            new.max_error = float("inf")
        elif wanted.size:
            new._measure(wanted.astype(np.float64), got.astype(np.float64))
        worse = new.share / max(new.tolerance, 1e-12) >= self.share / max(self.tolerance, 1e-12)
        if self.calls == 1 or (worse and not self.reason):
            self.__dict__.update(new.__dict__)

    def _measure(self, wanted: np.ndarray, got: np.ndarray) -> None:
        error = np.abs(got - wanted)
        error = np.where(np.isfinite(error), error, np.inf)
        place = int(error.argmax())
        self.at = tuple(int(i) for i in np.unravel_index(place, error.shape))
        self.values = (float(wanted.flat[place]), float(got.flat[place]))
        self.max_error, self.mean_error = float(error.max()), float(error.mean())
        power = float(np.square(wanted).mean())
        with np.errstate(over="ignore", invalid="ignore"):
            self.relative = float(np.sqrt(np.square(error).mean() / power)) if power else float(error.max())
        self.scale = max(SMALLEST_SCALE, float(np.abs(wanted).max()))

    def row(self) -> dict[str, Any]:
        return for_json(dataclasses.asdict(self) | {"ok": self.ok, "share": self.share, "snr_db": self.snr})


def for_json(row: dict[str, Any]) -> dict[str, Any]:
    """The row with infinities and NaN as strings."""
    return {key: str(x) if isinstance(x, float) and not np.isfinite(x) else x for key, x in row.items()}


@dataclass(frozen=True, eq=False)
class Speech:
    """The same sentence on both sides, end to end."""

    wanted: Audio
    got: Audio
    tolerance: float  # of the mean difference of mels, natural logarithm
    judged: bool  # False: the model is autoregressive, and rounding may change its path
    reach: tuple[np.ndarray, np.ndarray]  # the aligned frames of each side
    other_durations: int  # symbols with durations that differ from PyTorch's
    symbols: int

    @property
    def mel_error(self) -> np.ndarray:
        """(n_mels, frames) where both have the same symbols at the same lengths."""
        ours, theirs = self.reach
        return np.abs(self.got.mel[:, theirs] - self.wanted.mel[:, ours])

    def audio_mel_error(self, contract: MelContract) -> float:
        """The mean difference of the mels of the audio."""
        found = []
        for audio, frames in zip((self.wanted, self.got), self.reach, strict=True):
            mels = []
            for start, mel in zip(audio.starts, audio.mels, strict=True):
                first = round(start * audio.sampling_rate)
                samples = audio.samples[first : first + mel.shape[1] * audio.hop_length]
                mels.append(mel_spectrogram(samples, contract)[:, : mel.shape[1]])
            found.append(np.concatenate(mels, axis=1)[:, frames])
        return mean(np.abs(found[1] - found[0]))

    @property
    def snr(self) -> float | None:
        """Of the samples, in decibels; None where they are not as many."""
        wanted, got = self.wanted.samples.astype(np.float64), self.got.samples.astype(np.float64)
        if wanted.shape != got.shape:
            return None
        noise = np.square(got - wanted).sum()
        return float(10 * np.log10(np.square(wanted).sum() / noise)) if noise else float("inf")

    def report(self, contract: MelContract) -> dict[str, Any]:
        mel, audio_mel = mean(self.mel_error), self.audio_mel_error(contract)
        near = max(mel, audio_mel) <= self.tolerance and bool(len(self.reach[0]))
        near = near and self.other_durations <= DURATIONS_TOLERANCE * self.symbols
        return {
            "frames": (self.wanted.mel.shape[1], self.got.mel.shape[1]),
            "frames_compared": len(self.reach[0]),
            "symbols": self.symbols,
            "other_durations": self.other_durations,
            "mel": mel,
            "audio_mel": audio_mel,
            "audio_snr_db": self.snr,
            "tolerance": self.tolerance,
            "judged": self.judged,
            "ok": near or not self.judged,
            "within": near,
        }


def mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else 0.0


def shared_frames(wanted: Audio, got: Audio) -> tuple[tuple[np.ndarray, np.ndarray], int, int]:
    """The frames, in each mel, of symbols with equal durations; the number of other symbols, and of all."""
    ours, theirs, other, symbols = [], [], 0, 0
    starts = [0, 0]
    for a, b, mel_a, mel_b in zip(wanted.durations, got.durations, wanted.mels, got.mels, strict=True):
        if mel_a.shape[1] == mel_b.shape[1] and (a.sum() != mel_a.shape[1] or np.array_equal(a, b)):
            ours.append(starts[0] + np.arange(mel_a.shape[1]))
            theirs.append(starts[1] + np.arange(mel_b.shape[1]))
        else:
            begins = [np.cumsum(d) - d for d in (a, b)]
            for length, first, second in zip(a[a == b], *(x[a == b] for x in begins), strict=True):
                ours.append(starts[0] + first + np.arange(length))
                theirs.append(starts[1] + second + np.arange(length))
        other += int((a != b).sum())
        symbols += len(a)
        starts = [starts[0] + mel_a.shape[1], starts[1] + mel_b.shape[1]]
    a, b = (np.concatenate([*x, []]).astype(int) for x in (ours, theirs))
    inside = (a < starts[0]) & (b < starts[1])
    return (a[inside], b[inside]), other, symbols
