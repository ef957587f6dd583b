"""The length regulator outside of engines: what runs between the encoder and the mel's side.

On a GPU its operations are kernels of our own, on the engines' stream; on the CPU plain numpy.
Shape letters: B batch, N symbols, T mel frames, C channels.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from melforge.common.arrays import Array, is_numpy, round_half_even
from melforge.common.engines import Run
from melforge.common.registry import load_attribute
from melforge.common.synthesis.acoustic import expanding_by_index
from melforge.fastspeech.stages import PLAN

if TYPE_CHECKING:
    from melforge.fastspeech.operations import Operations


def round_durations(duration: Array, alpha: Array | float) -> Array:
    """Whole frames int64 [B, N] of durations float32 times alpha, a number or [B, 1]; half goes to even, as
    published.
    """
    return round_half_even(duration * alpha)


def place(encoded: Array, durations: Array, mel_lengths: Array, frames: int, table: Array) -> Array:
    """encoded [B, N, C], each symbol as often as durations [B, N] say, with its position's row of the table
    (above T, C) -> float32 [B, T, C]; zeros behind an item's end.
    """
    if is_numpy(encoded):
        placed = np.zeros((len(encoded), frames, encoded.shape[2]), np.float32)
        for row, symbols, count in zip(placed, encoded, durations, strict=True):
            repeated = np.repeat(symbols, count, axis=0)[:frames]
            row[: len(repeated)] = repeated + table[1 : len(repeated) + 1]
        return placed
    counting = importlib.import_module("torch").arange(frames, device=encoded.device)
    return place_by(kernels(), encoded, durations, mel_lengths, counting, table)


def place_by(
    operations: Operations, encoded: Array, durations: Array, mel_lengths: Array, frames: Array, table: Array
) -> Array:
    """The same by a pair of operations; `frames` holds 0 to T - 1, and lengths go up to T."""
    repeated = operations.repeat(encoded, durations, frames)
    return operations.add_pos_enc(repeated, mel_lengths, table)


def kernels() -> Operations:
    """The operations as kernels, which need a GPU and PyTorch."""
    return load_attribute(PLAN.operations)


def join(encode: Run, render: Run, operations: Operations, table: Array) -> Run:
    """The whole network of its two engines: encoder -> durations -> operations -> mel.

    It takes what the stage "synthesis" takes, as torch tensors, but alpha [B], and gives `mel` and
    `durations` int64 [B, N].
    All lengths stay on the GPU and nothing waits for it, so that one CUDA graph can hold it all.
    """

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        encoded = encode({"symbols": inputs["symbols"], "lengths": inputs["lengths"]})
        durations = round_durations(encoded["duration"], inputs["alpha"][:, None])
        counting = inputs["frames"]
        mel_lengths = durations.sum(1).clamp(max=len(counting))
        placed = place_by(operations, encoded["encoded"], durations, mel_lengths, counting, table)
        rendered = render({"placed": placed, "mel_lengths": mel_lengths})
        return {"mel": rendered["mel"], "durations": durations}

    return run


def regulating(encode: Run) -> Run:
    """The encoder's run with what follows it: `repeats` int64 [B, N], of durations times `alpha` [B]."""

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        lengths = inputs["lengths"]
        encoded = encode({"symbols": inputs["symbols"], "lengths": lengths})
        repeats = round_durations(encoded["duration"], inputs["alpha"][:, None])
        return {"encoded": encoded["encoded"], "lengths": lengths.clone(), "repeats": repeats}

    return run


def expanding(decode: Run) -> Run:
    """The decoder's run with what precedes it."""
    return expanding_by_index(decode, ("encoded",))
