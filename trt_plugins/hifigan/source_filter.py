"""HiFi-GAN's generator with a harmonic source on kernels of our own.

The products of the generator's convolutions are of float16, all else is float32.
"""

from __future__ import annotations

import functools
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from melforge.common.errors import InputError
from melforge.hifigan.source_filter import MAPS, SourceFilterGenerator
from melforge.trt_plugins.graphs import TritonLaunch

JOIN_FRAMES = 128  # of a program
INPUT_FRAMES = 16
# Tiles are the same for any batch and length, so that each sum is added in one order.
CONV_ROWS, CONV_DEPTH, CONV_WARPS = 64, 64, 4
# Columns of a program, for outputs of up to WIDE channels and of more.
WIDE, NARROW_COLUMNS, WIDE_COLUMNS = 512, 32, 128
# Exact products have no tensor cores: a thread holds its operands of a whole step in registers, so that
# steps are the shortest that tl.dot takes, and each thread has 16 sums.
EXACT_ROWS, EXACT_COLUMNS, EXACT_DEPTH, EXACT_WARPS = 32, 32, 16, 2
TABLE_ROWS, TABLE_COLUMNS, TABLE_WARPS = 32, 64, 4
WINDOW_FRAMES, WINDOW_SAMPLES = 32, 32  # of programs of pulses
FILTER_ROWS, FILTER_FRAMES = 32, 32
HOPS, HOP_SAMPLES = 32, 32


def join_source(pitch: Tensor, noise: Tensor, hop: int) -> Tensor:
    """As `melforge.hifigan.infer.join_source`, in one launch on the current stream."""
    from melforge.trt_plugins.hifigan import source_kernels

    batch, frames = pitch.shape
    channels = noise.shape[1] // frames
    out = pitch.new_empty(batch, 2 + channels, frames)
    grid = -(-frames // JOIN_FRAMES), batch
    options = {"HOP": hop, "CHANNELS": channels, "COLUMNS": power_above(channels), "BLOCK": JOIN_FRAMES}
    tensors = pitch.contiguous(), noise.contiguous(), out
    TritonLaunch(source_kernels.join_kernel, grid, (*tensors, frames), options)()
    return out


def time_major(mel: Tensor, lengths: Tensor, source: Tensor | None = None) -> Tensor:
    """mel (B, n_mels, T), as the first convolution takes it, and the noise of a source -> (B, T, C)."""
    from melforge.trt_plugins.hifigan import source_kernels

    batch, mels, frames = mel.shape
    noise = 0 if source is None else source.shape[1] - 2
    out = mel.new_empty(batch, frames, mels + noise)
    TritonLaunch(
        source_kernels.input_kernel,
        (-(-frames // INPUT_FRAMES), batch),
        (mel, source if noise else mel, lengths, out, frames),  # without noise no source is read
        {"MELS": mels, "NOISE": noise, "COLUMNS": power_above(mels + noise), "BLOCK": INPUT_FRAMES},
    )()
    return out


def product(table: Tensor, data: Tensor) -> Tensor:
    """As torch.matmul of a table (count, M, K) and data (B, count, K, N), in one order for any B and N."""
    from melforge.trt_plugins.hifigan import source_kernels

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


def power_above(count: int) -> int:
    """The power of two that is no smaller."""
    return 1 << max(count - 1, 0).bit_length()


class Convolution(nn.Module):
    """Weights (taps, C in, C out), in half precision unless `exact`, and the bias."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: nn.Conv1d, exact: bool = False):
        super().__init__()
        assert conv.bias is not None
        self.dilation = conv.dilation[0]
        weight = conv.weight.detach().permute(2, 1, 0)
        weight = weight.to(torch.float32 if exact else torch.float16).contiguous()
        if not weight.isfinite().all():
            raise InputError("weights are larger than half precision can hold; use another backend")
        self.register_buffer("weight", weight)
        self.register_buffer("bias", conv.bias.detach())

    def forward(
        self, x: Tensor, lengths: Tensor, leaks: bool = True, residual: bool = False, turned: bool = False
    ) -> Tensor:
        """x (B, T, C in) -> (B, T, C out), or `turned` (B, C out, T); zeros behind the items' `lengths`."""
        from melforge.trt_plugins.hifigan import source_kernels

        batch, frames, depth = x.shape
        taps, _, width = self.weight.shape
        out = x.new_empty((batch, width, frames) if turned else (batch, frames, width))
        columns = NARROW_COLUMNS if width <= WIDE else WIDE_COLUMNS
        tile = {"BM": CONV_ROWS, "BN": columns, "BK": CONV_DEPTH, "num_warps": CONV_WARPS}
        if self.weight.dtype == torch.float32:
            tile = {"BM": EXACT_ROWS, "BN": EXACT_COLUMNS, "BK": EXACT_DEPTH, "num_warps": EXACT_WARPS}
        TritonLaunch(
            source_kernels.conv_kernel,
            (-(-frames // tile["BM"]), -(-width // tile["BN"]), batch),
            (x, self.weight, self.bias, lengths, out, frames, self.dilation),
            {"DEPTH": depth, "WIDTH": width, "TAPS": taps, "LEAKS": leaks, "RESIDUAL": residual}
            | {"TURNED": turned, **tile},
        )()
        return out


class KernelSourceFilter(nn.Module):
    """What `SourceFilterGenerator.generate` makes, with `lengths`; trt_plugins/pitch.py finds the pitch."""

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
        self.first, self.last = Convolution(network.conv_pre), Convolution(network.conv_post)
        self.blocks = nn.ModuleList(
            nn.ModuleList(Convolution(conv) for conv in block.convs) for block in cast(Any, network.resblocks)
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
        from melforge.trt_plugins.hifigan import source_kernels

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
        from melforge.trt_plugins.hifigan import source_kernels

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
        from melforge.trt_plugins.hifigan import source_kernels

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
