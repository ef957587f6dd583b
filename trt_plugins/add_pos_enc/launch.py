"""Launches the kernel of `add_pos_enc`, on addresses (for a plugin) or on tensors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from melforge.trt_plugins.kernel import ROWS, Four, Launch, widest_word

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = Path(__file__).with_name("add_pos_enc.cu")
# A type's name in the kernel's entry points, and its size in bytes.
TYPES = {"float32": ("float", 4), "float16": ("half", 2)}


def launch(device: int, dtype: str, sizes: Four, addresses: Four, keep: tuple = ()) -> Launch:
    """`sizes` B, T, C and the table's rows; `addresses` of x, lengths, table and out."""
    batch, frames, channels, positions = sizes
    if positions <= frames:
        raise ValueError(
            f"the table encodes positions up to {positions - 1}, and x has {frames}: "
            f"it needs {frames + 1} rows"
        )
    name, number_bytes = TYPES[dtype]
    row_bytes = channels * number_bytes
    x, _, table, out = addresses
    word = widest_word((16, number_bytes), row_bytes, x, table, out)
    rows = batch * frames if channels else 0
    arguments = (*addresses, rows, frames, row_bytes // word)
    return Launch(SOURCE, f"add_pos_enc_{name}_{word}", device, -(-rows // ROWS), arguments, keep)


def bind(x: Tensor, lengths: Tensor, table: Tensor, out: Tensor) -> Launch:
    """x (B, T, C), lengths (B,) int64, table (above T, C) -> the launch that fills out (B, T, C)."""
    from melforge.trt_plugins.tensors import dtype_name, require

    require("x", x, (None, None, None), TYPES, x.device)
    batch, frames, channels = x.shape
    require("lengths", lengths, (batch,), ("int64",), x.device)
    require("table", table, (None, channels), (dtype_name(x),), x.device)
    require("out", out, (batch, frames, channels), (dtype_name(x),), x.device)
    tensors = (x, lengths, table, out)
    sizes = (batch, frames, channels, len(table))
    addresses = tuple(tensor.data_ptr() for tensor in tensors)
    return launch(x.device.index, dtype_name(x), sizes, addresses, keep=tensors)
