"""The two operations for which NVIDIA's FastSpeech brings TensorRT plugins, as plain PyTorch.

Each is made of Gather and comparisons, so that it is exact and every runtime takes its ONNX form. A network
is given its `Operations`, so that kernels can replace them there and nowhere else.

Shape letters: B batch, N steps in, T steps out, C channels.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Operations(NamedTuple):
    """`repeat` and `add_pos_enc`, with the arguments of the functions of that name below."""

    repeat: Callable[[Tensor, Tensor, Tensor], Tensor]
    add_pos_enc: Callable[[Tensor, Tensor, Tensor], Tensor]


def repeat(x: Tensor, counts: Tensor, frames: Tensor) -> Tensor:
    """Length regulator: x (B, N, C), each step as often as counts (B, N) int64 says -> (B, T, C).

    `frames` int64 (T,) counts 0, 1, ... T - 1 and so says how long the result is, whatever the counts:
    what is too long is cropped, what is too short gets zeros.
    """
    ends = counts.cumsum(1)
    # A frame shows the step behind all those that have ended by then.
    index = (ends[:, None, :] <= frames[None, :, None]).sum(2)  # (B, T)
    inside = frames[None, :] < ends[:, -1:]
    return gather_steps(x, index.clamp(max=x.size(1) - 1)) * inside[:, :, None]


def gather_steps(x: Tensor, index: Tensor) -> Tensor:
    """x (B, N, C) at index (B, T) int64 -> (B, T, C), in one Gather."""
    batch, steps, _ = x.shape
    first = torch.arange(batch, device=x.device)[:, None] * steps
    return F.embedding(index + first, x.flatten(0, 1))


def add_pos_enc(x: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
    """x (B, T, C) plus the encodings of positions 1, 2, ... lengths; behind an item's end it stays as it is.

    Row p of `table` (at least T + 1, C) encodes position p; its row 0 holds zeros.
    """
    positions = torch.arange(1, x.size(1) + 1, device=x.device)
    positions = positions[None, :] * (positions[None, :] <= lengths[:, None])
    return x + F.embedding(positions, table)


DECOMPOSED = Operations(repeat, add_pos_enc)
