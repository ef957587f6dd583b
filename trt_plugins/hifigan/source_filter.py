"""HiFi-GAN's generator with a harmonic source on kernels of our own.

The products of the generator's convolutions are of float16, all else is float32.
"""

from __future__ import annotations

import functools
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from melforge.hifigan.source_filter import MAPS, SourceFilterGenerator
from melforge.trt_plugins.graphs import KernelModule, TritonLaunch
from melforge.trt_plugins.pitch.convolution import EXACT_DEPTH, KernelConvolution, power_above, time_major

source_kernels = KernelModule("melforge.trt_plugins.hifigan.source_kernels")

JOIN_FRAMES = 128  # of a program
TABLE_ROWS, TABLE_COLUMNS, TABLE_WARPS = 32, 64, 4
WINDOW_FRAMES, WINDOW_SAMPLES = 32, 32  # of programs of pulses
FILTER_ROWS, FILTER_FRAMES = 32, 32
HOPS, HOP_SAMPLES = 32, 32


def join_source(pitch: Tensor, noise: Tensor, hop: int) -> Tensor:
    """As `melforge.hifigan.infer.join_source`, in one launch on the current stream."""
    batch, frames = pitch.shape
    channels = noise.shape[1] // frames
    out = pitch.new_empty(batch, 2 + channels, frames)
    grid = -(-frames // JOIN_FRAMES), batch
    options = {"HOP": hop, "CHANNELS": channels, "COLUMNS": power_above(channels), "BLOCK": JOIN_FRAMES}
    tensors = pitch.contiguous(), noise.contiguous(), out
    TritonLaunch(source_kernels.join_kernel, grid, (*tensors, frames), options)()
    return out


def product(table: Tensor, data: Tensor) -> Tensor:
    """As torch.matmul of a table (count, M, K) and data (B, count, K, N), in one order for any B and N."""
    (batch, count, depth, columns), rows = data.shape, table.shape[1]
    out = data.new_empty(batch, count, rows, columns)
    TritonLaunch(
        source_kernels.product_kernel,
        (-(-columns // TABLE_COLUMNS), -(-rows // TABLE_ROWS), batch * count),
        (table, data, out, columns, count),
        {"ROWS": rows, "DEPTH": depth, "BM": TABLE_ROWS, "BN": TABLE_COLUMNS, "BK": EXACT_DEPTH}
        | {"num_warps": TABLE_WARPS},
    )()
    return out


class KernelSourceFilter(nn.Module):
    """What `SourceFilterGenerator.generate` makes, with `lengths`; trt_plugins/pitch finds the pitch."""

    bins: Tensor
    turns: Tensor
    counts: Tensor
    inner: Tensor
    outer: Tensor
    inner_back: Tensor
    outer_back: Tensor

    def __init__(self, network: SourceFilterGenerator):
        super().__init__()
        self.config, fourier = network.config, network.fourier
        self.first = KernelConvolution(network.conv_pre, "conv_pre")
        self.last = KernelConvolution(network.conv_post, "conv_post")
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                KernelConvolution(conv, f"resblocks.{place}.convs.{number}")
                for number, conv in enumerate(block.convs)
            )
            for place, block in enumerate(cast(Any, network.resblocks))
        )
        self.hop, self.size, self.weight = fourier.hop, fourier.size, fourier.weight
        self.before = (fourier.size - fourier.hop) // 2  # a frame's window is centred over its own hop
        self.rows, self.columns = fourier.rows, fourier.columns
        self.register_buffer("bins", fourier.bins.int())
        self.register_buffer("turns", network.turns.flatten())
        self.register_buffer("counts", fourier.counts)
        tables = fourier.tables()
        self.register_buffer("inner", tables.inner.contiguous())
        self.register_buffer("outer", tables.outer[None].contiguous())
        self.register_buffer("inner_back", tables.inner.mT.contiguous())
        self.register_buffer("outer_back", tables.outer.T[None].contiguous())

    def to(self, device: Any, dtype: Any = None) -> Self:
        """Each tensor keeps the type that its kernel takes."""
        return super().to(device)

    def generate(self, mel: Tensor, source: Tensor, lengths: Tensor) -> tuple[Tensor]:
        """mel (B, n_mels, T), source (B, 2 + noise_channels, T) -> audio (B, T * hop)."""
        mel, source = mel.contiguous(), source.contiguous()
        maps = self.last(self.body(mel, source, lengths), lengths, turned=True)
        kept, frames = self.inner.shape[1] // 2, mel.shape[2]
        sums = product(self.inner, self.pulses(source, lengths))
        spectra = product(self.outer, sums.view(-1, 1, 2 * self.columns, kept * frames))
        made = self.filtered(maps, spectra, lengths)
        sums = product(self.outer_back, made).view(-1, self.columns, 2 * kept, frames)
        return (self.overlapped(product(self.inner_back, sums), lengths),)

    def body(self, mel: Tensor, source: Tensor, lengths: Tensor) -> Tensor:
        """As `SourceFilterGenerator.body`, time-major (B, T, C)."""
        start = self.first(time_major(mel, lengths, source), lengths, leaks=False)
        made = []
        for block in self.blocks:
            x = start
            for conv in cast(Any, block):
                x = conv(x, lengths, residual=True)
            made.append(x)
        return made[0] if len(made) == 1 else functools.reduce(torch.add, made) / len(made)

    def pulses(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Windows (B, Q, P, T) of the source's pulses."""
        batch, channels, frames = source.shape
        out = source.new_empty(batch, self.columns, self.rows, frames)
        TritonLaunch(
            source_kernels.pulse_kernel,
            (-(-frames // WINDOW_FRAMES), self.size // WINDOW_SAMPLES, batch),
            (source, lengths, out, frames, channels * frames),
            {"HOP": self.hop, "BEFORE": self.before, "ROWS": self.rows, "COLUMNS": self.columns}
            | {"BLOCK": WINDOW_FRAMES, "SAMPLES": WINDOW_SAMPLES},
        )()
        return out

    def filtered(self, maps: Tensor, spectra: Tensor, lengths: Tensor) -> Tensor:
        """The pulses' spectra in the filter, and the free ones, for the transform back."""
        batch, columns, frames = maps.shape
        kept, out = len(self.bins), torch.empty_like(spectra)
        TritonLaunch(
            source_kernels.filter_kernel,
            (-(-kept // FILTER_ROWS), -(-frames // FILTER_FRAMES), batch),
            (maps, spectra, self.bins, self.turns, self.counts, lengths, out, frames, kept),
            {"BINS": columns // MAPS, "SIZE": self.size, "BM": FILTER_ROWS, "BN": FILTER_FRAMES},
        )()
        return out

    def overlapped(self, windows: Tensor, lengths: Tensor) -> Tensor:
        """Windows (B, Q, P, T), windowed again, added up (B, T * hop)."""
        batch, _, _, frames = windows.shape
        out = windows.new_empty(batch, frames * self.hop)
        begun = frames + self.size // self.hop - 1
        TritonLaunch(
            source_kernels.overlap_kernel,
            (-(-begun // HOPS), self.hop // HOP_SAMPLES, batch),
            (windows, lengths, out, frames, self.weight),
            {"HOP": self.hop, "BEFORE": self.before, "ROWS": self.rows, "COLUMNS": self.columns}
            | {"BM": HOPS, "BN": HOP_SAMPLES},
        )()
        return out
