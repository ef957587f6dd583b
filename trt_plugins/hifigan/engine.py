"""The stage `generator` (or `masked_generator`) of HiFi-GAN on an NVIDIA GPU, in half precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from melforge.common.engines import Engine
from melforge.common.engines.limits import PLAIN, PRODUCTS, Limits, Needs, limits_of
from melforge.common.engines.padded import CapturedNetwork
from melforge.common.errors import InputError
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import LAST_LEAKY_SLOPE, LEAKY_SLOPE
from melforge.hifigan.source_filter import SourceFilterGenerator
from melforge.trt_plugins.direct import Tiles
from melforge.trt_plugins.graphs import (
    KernelModule,
    KernelNetwork,
    ShapedGenerator,
    TiledTensor,
    TritonLaunch,
    Zeros,
    describe,
)
from melforge.trt_plugins.hifigan.fold import (
    CHUNK,
    ConvProduct,
    FoldedHifigan,
    HifiganLayout,
    Level,
    fold,
    layout_of,
)
from melforge.trt_plugins.hifigan.source_filter import KernelSourceFilter, join_source
from melforge.trt_plugins.noise import DrawsOnGpu

kernels = KernelModule("melforge.trt_plugins.hifigan.kernels")

WINDOW_ROWS, LAST_ROWS = 16, 128


class ConvTile(NamedTuple):
    """The tiling of a convolution: rows and columns of a program, its warps and pipeline stages."""

    rows: int
    columns: int
    warps: int
    stages: int
    cost: float  # per output element, relative to the first tile


TILES = (
    ConvTile(128, 128, 4, 3, 1.0),
    ConvTile(128, 128, 4, 4, 1.2),
    ConvTile(64, 128, 4, 4, 1.2),
    ConvTile(64, 64, 4, 4, 1.5),
    ConvTile(64, 32, 4, 4, 2.4),
)
# Two programs of the largest tile share a multiprocessor with so much memory. Where registers hold operands
# of products too, 136 bytes a thread are spilled then (sm_80: 128), and yet a mel takes 2.11 ms as sm_80,
# with eight warps 3.22. Elsewhere a program is alone there, and takes more threads.
TWO_PROGRAMS = 128 << 10
OF_ONE = tuple(tile._replace(warps=8) if tile.rows == 128 else tile for tile in TILES)
MOST_ROWS = max(tile.rows for tile in TILES)
# With ALONE's four stages only one program fits a multiprocessor; with three, two programs overlap products
# and loads. So ALONE is faster if there are few programs, and slower otherwise.
ALONE, ALONE_COST = TILES[1], 0.8


def tile_for(product: ConvProduct, rows: int, limits: Limits) -> ConvTile:
    """The tile with the least estimated time for a product of `rows` on a GPU.

    Programs of a single block take equally long, so that a partial last wave counts as a whole one. Programs
    of several blocks start with the longest, and shorter ones fill the gaps.
    """

    processors = limits.multiprocessors

    def time(tile: ConvTile) -> float:
        programs = -(-rows // tile.rows) * product.spread * (product.columns // tile.columns)
        rounds = programs / processors * sum(product.taps) / max(product.taps)
        all_programs = programs * len(product.taps)
        if product.summed or len(product.taps) == 1:
            rounds, all_programs = -(-programs // processors), programs
        few = tile.stages == ALONE.stages and tile.rows == ALONE.rows and all_programs <= 2 * processors
        return max(rounds, 1) * tile.rows * tile.columns * (ALONE_COST if few else tile.cost)

    tiles = TILES if limits.shared_bytes >= TWO_PROGRAMS else OF_ONE
    fitting = (tile._replace(columns=min(tile.columns, product.columns)) for tile in tiles)
    return min(fitting, key=time)


class LevelBuffer(NamedTuple):
    """A level's activations, (blocks, rows, C) float16; zero outside the items."""

    memory: Tensor
    blocks: int
    rows: int  # of a block
    channels: int

    def tiles(self, unit: int, *block: int) -> Tiles | TiledTensor:
        """Of the memory with `unit` steps per row."""
        return describe(self.memory, block, unit * self.channels)

    @property
    def step(self) -> int:
        """Rows from one block to the next; 0 if all blocks read the same."""
        return self.rows if self.blocks > 1 else 0


class HifiganBuffers:
    """Of one batch size and length."""

    def __init__(
        self, config: HifiganConfig, folded: FoldedHifigan, batch: int, frames: int, zeros: Zeros, device: str
    ):
        self.config, self.folded, self.device = config, folded, device
        self.layout: HifiganLayout = folded.layout
        self.batch, self.frames = batch, frames
        self.stride = frames + self.layout.margin  # frames from one item to the next
        self.limits = limits_of(device)
        # By itself: whoever holds it would hold all.
        self.audio = torch.zeros(batch, frames * config.hop_length, device=device)
        self.buffers = self._level_buffers(zeros)
        rows, width = self.buffers[0]["mean"].rows, self.layout.window * CHUNK
        self.windows = LevelBuffer(zeros(rows * width, dtype=torch.float16), 1, rows, width)

    def _rows(self, level: Level) -> int:
        """Rows for all items and margins, rounded up to whole tiles."""
        tile = MOST_ROWS * level.group
        within = (self.batch * self.stride - self.layout.margin) * level.rate + 1
        return 2 * self.layout.margin * level.rate + -(-within // tile) * tile

    def _level_buffers(self, zeros: Zeros) -> list[dict[str, LevelBuffer]]:
        """Each level's buffers. Levels whose items have the same addresses share them."""
        layout, folded = self.layout, self.folded
        count = len(layout.order)
        sizes_at: dict[int, int] = {}
        units: dict[int, int] = {}
        for index, level in enumerate(layout.levels):
            width = level.rate * level.channels  # of a frame
            products = folded.blocks[index - 1] if index else ()
            units[width] = math.lcm(
                units.get(width, 1), *(x.group * x.spread * level.channels for x in products), level.channels
            )
            sizes_at[width] = max(sizes_at.get(width, 0), self._rows(level) * level.channels)
        made: dict[tuple[int, str], Tensor] = {}
        buffers = []
        for index, level in enumerate(layout.levels):
            width = level.rate * level.channels
            size = -(-sizes_at[width] // units[width]) * units[width]
            blocks = {"start": 1, "first": count, "second": count, "mean": 1} if index else {"mean": 1}
            level_buffers = {}
            for name, number in blocks.items():
                memory = made.get((width, name))
                if memory is None:
                    memory = made[width, name] = zeros(number * size, dtype=torch.float16)
                level_buffers[name] = LevelBuffer(memory, number, size // level.channels, level.channels)
            buffers.append(level_buffers)
        return buffers

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[TritonLaunch], dict[str, Tensor]]:
        self.inputs = inputs
        config, folded, layout = self.config, self.folded, self.layout
        levels, margin = layout.levels, layout.margin
        buffers, windows = self.buffers, self.windows
        window = TritonLaunch(
            kernels.window_kernel,
            (-(-self.frames // WINDOW_ROWS), self.batch, layout.window),
            (self.inputs["mel"], windows.memory, self.inputs["lengths"], self.frames, self.stride),
            {
                "MELS": config.n_mel_channels,
                "MARGIN": margin,
                "WIDTH": windows.channels,
                "BLOCK": WINDOW_ROWS,
            },
        )
        first = self._conv(folded.first, levels[0], windows, buffers[0]["mean"], chunk=CHUNK)
        launches = [window, self._showing(first, 0, "mean")]
        for index, up in enumerate(folded.ups):
            before, after, buffer = levels[index], levels[index + 1], buffers[index + 1]
            rate, kernel = config.upsample_rates[index], config.upsample_kernel_sizes[index]
            source = x = buffer["start"]  # the convolution's input, and the residual
            late = (kernel - rate) // 2
            launch = self._conv(up, before, buffers[index]["mean"], x, phases=rate, late=late)
            launches.append(self._showing(launch, index + 1, "start", 0))
            for turn, product in enumerate(folded.blocks[index], start=1):
                name = "second"
                if product.summed:
                    name = "mean"
                    slope = LAST_LEAKY_SLOPE if index == len(folded.ups) - 1 else LEAKY_SLOPE
                    launch = self._conv(product, after, source, buffer["mean"], x, slope=slope)
                elif product.residual:  # `out` must not be read by other programs of the launch
                    name = "second" if source is buffer["first"] else "first"
                    launch = self._conv(product, after, source, buffer[name], x)
                    source = x = buffer[name]
                else:
                    source = buffer["second"]
                    launch = self._conv(product, after, x, source)
                launches.append(self._showing(launch, index + 1, name, turn))
        level, buffer, samples = levels[-1], buffers[-1]["mean"], self.audio.shape[1]
        tensors = buffer.memory, folded.last, folded.last_bias, self.audio
        last = TritonLaunch(
            kernels.last_kernel,
            (-(-samples // LAST_ROWS), self.batch),
            (*tensors, samples, margin * level.rate, self.stride * level.rate),
            {"CHANNELS": level.channels, "BLOCK": LAST_ROWS},
        )
        return [*launches, last], {"audio": self.audio}

    def _showing(self, launch: TritonLaunch, index: int, name: str, turn: int = 0) -> TritonLaunch:
        """The launch that fills this buffer of level `index`: what goes into the convolutions behind it.

        These are number `turn` of the residual blocks, or those of the next level.
        """
        level, buffer = self.layout.levels[index], self.buffers[index][name]
        if name == "mean":
            names = [f"ups.{index}<" if index < len(self.folded.ups) else "conv_post<"]
        else:
            pairs = self.config.resblock == "1"
            conv = f"convs{turn % 2 + 1}.{turn // 2}" if pairs else f"convs.{turn}"
            names = [f"resblocks.{index - 1}.{block}.{conv}<" for block in self.layout.order]

        def seen(block: int) -> Tensor:
            rows = buffer.memory[: buffer.blocks * buffer.rows * buffer.channels]
            rows = rows.view(buffer.blocks, buffer.rows, buffer.channels)[min(block, buffer.blocks - 1)]
            steps, apart = self.frames * level.rate, self.stride * level.rate
            return rows[self.layout.margin * level.rate :].unfold(0, steps, apart)[: self.batch]

        return launch._replace(
            shows=[(name, lambda block=block: seen(block)) for block, name in enumerate(names)]
        )

    def _conv(
        self,
        product: ConvProduct,
        level: Level,
        source: LevelBuffer,
        out: LevelBuffer,
        kept: LevelBuffer | None = None,
        *,
        slope: float = LEAKY_SLOPE,
        phases: int = 1,
        late: int = 0,
        chunk: int | None = None,
    ) -> TritonLaunch:
        """`level` is the source's. An upsampling's output starts `late` steps before its input."""
        chunk = chunk or level.chunk
        unit = product.group * product.spread
        margin = self.layout.margin * level.rate
        # An upsampling's last outputs need the input step behind the last one.
        steps = self.batch * self.stride * level.rate - margin + (phases > 1)
        rows = -(-(steps + margin % unit) // unit)
        tile = tile_for(product, rows, self.limits)
        tiles = -(-rows // tile.rows)
        programs = tiles * product.spread * (product.columns // tile.columns)
        out_tensor: Any = out.memory
        if phases > 1:
            start = -late % phases * out.channels
            rows = (len(out.memory) - start) // product.columns
            whole = out.memory[start : start + rows * product.columns]
            out_tensor = describe(whole, (tile.rows, tile.columns), product.columns)
        elif product.spread == 1:
            out_tensor = out.tiles(unit, tile.rows, tile.columns)
        tensors = (
            source.tiles(unit, tile.rows, chunk),
            describe(product.weight, (tile.columns, chunk), chunk),
            kept.tiles(unit, tile.rows, tile.columns) if kept else None,
            out_tensor,
            product.bias,
            self.inputs["lengths"],
        )
        steps_apart = source.step, kept.step if kept else 0, out.step
        places = tiles, margin, self.stride * level.rate, self.batch
        taps = {"STARTS": product.starts, "CENTERS": product.centers}
        apart = {"DILATIONS": product.dilations, "GROUP": product.group, "SPREAD": product.spread}
        chunks = {"CHUNKS": source.channels // chunk, "CHUNK": chunk}
        outs = {"RATE": level.rate, "PHASES": phases, "PADDING": late, "COLUMNS": product.columns}
        ends = {"RESIDUAL": product.residual, "SUM": product.summed, "SLOPE": slope}
        of_tile = {"BM": tile.rows, "BN": tile.columns, "STAGES": tile.stages, "num_warps": tile.warps}
        return TritonLaunch(
            kernels.conv_kernel,
            (programs * (1 if product.summed else len(product.taps)),),
            (*tensors, product.dilation, *steps_apart, *places),
            {**taps, **apart, **chunks, **outs, **ends, **of_tile},
        )


class HifiganKernels(ShapedGenerator):
    shape, otherwise = HifiganBuffers, CapturedNetwork
    check, fold = staticmethod(layout_of), staticmethod(fold)


class GeneratorNetwork(DrawsOnGpu, CapturedNetwork):
    """On PyTorch's kernels. Phases of an inverse STFT in half precision would be audible noise."""

    in_float32 = True


class InverseStftGenerator(GeneratorNetwork):
    """With an inverse STFT and no source: there are no kernels for it."""

    otherwise = GeneratorNetwork

    @classmethod
    def needs(cls, config: HifiganConfig) -> Needs:
        raise InputError("ours have an inverse STFT only with a source")


class SourceGenerator(DrawsOnGpu, KernelNetwork):
    """With a harmonic source, on kernels of our own: only convolutions are products in half precision."""

    in_float32 = True
    otherwise = GeneratorNetwork

    @classmethod
    def needs(cls, config: HifiganConfig) -> Needs:
        return PRODUCTS

    @property
    def precision(self) -> str:
        return "half products"

    def prepared(self, network: torch.nn.Module) -> torch.nn.Module:
        assert isinstance(network, SourceFilterGenerator)
        return KernelSourceFilter(network)


def kernel_join(device: str) -> Callable[[Tensor, Tensor, int], Tensor] | None:
    """`join_source` on a device; None where its kernel does not run there."""
    if PLAIN.lacking(device):
        return None

    def join(pitch: Tensor, drawn: Tensor, hop: int) -> Tensor:
        with torch.cuda.device(device):
            return join_source(pitch, drawn, hop)

    return join


def generator_kind(config: HifiganConfig) -> type[Engine]:
    if config.source:
        return SourceGenerator
    return InverseStftGenerator if config.istft_n_fft else HifiganKernels
