"""The length regulator of FastPitch and FastSpeech in two launches, for an encoder and a decoder of kernels.

`regulating` and `expanding` compute what the models' drivers compute with array operations between their two
engines: durations rounded to whole frames, and for each frame the symbol that it repeats.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from melforge.common.engines import Run
from melforge.common.engines.limits import PLAIN
from melforge.common.synthesis.regulation import Regulation
from melforge.fastpitch.config import LONGEST_SYMBOL
from melforge.trt_plugins.graphs import KernelModule, TritonLaunch
from melforge.trt_plugins.transformer.fold import block_of

kernels = KernelModule("melforge.trt_plugins.transformer.kernels")

INDEX_ROWS = 16


def regulating(encode: Run) -> Run:
    """The encoder's run with what follows it.

    It takes `settings` beside the encoder's inputs: FastPitch's float32 [B, 3, N] (pace, factor and shift of
    the pitch) or FastSpeech's [B, 1, N] (what durations are multiplied by). It gives `encoded`, `repeats`
    int64 [B, N], `lengths` int64 [B] and, of a model with pitch, `pitch` and `numbers` float32 [2, B, N]:
    durations and pitch for the host.
    """

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = dict(inputs)
        settings = given.pop("settings")
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
        sources = duration, pitch, inputs["lengths"], settings
        outputs = made["repeats"], made.get("pitch"), made["lengths"], made.get("numbers")
        options = {"LONGEST": LONGEST_SYMBOL, "HALF_UP": pitch is not None, "BLOCK": block_of(size)}
        TritonLaunch(kernels.durations_kernel, (batch,), (*sources, *outputs, size, batch), options)()
        return made

    return run


def expanding(decode: Run) -> Run:
    """The decoder's run with what precedes it: the index [B, T] of each frame's symbol.

    It takes `repeats` int64 [B, N] and `frames` int64 [T] in place of `repeat_index` and `mel_lengths`.
    """

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = dict(inputs)
        repeats, frames = given.pop("repeats"), len(given.pop("frames"))
        batch, text = repeats.shape
        index, mel_lengths = repeats.new_empty(batch, frames), repeats.new_empty(batch)
        grid, options = (-(-frames // INDEX_ROWS), batch), {"BLOCK": block_of(text), "BM": INDEX_ROWS}
        TritonLaunch(kernels.index_kernel, grid, (repeats, index, mel_lengths, text, frames), options)()
        return decode({**given, "repeat_index": index, "mel_lengths": mel_lengths})

    return run


def kernel_regulation(device: str) -> Regulation | None:
    """What the models' `StagePlan.between` names; None where the kernels do not run."""
    return None if PLAIN.lacking(device) else Regulation(regulating, expanding)
