"""Launches the kernel of `repeat`, on addresses (for a plugin) or on tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from melforge.trt_plugins.kernel import ROWS, Four, Launch, widest_word

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = Path(__file__).with_name("repeat.cu")
WORDS = (16, 8, 4, 2)  # bytes; the kernel has an entry point for each
NUMBER_BYTES = {"float32": 4, "float16": 2, "int32": 4}  # of x, which the kernel only copies


def launch(device: int, dtype: str, sizes: Four, addresses: Four, keep: tuple = ()) -> Launch:
    """`sizes` B, N, T, C; `addresses` of x, counts, frames and out."""
    batch, steps, frames, channels = sizes
    if not steps:
        raise ValueError("repeat needs at least one step")
    row_bytes = channels * NUMBER_BYTES[dtype]
    word = widest_word(WORDS, row_bytes, addresses[0], addresses[3])
    blocks = batch * -(-frames // ROWS) if channels else 0  # the frames of a block belong to one item
    arguments = (*addresses, steps, frames, row_bytes // word)
    return Launch(SOURCE, f"repeat_{word}", device, blocks, arguments, keep)


def bind(x: Tensor, counts: Tensor, frames: Tensor, out: Tensor) -> Launch:
    """x (B, N, C), counts (B, N) and frames (T,) int64 -> the launch that fills out (B, T, C)."""
    from melforge.trt_plugins.tensors import dtype_name, require

    require("x", x, (None, None, None), NUMBER_BYTES, x.device)
    batch, steps, channels = x.shape
    require("counts", counts, (batch, steps), ("int64",), x.device)
    require("frames", frames, (None,), ("int64",), x.device)
    require("out", out, (batch, len(frames), channels), (dtype_name(x),), x.device)
    tensors = (x, counts, frames, out)
    sizes = (batch, steps, len(frames), channels)
    addresses = tuple(tensor.data_ptr() for tensor in tensors)
    return launch(x.device.index, dtype_name(x), sizes, addresses, keep=tensors)
