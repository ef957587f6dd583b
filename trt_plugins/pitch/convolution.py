"""Convolutions over mels on kernels of our own, whose products are of float16 or exact."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from melforge.common.errors import InputError
from melforge.trt_plugins.graphs import KernelModule, TritonLaunch, overflows

kernels = KernelModule("melforge.trt_plugins.pitch.kernels")

INPUT_FRAMES = 16  # of a program
# Tiles are the same for any batch and length, so that each sum is added in one order.
CONV_ROWS, CONV_DEPTH, CONV_WARPS = 64, 64, 4
# Columns of a program, for outputs of up to WIDE channels and of more.
WIDE, NARROW_COLUMNS, WIDE_COLUMNS = 512, 32, 128
# Exact products have no tensor cores: a thread holds its operands of a whole step in registers, so that
# steps are the shortest that tl.dot takes, and each thread has 16 sums.
EXACT_ROWS, EXACT_COLUMNS, EXACT_DEPTH, EXACT_WARPS = 32, 32, 16, 2


def time_major(mel: Tensor, lengths: Tensor, source: Tensor | None = None) -> Tensor:
    """mel (B, n_mels, T), as the first convolution takes it, and the noise of a source -> (B, T, C)."""
    batch, mels, frames = mel.shape
    noise = 0 if source is None else source.shape[1] - 2
    out = mel.new_empty(batch, frames, mels + noise)
    TritonLaunch(
        kernels.input_kernel,
        (-(-frames // INPUT_FRAMES), batch),
        (mel, source if noise else mel, lengths, out, frames),  # without noise no source is read
        {"MELS": mels, "NOISE": noise, "COLUMNS": power_above(mels + noise), "BLOCK": INPUT_FRAMES},
    )()
    return out


def power_above(count: int) -> int:
    """The power of two that is no smaller."""
    return 1 << max(count - 1, 0).bit_length()


class KernelConvolution(nn.Module):
    """Weights (taps, C in, C out), in half precision unless `exact`, and the bias; `name` is the layer's."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: nn.Conv1d, name: str, exact: bool = False):
        super().__init__()
        assert conv.bias is not None
        self.name = name
        self.dilation = conv.dilation[0]
        kind = torch.float32 if exact else torch.float16
        # Both in one loop: loops on all cores wait for each other where others use some of them.
        turned = conv.weight.detach().permute(2, 1, 0).to(kind, memory_format=torch.contiguous_format)
        weight = turned.contiguous()  # of the same type nothing was copied
        if overflows(weight):
            raise InputError("weights are larger than half precision can hold; use another backend")
        self.register_buffer("weight", weight)
        self.register_buffer("bias", conv.bias.detach())

    def forward(
        self, x: Tensor, lengths: Tensor, leaks: bool = True, residual: bool = False, turned: bool = False
    ) -> Tensor:
        """x (B, T, C in) -> (B, T, C out), or `turned` (B, C out, T); zeros behind the items' `lengths`."""
        (batch, frames, depth), weight = x.shape, self.weight
        taps, _, width = weight.shape
        out = x.new_empty((batch, width, frames) if turned else (batch, frames, width))
        columns = NARROW_COLUMNS if width <= WIDE else WIDE_COLUMNS
        tile = {"BM": CONV_ROWS, "BN": columns, "BK": CONV_DEPTH, "num_warps": CONV_WARPS}
        if weight.dtype == torch.float32:
            tile = {"BM": EXACT_ROWS, "BN": EXACT_COLUMNS, "BK": EXACT_DEPTH, "num_warps": EXACT_WARPS}
        TritonLaunch(
            kernels.conv_kernel,
            (-(-frames // tile["BM"]), -(-width // tile["BN"]), batch),
            (x, weight, self.bias, lengths, out, frames, self.dilation),
            {"DEPTH": depth, "WIDTH": width, "TAPS": taps, "LEAKS": leaks, "RESIDUAL": residual}
            | {"TURNED": turned, **tile},
            [(self.name, lambda: out if turned else (out - x if residual else out).mT)],
        )()
        return out
