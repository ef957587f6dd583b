"""The comparison of two tensors, and of a sentence spoken on two backends, with their tolerances."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from melforge.common.audio.contract import MelContract
from melforge.common.audio.mel import mel_spectrogram
from melforge.common.speech import Audio

# A tensor may be off by so many times what rounding costs it, beside its precision's floor: the root mean
# square of its error, and the largest, which varies more. docs/verify.md gives the reasons.
FACTOR, LARGEST_FACTOR = 4.0, 8.0
# What tensors of zeros are compared with.
SMALLEST = 1e-6
# The mean difference of two mels in their own unit, the natural logarithm: 0.115 is a decibel.
MEL_TOLERANCES = {"onnx": {"fp32": 0.01}, "trt": {"fp32": 0.05, "fp16": 0.1}, "cuda": {"fp16": 0.1}}
# The part of the symbols whose durations may differ: they lie near the middle between two frames.
DURATIONS_TOLERANCE = 0.1
PARTING = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # differences of the mels of which the first frames are reported


@dataclass
class Comparison:
    """One tensor on both sides, in all calls of its stage; where it is, the worst element is meant."""

    stage: str
    name: str
    layer: bool
    floor: float  # the error that any tensor is allowed, relative; 0: both sides must be equal
    calls: int = 0
    call: int = 0  # with the worst element
    shape: tuple[int, ...] = ()  # in that call
    at: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)  # PyTorch's and the other's, there
    max_error: float = 0.0
    max_cost: float = 0.0  # the largest error by rounding alone
    largest: float = SMALLEST
    elements: int = 0
    absolute: float = 0.0  # sums over all elements: of the error, and of squares
    squared_error: float = 0.0
    squared_cost: float = 0.0
    squares: float = 0.0
    reason: str = ""  # why nothing could be compared

    @property
    def full_name(self) -> str:
        return f"{self.stage}: {self.name}"

    @property
    def mean_error(self) -> float:
        return self.absolute / max(self.elements, 1)

    @property
    def relative(self) -> float:
        """The root mean square of the error over that of PyTorch's values."""
        return (self.squared_error / self._power) ** 0.5

    @property
    def share(self) -> float:
        """The largest error as a part of the largest value."""
        return self.max_error / self.largest

    @property
    def tolerance(self) -> float:
        """Of `relative`."""
        return self.floor and self.floor + FACTOR * (self.squared_cost / self._power) ** 0.5

    @property
    def share_tolerance(self) -> float:
        """Of `share`."""
        return self.floor and self.floor + LARGEST_FACTOR * self.max_cost / self.largest

    @property
    def excess(self) -> float:
        """The error as a part of its tolerance: the root mean square's or the largest, whichever is more."""
        if self.reason or not self.floor:
            return float("inf") if self.reason or self.max_error else 0.0
        found = self.relative / self.tolerance, self.share / self.share_tolerance
        return float(np.max(found)) if np.isfinite(found).all() else float("inf")

    @property
    def ok(self) -> bool:
        return self.excess <= 1

    @property
    def snr(self) -> float:
        """In decibels."""
        return float("inf") if not self.relative else -20 * float(np.log10(self.relative))

    @property
    def _power(self) -> float:
        return max(self.squares, self.elements * SMALLEST**2, SMALLEST**2)

    def add(
        self, wanted: np.ndarray, got: np.ndarray, rounded: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        """Takes in one call's values. `rounded` are PyTorch's with and without rounding, of equal inputs."""
        self.calls += 1
        if got.shape != wanted.shape:
            self.call, self.shape, self.max_error = self.calls, wanted.shape, float("inf")
            self.reason = f"its shape is {list(got.shape)}, not {list(wanted.shape)}"
        if self.reason or not wanted.size:
            return
        wanted = wanted.astype(np.float64)
        error = np.abs(got.astype(np.float64) - wanted)
        error = np.where(np.isfinite(error), error, np.inf)
        if self.call == 0 or error.max() > self.max_error:
            place = int(error.argmax())
            self.call, self.shape, self.max_error = self.calls, wanted.shape, float(error.max())
            self.at = tuple(int(i) for i in np.unravel_index(place, error.shape))
            self.values = (float(wanted.flat[place]), float(got.flat[place]))
        with np.errstate(over="ignore", invalid="ignore"):
            self.largest = max(self.largest, float(np.abs(wanted).max()))
            self.elements += wanted.size
            self.absolute += float(error.sum())
            self.squared_error += float(np.square(error).sum())
            self.squares += float(np.square(wanted).sum())
        if rounded:
            cost = np.abs(rounded[0].astype(np.float64) - rounded[1])
            self.max_cost = max(self.max_cost, float(cost.max()))
            self.squared_cost += float(np.square(cost).sum())

    def row(self) -> dict[str, Any]:
        names = "stage name layer calls call shape at values max_error mean_error relative share tolerance"
        names += " share_tolerance excess ok snr reason"
        row = {name: getattr(self, name) for name in names.split()}
        return for_json({"snr_db" if name == "snr" else name: value for name, value in row.items()})


def for_json(row: dict[str, Any]) -> dict[str, Any]:
    """The row with infinities and NaN as strings."""
    return {key: str(x) if isinstance(x, float) and not np.isfinite(x) else x for key, x in row.items()}


@dataclass(frozen=True, eq=False)
class SpeechComparison:
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

    def frames_within(self, level: float) -> int:
        """How many frames, from the first on, no band of the mels differs by more than `level`."""
        frames = min(self.wanted.mel.shape[1], self.got.mel.shape[1])
        error = np.abs(self.got.mel[:, :frames] - self.wanted.mel[:, :frames]).max(axis=0, initial=0)
        parted = np.flatnonzero(~(error <= level))
        return int(parted[0]) if len(parted) else frames

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
            "frames_within": {f"{level:.0e}": self.frames_within(level) for level in PARTING},
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
