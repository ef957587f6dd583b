"""WaveGlow's input noise z, for numpy arrays and torch tensors: numbers, order, harmonics and scale.

z (B, n_group, L) starts with the channels that pass through every flow. The early outputs follow in the order
in which they are used when generating, the last flow's first.
"""

from __future__ import annotations

import importlib
import math

import numpy as np

from melforge.common.arrays import Array, as_float32, concatenate, contiguous, is_numpy
from melforge.common.audio.pitch import source_of
from melforge.common.errors import InputError
from melforge.common.noise import Draw, draw
from melforge.waveglow.config import WaveglowConfig

DECAY = 4.0  # of the harmonics' amplitudes, in 1 / (cycles a step)


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


def harmonics(pitch: Array, config: WaveglowConfig) -> Array:
    """What a network with `source` has in its unit noise: of pitch at the frames' centres, cycles a sample
    [B, T], float32 [B, n_group, L], cosines in even channels and sines in odd ones.

    At a step with phase p and pitch f, in cycles a step, they are the real and imaginary parts of

        sum over k >= 1 of exp(-DECAY k f) e(k p) = w / (1 - w),    w = exp(-DECAY f) e(p).

    So a harmonic's amplitude depends on its frequency alone, and those above half the rate of steps are
    faint. Between two centres the pitch is linear; it is constant before the first and behind the last.
    """
    functions = np if is_numpy(pitch) else importlib.import_module("torch")
    steps = config.noise_length(1)
    rate, phase = pitch * config.hop_length, source_of(pitch, config.hop_length)[:, 0]  # rate: cycles a frame
    phase = concatenate([phase[:, :1] - rate[:, :1], phase], 1)[:, :, None]
    rate = concatenate([rate[:, :1], rate, rate[:, -1:]], 1)[:, :, None]
    begin, change = rate[:, :-1], rate[:, 1:] - rate[:, :-1]
    place = as_float32(2 * _numbers(steps, pitch) + 1) / (2 * steps)
    cycles = phase + place * (begin + 0.5 * change * place)
    decay = functions.exp((begin + change * place) * (-DECAY / steps))
    angle = 2 * math.pi * (cycles - cycles // 1)
    real, imaginary = decay * functions.cos(angle), decay * functions.sin(angle)
    square = decay * decay
    size = 1 - 2 * real + square
    inside = slice(steps // 2, -(steps // 2))
    pair = [(part / size).reshape(len(pitch), -1)[:, inside][:, None] for part in (real - square, imaginary)]
    return concatenate(pair * (config.n_group // 2), 1)


def held(pitch: Array, lengths: Array) -> Array:
    """Pitch [B, T] with each item's last one, of `lengths` [B] frames, in the padding behind it."""
    functions = np if is_numpy(pitch) else importlib.import_module("torch")
    frames, last = _numbers(pitch.shape[1], pitch), lengths[:, None] - 1
    places = functions.where(frames < last, frames, last)
    return np.take_along_axis(pitch, places, 1) if is_numpy(pitch) else pitch.gather(1, places)


def _numbers(count: int, like: Array) -> Array:
    """0 to `count` - 1, beside the other array."""
    if is_numpy(like):
        return np.arange(count)
    return importlib.import_module("torch").arange(count, device=like.device)


def scale_noise(z: Array, sigma: float) -> Array:
    """Unit noise z times its standard deviation `sigma`, in all channels as the published PyTorch program."""
    if not 0 <= sigma < float("inf"):
        raise InputError(f"sigma must be a number from 0, not {sigma}")
    return z * np.float32(sigma) if isinstance(z, np.ndarray) else z * sigma
