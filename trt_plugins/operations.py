"""`repeat` and `add_pos_enc` on the CUDA kernels, as operations of a network: `FastSpeech(config, KERNELS)`.

Each allocates its result and runs on PyTorch's current stream. For tensors at fixed addresses, as between two
engines, use `launch.bind` of either package. For inference only: the kernels have no gradients.
"""

import torch
from torch import Tensor

from melforge.fastspeech.operations import Operations
from melforge.trt_plugins.add_pos_enc import launch as add_pos_enc_launch
from melforge.trt_plugins.repeat import launch as repeat_launch


def repeat(x: Tensor, counts: Tensor, frames: Tensor) -> Tensor:
    """As `melforge.fastspeech.operations.repeat`; negative counts are clipped to 0."""
    x, counts, frames = x.contiguous(), counts.contiguous(), frames.contiguous()
    out = x.new_empty(x.size(0), frames.size(0), x.size(2))
    repeat_launch.bind(x, counts, frames, out)(torch.cuda.current_stream(x.device).cuda_stream)
    return out


def add_pos_enc(x: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
    """As `melforge.fastspeech.operations.add_pos_enc`, for x and table of one type."""
    x, lengths, table = x.contiguous(), lengths.contiguous(), table.contiguous()
    out = torch.empty_like(x)
    add_pos_enc_launch.bind(x, lengths, table, out)(torch.cuda.current_stream(x.device).cuda_stream)
    return out


KERNELS = Operations(repeat, add_pos_enc)
