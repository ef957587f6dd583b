"""The computation between encoder and decoder where both run on kernels: one launch on either side.

The functions replace those of the same names beside the models' drivers, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fastpitch.config import LONGEST_SYMBOL
from trt_plugins.transformer.fold import block_of

Run = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
INDEX_ROWS = 16


def regulating(encode: Run) -> Run:
    """The encoder and the durations, with FastPitch's `settings` or FastSpeech's `alpha`."""

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        from trt_plugins.transformer import kernels

        given = dict(inputs)
        alpha = given.pop("alpha", None)
        settings = given.pop("settings", alpha)
        encoded = encode(given)
        duration, pitch = encoded["duration"], encoded.get("pitch")
        batch, size = duration.shape
        made = {
            "encoded": encoded["encoded"],
            "lengths": torch.empty_like(inputs["lengths"]),
            "repeats": torch.empty_like(duration, dtype=torch.int64),
        }
        if pitch is not None:
            made["pitch"], made["numbers"] = torch.empty_like(pitch), duration.new_empty(2, batch, size)
        kernels.durations_kernel[(batch,)](
            duration,
            pitch,
            inputs["lengths"],
            settings,
            made["repeats"],
            made.get("pitch"),
            made["lengths"],
            made.get("numbers"),
            size,
            batch,
            LONGEST=LONGEST_SYMBOL,
            HALF_UP=alpha is None,
            BLOCK=block_of(size),
        )
        return made

    return run


def expanding(decode: Run) -> Run:
    """Each frame's symbol index, and the decoder."""

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        from trt_plugins.transformer import kernels

        given = dict(inputs)
        repeats, frames = given.pop("repeats"), len(given.pop("frames"))
        batch, text = repeats.shape
        index, mel_lengths = repeats.new_empty(batch, frames), repeats.new_empty(batch)
        kernels.index_kernel[(-(-frames // INDEX_ROWS), batch)](
            repeats, index, mel_lengths, text, frames, BLOCK=block_of(text), BM=INDEX_ROWS
        )
        return decode({**given, "repeat_index": index, "mel_lengths": mel_lengths})

    return run
