"""A HiFi-GAN network's weights in the form that the kernels take: every convolution is one matrix product.

Memory is time-major: a row holds the channels of one step. A convolution then is a product of rows, shifted
by each tap, with the taps' matrices one below the other. Three things are arranged for that product:

* a transposed convolution makes all steps of an input step (its phases) in one row, from few input steps.
* where channels are few, a convolution makes `group` steps in one row too: its matrix has a band of taps for
  each of them. That computes some zeros, but reads what taps share once for the group. Dilated convolutions
  do the same with steps that are a dilation apart.
* the last convolutions of all residual blocks become one, whose sum is the sum of the blocks.

Channels are filled up with zeros to 16, 32, 64 and so on, which changes nothing.

Letters: C channels filled up, N columns of a product (group or phases times C), K its chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from common.errors import InputError
from hifigan.config import HifiganConfig
from hifigan.model import HifiganGenerator

CHUNK = 64  # columns of a product that the kernels take at a time, where there are as many
NARROW = 16  # the fewest columns of a product on tensor cores
COLUMNS = 128  # of a product, that groups are chosen for
ENDS = 7  # taps of the first and of the last convolution


@dataclass(frozen=True)
class Level:
    """What the steps between two upsamplings are laid out by."""

    channels: int  # C
    rate: int  # steps of a mel frame
    group: int = 1  # steps that a convolution makes in a row

    @property
    def chunk(self) -> int:
        return min(self.channels, CHUNK)


@dataclass(frozen=True)
class Sizes:
    """What the kernels' memory is laid out by."""

    window: int  # chunks of the mels that the first convolution hears
    levels: tuple[Level, ...]  # behind the first convolution, and behind each upsampling
    order: tuple[int, ...]  # of the residual blocks: those with most taps first
    margin: int  # frames of zeros around every item, as far as any convolution reaches


def sizes_of(config: HifiganConfig, columns: int = COLUMNS) -> Sizes:
    """The sizes for a network; a ValueError for one that the kernels cannot run."""
    for rate, kernel in zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True):
        if (kernel - rate) % 2:
            raise InputError(
                f"upsampling by {rate} with kernel {kernel}: the kernels need an even difference, "
                "which makes whole frames"
            )
    steps = {len(dilations) for dilations in config.resblock_dilation_sizes}
    if len(steps) > 1:
        raise InputError(
            "the kernels take resblock_dilation_sizes of one length for all blocks, "
            f"not {config.resblock_dilation_sizes}"
        )
    rate, levels = 1, [Level(_filled(config.upsample_initial_channel), 1)]
    for index, factor in enumerate(config.upsample_rates, start=1):
        rate *= factor
        channels = _filled(config.upsample_initial_channel // 2**index)
        group = 1
        while 2 * group * channels <= columns and rate % (2 * group) == 0:
            group *= 2
        levels.append(Level(channels, rate, group))
    kernels = config.resblock_kernel_sizes
    reach = max(
        (kernel - 1) // 2 * max(dilations)
        for kernel, dilations in zip(kernels, config.resblock_dilation_sizes, strict=True)
    )
    ups = zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True)
    return Sizes(
        window=-(-ENDS * config.n_mel_channels // CHUNK),
        levels=tuple(levels),
        order=tuple(sorted(range(len(kernels)), key=lambda block: -kernels[block])),
        margin=max(-(-reach // levels[1].rate), ENDS // 2, *(-(-kernel // rate) for rate, kernel in ups)),
    )


def _filled(channels: int) -> int:
    filled = NARROW
    while filled < channels:  # a tile's sides are powers of two
        filled *= 2
    return filled


@dataclass(frozen=True, eq=False)
class Product:
    """A convolution as a product, or those of several residual blocks one behind the other."""

    weight: Tensor  # (K, N, chunk) float16: blocks, their taps, chunks of a tap
    bias: Tensor  # (blocks, N) float32; the sum of the blocks where they are summed
    taps: tuple[int, ...]  # of each block
    centers: tuple[int, ...]  # the tap that hears the step itself
    dilations: tuple[int, ...]  # steps between a block's taps, of those in rows
    dilation: int = 1  # times these
    group: int = 1  # steps in a row
    spread: int = 1  # steps between those in a row, and between rows of the same residue
    residual: bool = False
    summed: bool = False

    @property
    def starts(self) -> tuple[int, ...]:
        """Each block's first tap among all, and where the last one ends."""
        return (0, *accumulate(self.taps))

    @property
    def columns(self) -> int:
        return self.weight.shape[1]


@dataclass(frozen=True, eq=False)
class Folded:
    """The network's products in the order in which they run."""

    sizes: Sizes
    first: Product
    ups: tuple[Product, ...]
    blocks: tuple[tuple[Product, ...], ...]  # of each level, with all residual blocks in one
    last: Tensor  # (7, C) float32
    last_bias: Tensor  # (1,) float32

    @property
    def products(self) -> tuple[Product, ...]:
        return (self.first, *self.ups, *(product for level in self.blocks for product in level))

    @property
    def nbytes(self) -> int:
        weights = sum(product.weight.nbytes + product.bias.nbytes for product in self.products)
        return weights + self.last.nbytes + self.last_bias.nbytes


def fold(network: HifiganGenerator, columns: int = COLUMNS) -> Folded:
    """A network without weight norm, in float32 -> what the kernels take, on the network's device."""
    config = network.config
    sizes = sizes_of(config, columns)
    with torch.no_grad():
        ups = [
            _upsampling(conv, config.upsample_rates[index], sizes.levels[index], sizes.levels[index + 1])
            for index, conv in enumerate(network.ups)
        ]
        blocks = [
            _residual_blocks([level_blocks[block] for block in sizes.order], level, config)
            for level_blocks, level in zip(network.resblocks, sizes.levels[1:], strict=True)
        ]
        last = network.conv_post.weight[0].T  # (7, channels)
        folded = Folded(
            sizes=sizes,
            first=_first(network.conv_pre, sizes),
            ups=tuple(ups),
            blocks=tuple(blocks),
            last=F.pad(last, (0, sizes.levels[-1].channels - last.shape[1])).contiguous(),
            last_bias=network.conv_post.bias.clone(),
        )
    if not all(product.weight.isfinite().all() for product in folded.products):
        raise InputError("HiFi-GAN's weights are larger than half precision can hold; use another backend")
    return folded


def _chunks(matrix: Tensor, chunk: int) -> Tensor:
    """(taps, N, C) -> (taps * C / chunk, N, chunk), the chunks of a tap in a row, in float16."""
    return matrix.unflatten(2, (-1, chunk)).transpose(1, 2).flatten(0, 1).half().contiguous()


def _first(conv: torch.nn.Conv1d, sizes: Sizes) -> Product:
    """One tap: its columns are those of all taps' mels, tap * n_mels + mel."""
    matrix = conv.weight.transpose(1, 2).flatten(1)
    filled = sizes.levels[0].channels
    matrix = F.pad(matrix, (0, sizes.window * CHUNK - matrix.shape[1], 0, filled - len(matrix)))
    bias = F.pad(conv.bias, (0, filled - len(conv.bias)))
    return Product(_chunks(matrix[None], CHUNK), bias[None], (1,), (0,), (1,))


def _upsampling(conv: torch.nn.ConvTranspose1d, rate: int, before: Level, after: Level) -> Product:
    """Step f * rate + phase - padding comes of the input steps f, f - 1, ...: as many for all phases."""
    inner, outer, kernel = conv.weight.shape
    taps = -(-kernel // rate)
    weight = F.pad(conv.weight, (0, taps * rate - kernel, 0, after.channels - outer))
    weight = F.pad(weight, (0, 0, 0, 0, 0, before.channels - inner))
    weight = weight.unflatten(2, (taps, rate)).permute(2, 3, 1, 0).flatten(1, 2)  # (taps, rate * C, C before)
    bias = F.pad(conv.bias, (0, after.channels - outer)).repeat(rate)
    return Product(_chunks(weight, before.chunk), bias[None], (taps,), (0,), (1,), dilation=-1)


def _residual_blocks(blocks: list, level: Level, config: HifiganConfig) -> tuple[Product, ...]:
    """The blocks' convolutions in turn; in a block of two convolutions dilated and plain ones alternate."""
    if config.resblock == "1":
        lists = [
            [conv for pair in zip(block.convs1, block.convs2, strict=True) for conv in pair]
            for block in blocks
        ]
    else:
        lists = [list(block.convs) for block in blocks]
    turns = list(zip(*lists, strict=True))
    return tuple(
        _together(convs, level, config.resblock == "2" or turn % 2 == 1, turn == len(turns) - 1)
        for turn, convs in enumerate(turns)
    )


def _together(convs: tuple[torch.nn.Conv1d, ...], level: Level, residual: bool, summed: bool) -> Product:
    """The same turn of all blocks."""
    dilations = tuple(conv.dilation[0] for conv in convs)
    same = len(set(dilations)) == 1
    # What is added stands in rows of successive steps.
    spread = dilations[0] if same and level.group > 1 and not residual else 1
    group = level.group if same and dilations[0] == spread else 1
    weights, biases = [], []
    for conv in convs:
        outer, inner, _ = conv.weight.shape
        weight = F.pad(conv.weight, (0, 0, 0, level.channels - inner, 0, level.channels - outer))
        weight = weight.permute(2, 0, 1)  # (taps, C, C)
        band = [F.pad(weight, (0, 0, 0, 0, step, group - 1 - step)) for step in range(group)]
        weights.append(_chunks(torch.cat(band, dim=1), level.chunk))
        biases.append(F.pad(conv.bias, (0, level.channels - outer)).repeat(group))
    bias = torch.stack(biases)
    return Product(
        weight=torch.cat(weights),
        bias=bias.sum(0, keepdim=True) if summed else bias,
        taps=tuple(conv.weight.shape[2] + group - 1 for conv in convs),
        centers=tuple(conv.weight.shape[2] // 2 for conv in convs),
        dilations=(1,) * len(convs) if same else dilations,
        dilation=dilations[0] // spread if same else 1,
        group=group,
        spread=spread,
        residual=residual,
        summed=summed,
    )
