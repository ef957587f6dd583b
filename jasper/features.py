"""What goes before Jasper's features (features_network.py): audio with dither, as published."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from melforge.common.noise import draw
from melforge.jasper.config import JasperConfig

NOISE_STEP = 1 << 17  # samples: dither is drawn in blocks of these, and cached


def symmetric_window(config: JasperConfig) -> np.ndarray:
    """Hann window that is zero at both ends (PyTorch's `periodic=False`), float64 [win_length]."""
    return np.hanning(config.win_length)


@functools.lru_cache(maxsize=4)
def dither_noise(dither: float, seed: int, samples: int) -> np.ndarray:
    """Normal noise float32 [samples] of this size and seed, cached for the next recording."""
    noise = np.float32(dither) * draw("normal", [seed], 0, samples)[0]
    noise.setflags(write=False)
    return noise


def put_dithered(rows: np.ndarray, audios: Sequence[np.ndarray], config: JasperConfig, seed: int = 0) -> None:
    """Fills rows [B, S] with audio [S] of each item and zeros behind it.

    Noise of the size `dither` is added to the audio, as the published programs do for inference too: without
    it, the logarithm of digital silence between words would dominate the normalisation.
    """
    samples = -(-rows.shape[1] // NOISE_STEP) * NOISE_STEP
    noise = dither_noise(config.dither, seed, samples) if config.dither else np.zeros(samples, np.float32)
    for row, audio in zip(rows, audios, strict=True):
        np.add(audio, noise[: len(audio)], out=row[: len(audio)])
        row[len(audio) :] = 0
