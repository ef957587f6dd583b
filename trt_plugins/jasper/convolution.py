"""A convolution of the encoder with what follows it, by PyTorch or by kernels, whichever is faster.

Which one is measured once for each shape, as cuDNN's benchmark mode does for its own algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.arrays import length_mask
from melforge.common.engines.cuda_graphs import capture
from melforge.common.engines.limits import limits_of
from melforge.trt_plugins.graphs import KernelModule, TritonLaunch, compile_missing, describe
from melforge.trt_plugins.jasper.tiling import CHUNK, Tiling, tilings

kernels = KernelModule("melforge.trt_plugins.jasper.kernels")

# A convolution of at most so many rows (B * T) is a product with its windows, copied side by side: cuBLAS
# divides a product's depth among processors that a convolution of few rows leaves idle.
WINDOW_ROWS = 1024
LARGEST = 65504.0  # of half precision
ALIGNED = 16  # channels: tensor descriptors need rows of whole 16 bytes
SUM_ROWS, SUM_COLUMNS = 8, 128  # of a program of sum_kernel
TUNED_WEIGHTS = 3  # convolutions of one shape that are timed: their weights do not all stay in the cache
REPLAYS = 3


class FoldedConv(nn.Module):
    """A convolution over rows (B, T, C), with its bias and without padding masks."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dilation: int = 1, stride: int = 1, groups: int = 1
    ):
        super().__init__()
        self.taps = weight.shape[2]
        self.padding = self.taps // 2 * dilation
        self.dilation, self.stride, self.groups = dilation, stride, groups
        image = weight[:, :, None].contiguous(memory_format=torch.channels_last)  # memory (C out, k, C in)
        self.weight = nn.Parameter(image, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        if stride > 1 and dilation == groups == 1:
            self.grouped = nn.Parameter(self._grouped(weight), requires_grad=False)

    def _grouped(self, weight: Tensor) -> Tensor:
        """Weights (C out, taps, stride * C in) for rows of `stride` steps each: no stride is left."""
        before = -self.padding % self.stride
        behind = -(before + self.taps) % self.stride
        return (
            F.pad(weight, (before, behind))
            .transpose(1, 2)
            .contiguous()
            .unflatten(1, (-1, self.stride))
            .flatten(2)
        )

    @property
    def rows(self) -> Tensor:
        """The weights (C out, k * C in): a view."""
        return self.weight.permute(0, 2, 3, 1).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C in) -> (B, T / stride, C out)."""
        plain = self.stride == self.dilation == self.groups == 1
        if plain and (self.taps == 1 or x.shape[0] * x.shape[1] <= WINDOW_ROWS):
            return F.linear(self._windows(x), self.rows, self.bias)
        image = x[:, None].permute(0, 3, 1, 2)  # (B, C, 1, T), whose memory is (B, 1, T, C)
        places = (1, self.stride), (0, self.padding), (1, self.dilation)
        made = F.conv2d(image, self.weight, self.bias, *places, self.groups)
        return made.permute(0, 2, 3, 1)[:, 0]

    def _windows(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, k * C), the steps under all taps side by side."""
        if self.taps == 1:
            return x
        batch, steps, channels = x.shape
        x = F.pad(x, (0, 0, self.padding, self.padding))
        return x.as_strided((batch, steps, self.taps * channels), (x.stride(0), channels, 1)).contiguous()


class Activation:
    """relu, hardtanh or selu over rows (B, T, C) of items of `lengths` (B,), with zeros behind their ends."""

    def __init__(self, name: str, lengths: Tensor, steps: int, dtype: torch.dtype):
        self.lengths, self.steps, self.dtype = lengths, steps, dtype
        # None for selu, which does more than clip.
        self.highest = {"relu": LARGEST, "hardtanh": 20.0, "selu": None}[name]

    @cached_property
    def inside(self) -> Tensor:
        """1 within an item and 0 behind it, (B, T, 1)."""
        return length_mask(self.lengths, self.steps)[:, :, None].to(self.dtype)

    @cached_property
    def _limits(self) -> tuple[Tensor, Tensor]:
        return self.inside.new_zeros(()), self.inside * (self.highest or 0.0)

    def __call__(self, x: Tensor, out: Tensor) -> Tensor:
        if self.highest is None:
            return torch.mul(F.selu(x), self.inside, out=out)
        return torch.clamp(x, *self._limits, out=out)


class JasperWeights(NamedTuple):
    conv: nn.Module  # a FoldedConv, or a separable pair of them
    residual: Tensor | None  # (C out, N) of all residual inputs of the block

    @property
    def shape(self) -> tuple:
        """What convolutions of the same shape have in common."""
        further = None if self.residual is None else self.residual.shape[1]
        conv = self.conv
        return (*conv.weight.shape, conv.dilation, further) if isinstance(conv, FoldedConv) else (further,)


@dataclass(frozen=True)
class JasperConvolution:
    """Weights on x (B, T, C in), and on the residual inputs `earlier` (B, T, N), with the activation.

    x and `out` (B, T / stride, C out) may be some columns of wider rows.
    """

    weights: JasperWeights
    x: Tensor
    earlier: Tensor | None
    activation: Activation
    out: Tensor

    @property
    def fits(self) -> bool:
        """Whether the kernels can compute it."""
        conv, residual = self.weights
        if not isinstance(conv, FoldedConv) or conv.groups > 1 or conv.bias is None:
            return False
        if conv.stride > 1 and (conv.dilation > 1 or self.x.shape[1] % conv.stride):
            return False
        widths = [*conv.weight.shape[:2], *(residual.shape[1:] if residual is not None else ())]
        return self.activation.highest is not None and all(width % ALIGNED == 0 for width in widths)

    def by_pytorch(self) -> None:
        conv, residual = self.weights
        y = conv(self.x)
        if residual is not None and self.earlier is not None:
            y = torch.addmm(y.flatten(0, 1), self.earlier.flatten(0, 1), residual.T).view(y.shape)
        self.activation(y, self.out)

    def launches(self, tiling: Tiling) -> list[TritonLaunch]:
        """The convolution's kernel, and the one that adds partial sums where the depth is split."""
        conv: Any = self.weights.conv
        x, rows, taps, padding = self.x, conv.rows, conv.taps, conv.padding
        if conv.stride > 1:
            x = x.view(len(x), -1, conv.stride * x.shape[2])
            rows, taps, padding = conv.grouped.flatten(1), conv.grouped.shape[1], -(-padding // conv.stride)
        items, steps, channels = x.shape
        columns, width = self.out.shape[2], self.out.stride(1)
        chunks = -(-channels // CHUNK)
        source = describe(x, [1, tiling.rows, CHUNK])
        weights = describe(rows, [tiling.columns, CHUNK])
        earlier, earlier_weights, further = source, weights, 0
        if self.weights.residual is not None and self.earlier is not None:
            residual = self.weights.residual
            earlier = describe(self.earlier, [1, tiling.rows, CHUNK])
            earlier_weights = describe(residual, [tiling.columns, CHUNK])
            further = -(-residual.shape[1] // CHUNK)
        parted = tiling.splits > 1
        made = self.out
        if parted:
            shape = tiling.splits, items * steps, columns
            made = torch.empty(shape, dtype=torch.float32, device=self.x.device)
        tiles = -(-steps // tiling.rows)
        size = items, steps, tiles, columns, width, self.activation.highest
        common = conv.bias, self.activation.lengths
        depth = taps * chunks, chunks, channels, padding, conv.dilation, further
        launches = [
            TritonLaunch(
                kernels.conv_kernel,
                (items * tiles, -(-columns // tiling.columns), tiling.splits),
                (source, weights, earlier, earlier_weights, *common, made, *depth, *size),
                {"PARTS": parted, "BM": tiling.rows, "BN": tiling.columns, "STAGES": tiling.stages}
                | {"num_warps": tiling.warps},
            )
        ]
        if parted:
            launches.append(
                TritonLaunch(
                    kernels.sum_kernel,
                    (-(-items * steps // SUM_ROWS), -(-columns // SUM_COLUMNS)),
                    (made, *common, self.out, items, steps, columns, width, self.activation.highest),
                    {"SPLITS": tiling.splits, "BM": SUM_ROWS, "BN": SUM_COLUMNS, "num_warps": 4},
                )
            )
        return launches

    def run(self, tiling: Tiling | None) -> None:
        """By kernels, or without a tiling by PyTorch."""
        if tiling is None:
            self.by_pytorch()
        else:
            for launch in self.launches(tiling):
                launch()


class TilingChooser:
    """The fastest way of each shape, measured on a GPU where the shape first comes."""

    def __init__(self, device: str):
        self.limits = limits_of(device)
        self.chosen: dict[tuple, Tiling | None] = {}

    def __call__(self, one: JasperConvolution, alike: Sequence[JasperWeights]) -> Tiling | None:
        """The tiling for the kernels; None: PyTorch. `alike` are all weights of this shape."""
        if not one.fits:
            return None
        key = (*one.x.shape, one.x.stride(1), one.out.stride(1), *one.weights.shape)
        if one.x.is_meta:  # compiled for a GPU elsewhere: any may be the fastest
            for way in self.ways(one):
                if way is not None:
                    one.run(way)
            return None
        if key not in self.chosen:
            if torch.cuda.is_current_stream_capturing():  # nothing can be measured
                return None
            self.chosen[key] = self._fastest([replace(one, weights=each) for each in alike[:TUNED_WEIGHTS]])
        return self.chosen[key]

    def _fastest(self, convolutions: Sequence[JasperConvolution]) -> Tiling | None:
        timed = self.times(convolutions)
        return min(timed, key=lambda way: timed[way])

    def ways(self, one: JasperConvolution) -> list[Tiling | None]:
        conv: Any = one.weights.conv
        depth = conv.taps * -(-one.x.shape[2] // CHUNK)
        if one.earlier is not None:
            depth += -(-one.earlier.shape[2] // CHUNK)
        items, steps, columns = one.out.shape
        return [None, *tilings(items, steps, columns, depth, self.limits)]

    def times(self, convolutions: Sequence[JasperConvolution]) -> dict[Tiling | None, float]:
        """Milliseconds of one of these convolutions of the same shape, in each way."""
        ways = self.ways(convolutions[0])
        compile_missing(launch for way in ways if way is not None for launch in convolutions[0].launches(way))

        from triton.runtime.errors import OutOfResources

        def time_of(way: Tiling | None) -> float:
            def run() -> None:
                for convolution in convolutions:
                    convolution.run(way)

            try:
                return milliseconds(run) / len(convolutions)
            except OutOfResources:  # another GPU has less shared memory
                return math.inf

        return {way: time_of(way) for way in ways}


def milliseconds(run: Callable[[], None]) -> float:
    """Of what `run` launches, as a CUDA graph: the fastest of some replays."""
    run()  # what loads a kernel, or tries cuDNN's algorithms, cannot be captured
    graph, _ = capture(run)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 2)]
    for mark in marks[:-1]:
        mark.record()
        graph.replay()
    marks[-1].record()
    marks[-1].synchronize()
    # The first replay also uploads the graph.
    return min(start.elapsed_time(end) for start, end in pairwise(marks[1:]))
