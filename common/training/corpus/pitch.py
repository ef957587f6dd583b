"""The pitch of recordings at a prepared corpus's rate, by WORLD's DIO with StoneMask."""

import numpy as np

from melforge.common.training.corpus.dataset import HOP, RATE

FLOOR, CEILING = 65.0, 500.0  # Hz


def pitch_contour(audio: np.ndarray) -> np.ndarray:
    """Hz in every frame of audio at `RATE`, float64 `[frames]`, 0 where it is unvoiced."""
    import pyworld

    audio = audio.astype(np.float64)
    contour, times = pyworld.dio(audio, RATE, f0_floor=FLOOR, f0_ceil=CEILING, frame_period=HOP / RATE * 1000)
    return pyworld.stonemask(audio, contour, times, RATE)


def pitch_per_symbol(audio: np.ndarray, durations: np.ndarray) -> np.ndarray:
    """Mean pitch in Hz of each symbol's voiced frames, 0 where none is voiced, float32 `[symbols]`."""
    contour = pitch_contour(audio)[: durations.sum()]
    owner = np.repeat(np.arange(len(durations)), durations)[: len(contour)]
    voiced = contour > 0
    totals = np.bincount(owner[voiced], contour[voiced], minlength=len(durations))
    counts = np.bincount(owner[voiced], minlength=len(durations))
    return (totals / np.maximum(counts, 1)).astype(np.float32)
