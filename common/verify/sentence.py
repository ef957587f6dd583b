"""A spoken sentence on two backends compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.audio.contract import MelContract
from common.audio.mel import mel_spectrogram
from common.runner import TextToSpeech
from common.speech import Audio, Controls
from common.text import Frontend

# The mean difference of two mels in their own unit, the natural logarithm: 0.115 is a decibel.
MEL_TOLERANCES = {"onnx": {"fp32": 0.01}, "trt": {"fp32": 0.05, "fp16": 0.1}}
# Of the symbols, so many may last other than on PyTorch, where a duration lay near the middle of two frames.
DURATIONS_TOLERANCE = 0.1


@dataclass(frozen=True, eq=False)
class Speech:
    """The same sentence by both sides, each from its own text to its own audio."""

    wanted: Audio
    got: Audio
    tolerance: float  # of the mean difference of mels, natural logarithm
    judged: bool  # False: the model is autoregressive, and rounding may change its path
    reach: tuple[np.ndarray, np.ndarray]  # the frames of either that belong together
    other_durations: int  # symbols that last other than on PyTorch
    symbols: int

    @property
    def mel_error(self) -> np.ndarray:
        """(n_mels, frames) where both have the same symbols at the same lengths."""
        ours, theirs = self.reach
        return np.abs(self.got.mel[:, theirs] - self.wanted.mel[:, ours])

    @property
    def frames(self) -> tuple[int, int]:
        return self.wanted.mel.shape[1], self.got.mel.shape[1]

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
            "frames": self.frames,
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
    """The frames of symbols that last as long on both sides, in either's mel; and how many do not, of all."""
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


def speak(
    text: str, frontend: Frontend, drivers: Mapping[str, Any], sampling_rate: int, controls: Controls | None
) -> Audio:
    """The sentence by the drivers of each kind."""
    return TextToSpeech(frontend, **drivers, sampling_rate=sampling_rate).speak(text, controls)
