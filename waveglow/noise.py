"""WaveGlow's input noise z: its numbers, its order and its scale, for numpy arrays and torch tensors.

z (B, n_group, L) starts with the channels that pass through every flow. The early outputs follow in the order
in which they are used when generating, the last flow's first.
"""

from __future__ import annotations

import numpy as np

from common.arrays import Array, contiguous
from common.errors import InputError
from common.noise import Draw, draw
from waveglow.config import WaveglowConfig


def noise_shape(config: WaveglowConfig, batch: int, frames: int) -> tuple[int, int, int]:
    """The shape of z for mels of `frames` frames."""
    return (batch, config.n_group, config.noise_length(frames))


def draw_noise(config: WaveglowConfig, first: int, last: int, seed: int, draw: Draw = draw) -> Array:
    """Unit noise z (1, n_group, L) float32 for frames `first` to `last` (exclusive) of a mel.

    Numbered step by step, so that a shorter mel's noise is the beginning of a longer one's.
    """
    _, channels, before = noise_shape(config, 1, first)
    length = noise_shape(config, 1, last)[2] - before
    drawn = draw("normal", [seed], before * channels, length * channels)
    return contiguous(drawn.reshape(1, length, channels).swapaxes(1, 2))


def scale_noise(z: Array, config: WaveglowConfig, sigma: float, scale_early: bool = True) -> Array:
    """Unit noise z times its standard deviation `sigma`.

    The published PyTorch program scales all channels; the published ONNX and TensorRT programs do not scale
    the early outputs' noise, which `scale_early=False` reproduces.
    """
    if not 0 <= sigma < float("inf"):
        raise InputError(f"sigma must be a number from 0, not {sigma}")
    if scale_early:
        return z * np.float32(sigma) if isinstance(z, np.ndarray) else z * sigma
    scales = np.ones((1, config.n_group, 1), np.float32)
    scales[:, : config.n_remaining] = sigma
    if isinstance(z, np.ndarray):
        return z * scales
    return z * z.new_tensor(scales.tolist())
