"""A HiFi-GAN network's weights in the kernels' layout: every convolution is one matrix product.

Memory is time-major: a row holds the channels of one step. A convolution is then a product of rows, shifted
by each tap, with the concatenated matrices of the taps. Three cases are special:

* A transposed convolution computes all outputs (phases) of an input step in one row, from few input steps.
* With few channels a convolution computes `group` steps per row: its matrix has a band of taps for each of
  them. This multiplies some zeros, but reads inputs shared by taps once per group. Dilated convolutions
  group steps that are one dilation apart.
* The last convolutions of all residual blocks become one product, which sums the blocks.

Channels are zero-padded to a power of two, at least 16.

Letters: C padded channels, N columns of a product (group or phases times C), K its chunks.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from melforge.common.errors import InputError
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import HifiganGenerator
from melforge.trt_plugins.graphs import overflows

CHUNK = 64  # channels that the kernels multiply at a time; fewer if the level has fewer
NARROW = 16  # the fewest columns that tensor cores multiply
COLUMNS = 128  # of a product; `group` is chosen to reach them
ENDS = 7  # taps of the first and of the last convolution


@dataclass(frozen=True)
class Level:
    """The layout of the steps between two upsamplings."""

    channels: int  # C
    rate: int  # steps of a mel frame
    group: int = 1  # steps that a convolution computes per row

    @property
    def chunk(self) -> int:
        return min(self.channels, CHUNK)


@dataclass(frozen=True)
class HifiganLayout:
    """The layout of the kernels' memory."""

    window: int  # chunks of the first convolution's receptive field
    levels: tuple[Level, ...]  # after the first convolution, and after each upsampling
    order: tuple[int, ...]  # of the residual blocks: most taps first
    margin: int  # frames of zeros around every item: the convolutions' largest reach


def layout_of(config: HifiganConfig, columns: int = COLUMNS) -> HifiganLayout:
    """The layout for a network; raises for one that the kernels do not support."""
    if config.istft_n_fft:
        raise InputError(
            f"istft_n_fft {config.istft_n_fft}: the kernels end in the published convolution, not in an "
            "inverse STFT"
        )
    ups = list(zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True))
    for rate, kernel in ups:
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
    return HifiganLayout(
        window=-(-ENDS * config.n_mel_channels // CHUNK),
        levels=tuple(levels),
        order=tuple(sorted(range(len(kernels)), key=lambda block: -kernels[block])),
        margin=max(-(-reach // levels[1].rate), ENDS // 2, *(-(-kernel // rate) for rate, kernel in ups)),
    )


def _filled(channels: int) -> int:
    return max(NARROW, 1 << (channels - 1).bit_length())  # tile sizes are powers of two


@dataclass(frozen=True, eq=False)
class ConvProduct:
    """A convolution as a product, or the convolutions of several residual blocks, concatenated."""

    weight: Tensor  # (K, N, chunk) float16: blocks, their taps, chunks of a tap
    bias: Tensor  # (blocks, N) float32; (1, N) if the blocks are summed
    taps: tuple[int, ...]  # of each block
    centers: tuple[int, ...]  # the tap at the output's own step
    dilations: tuple[int, ...]  # rows between a block's taps, in units of `dilation`
    dilation: int = 1
    group: int = 1  # steps per row
    spread: int = 1  # distance of the steps of a row; rows of one residue modulo this are a product
    residual: bool = False
    summed: bool = False

    @property
    def starts(self) -> tuple[int, ...]:
        """Each block's first tap in `weight`, and the total number of taps."""
        return (0, *accumulate(self.taps))

    @property
    def columns(self) -> int:
        return self.weight.shape[1]


@dataclass(frozen=True, eq=False)
class FoldedHifigan:
    """The network's products in the order in which they run."""

    layout: HifiganLayout
    first: ConvProduct
    ups: tuple[ConvProduct, ...]
    blocks: tuple[tuple[ConvProduct, ...], ...]  # of each level; a product holds all residual blocks
    last: Tensor  # (7, C) float32
    last_bias: Tensor  # (1,) float32

    @property
    def products(self) -> tuple[ConvProduct, ...]:
        return (self.first, *self.ups, *(product for level in self.blocks for product in level))

    @property
    def nbytes(self) -> int:
        weights = sum(product.weight.nbytes + product.bias.nbytes for product in self.products)
        return weights + self.last.nbytes + self.last_bias.nbytes


def fold(network: HifiganGenerator, columns: int = COLUMNS) -> FoldedHifigan:
    """A network without weight norm, in float32 -> the kernels' weights, on the network's device."""
    config = network.config
    layout = layout_of(config, columns)
    with torch.no_grad():
        parts: Any = network
        ups = [
            _upsampling(conv, config.upsample_rates[index], layout.levels[index], layout.levels[index + 1])
            for index, conv in enumerate(parts.ups)
        ]
        blocks = [
            _residual_blocks([level_blocks[block] for block in layout.order], level, config)
            for level_blocks, level in zip(parts.resblocks, layout.levels[1:], strict=True)
        ]
        last = network.conv_post.weight[0].T  # (7, channels)
        folded = FoldedHifigan(
            layout=layout,
            first=_first(network.conv_pre, layout),
            ups=tuple(ups),
            blocks=tuple(blocks),
            last=F.pad(last, (0, layout.levels[-1].channels - last.shape[1])).contiguous(),
            last_bias=parts.conv_post.bias.clone(),
        )
    if any(overflows(product.weight) for product in folded.products):
        raise InputError("HiFi-GAN's weights are larger than half precision can hold; use another backend")
    return folded


def _chunks(matrix: Tensor, chunk: int) -> Tensor:
    """(taps, N, C) -> (taps * C / chunk, N, chunk), the chunks of a tap consecutive, in float16."""
    return matrix.unflatten(2, (-1, chunk)).transpose(1, 2).flatten(0, 1).half().contiguous()


def _first(conv: Any, layout: HifiganLayout) -> ConvProduct:
    """One tap whose columns are the mels of all taps: tap * n_mels + mel."""
    matrix = conv.weight.transpose(1, 2).flatten(1)
    filled = layout.levels[0].channels
    matrix = F.pad(matrix, (0, layout.window * CHUNK - matrix.shape[1], 0, filled - len(matrix)))
    bias = F.pad(conv.bias, (0, filled - len(conv.bias)))
    return ConvProduct(_chunks(matrix[None], CHUNK), bias[None], (1,), (0,), (1,))


def _upsampling(conv: Any, rate: int, before: Level, after: Level) -> ConvProduct:
    """Output step f * rate + phase - padding depends on input steps f, f - 1, ...: as many for each phase."""
    inner, outer, kernel = conv.weight.shape
    taps = -(-kernel // rate)
    weight = F.pad(conv.weight, (0, taps * rate - kernel, 0, after.channels - outer))
    weight = F.pad(weight, (0, 0, 0, 0, 0, before.channels - inner))
    weight = weight.unflatten(2, (taps, rate)).permute(2, 3, 1, 0).flatten(1, 2)  # (taps, rate * C, C before)
    bias = F.pad(conv.bias, (0, after.channels - outer)).repeat(rate)
    return ConvProduct(_chunks(weight, before.chunk), bias[None], (taps,), (0,), (1,), dilation=-1)


def _residual_blocks(blocks: list, level: Level, config: HifiganConfig) -> tuple[ConvProduct, ...]:
    """A product for each convolution of the blocks; in ResBlock1 dilated and plain convolutions alternate."""
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


def _together(convs: tuple[Any, ...], level: Level, residual: bool, summed: bool) -> ConvProduct:
    """The corresponding convolutions of all blocks as one product."""
    dilations = tuple(conv.dilation[0] for conv in convs)
    same = len(set(dilations)) == 1
    # The residual has rows of consecutive steps, so convolutions that add it are not spread.
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
    return ConvProduct(
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
