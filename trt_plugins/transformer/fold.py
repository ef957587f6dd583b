"""A feed-forward transformer's weights in the kernels' layout, in half precision except for norms.

Channels are zero-padded to whole chunks of a product.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CHUNK = 64  # channels that the kernels multiply at a time
COLUMNS = 128  # a product's output columns are padded to a multiple of this
NARROWEST = 16  # the fewest channels that tensor cores multiply
LOG2_E = 1.4426950408889634
NO_LIMIT = 3e38


class ProductWeights(NamedTuple):
    """A convolution along rows; with one tap a linear layer."""

    weight: Tensor  # (taps * chunks * columns, CHUNK) float16
    bias: Tensor  # (columns,) float32
    taps: int
    chunks: int  # of one tap
    columns: int


class NormWeights(NamedTuple):
    gain: Tensor  # (channels,) float32
    shift: Tensor


class LayerNames(NamedTuple):
    """A layer's parts in the network, as `melforge.common.engines.layer_outputs` names them."""

    qkv: str
    attention: str  # with its norm
    hidden: str
    end: str


class AttentionWeights(NamedTuple):
    heads: int
    size: int  # channels of a head
    head: int  # the same, filled up to a power of two
    by_heads: bool  # whether the network has a head's queries, keys and values together
    masked: float  # added to the scores of padding
    qkv: ProductWeights  # queries of all heads, scaled for a softmax to base 2; their keys; their values
    weight: Tensor  # (heads * head, block) float16
    bias: Tensor  # (channels,) float32
    norm: NormWeights


class LayerWeights(NamedTuple):
    attention: AttentionWeights
    expand: ProductWeights
    contract: ProductWeights
    norm: NormWeights
    names: LayerNames


class PredictorLayerWeights(NamedTuple):
    """The same layer of several predictors, each with `block` columns of the product."""

    product: ProductWeights  # without bias
    block: int
    channels: int
    bias: Tensor  # (predictors, block) float32
    gain: Tensor
    shift: Tensor
    names: tuple[tuple[str, str], ...]  # each predictor's convolution and norm in the network


class PredictorWeights(NamedTuple):
    layers: tuple[PredictorLayerWeights, ...]
    last: Tensor  # (predictors, block) float32
    last_bias: Tensor  # (predictors,) float32
    names: tuple[str, ...]


class ValueWeights(NamedTuple):
    """The embedding of a scalar per symbol, such as its pitch."""

    weight: Tensor  # (taps, channels) float32
    bias: Tensor


@dataclass(frozen=True)
class EncoderWeights:
    """All weights of an encoder."""

    embedding: Tensor  # (n_symbols, C) float32
    speakers: Tensor | None  # (n_speakers, C) float32
    positions: Tensor  # (longest text, C) float32
    layers: tuple[LayerWeights, ...]
    predictors: tuple[PredictorWeights, ...]  # grouped by equal sizes
    margin: int  # the convolutions' largest reach, in steps
    longest: float = NO_LIMIT  # frames that durations are clipped to
    padding: int | None = None  # the symbol that is masked at any position


@dataclass(frozen=True)
class DecoderWeights:
    """All weights of a decoder."""

    positions: Tensor  # (longest mel, C) float32
    layers: tuple[LayerWeights, ...]
    last: ProductWeights
    margin: int
    pitch: ValueWeights | None = None
    energy: ValueWeights | None = None
    predictors: PredictorWeights | None = None  # the energy's


def filled(count: int, unit: int) -> int:
    """`count` rounded up to a multiple of `unit`."""
    return -(-count // unit) * unit


def block_of(channels: int) -> int:
    """The next power of two that Triton and tensor cores accept as a block of columns."""
    return max(NARROWEST, 1 << (channels - 1).bit_length())


def filled_up(tensor: Tensor, size: int) -> Tensor:
    """Zero-padded along the first axis."""
    return F.pad(tensor, (0, 0) * (tensor.dim() - 1) + (0, size - len(tensor)))


def nbytes(folded: Any) -> int:
    """The size of all tensors in nested dataclasses and tuples."""
    if isinstance(folded, Tensor):
        return folded.nbytes
    if is_dataclass(folded):
        return sum(nbytes(getattr(folded, field.name)) for field in fields(folded))
    return sum(map(nbytes, folded)) if isinstance(folded, tuple) else 0


def product(weight: Tensor, bias: Tensor | None, columns: int = COLUMNS) -> ProductWeights:
    """From a convolution's weight (N, C, taps) or a linear layer's (N, C)."""
    weight = weight.float()[:, :, None] if weight.dim() == 2 else weight.float()
    n, c, taps = weight.shape
    wide, deep = filled(n, columns), filled(c, CHUNK)
    weight = F.pad(weight, (0, 0, 0, deep - c, 0, wide - n))
    packed = weight.unflatten(1, (-1, CHUNK)).permute(3, 1, 0, 2)  # taps, chunks, N, CHUNK
    bias = torch.zeros(n, device=weight.device) if bias is None else bias.float()
    return ProductWeights(
        packed.reshape(-1, CHUNK).half().contiguous(), F.pad(bias, (0, wide - n)), taps, deep // CHUNK, wide
    )


def norm(layer: nn.LayerNorm) -> NormWeights:
    return NormWeights(layer.weight.float(), layer.bias.float())


def attention(
    qkv: Sequence[tuple[Tensor, Tensor]],
    out: nn.Linear,
    layer_norm: nn.LayerNorm,
    masked: float,
    by_heads: bool,
) -> AttentionWeights:
    """`qkv` holds the weights (heads, d, C) and biases (heads, d) of queries, keys and values."""
    heads, d, _ = qkv[0][0].shape
    head = block_of(d)
    scale = LOG2_E / math.sqrt(d)
    weights, biases = [], []
    for index, (weight, bias) in enumerate(qkv):
        factor = scale if index == 0 else 1.0
        weights.append(F.pad(weight.float() * factor, (0, 0, 0, head - d)).flatten(0, 1))
        biases.append(F.pad(bias.float() * factor, (0, head - d)).flatten())
    channels = len(out.weight)
    columns = out.weight.float().T.unflatten(0, (heads, d))  # heads, d, C
    columns = F.pad(columns, (0, block_of(channels) - channels, 0, head - d)).flatten(0, 1)
    bias = out.bias.float() if out.bias is not None else torch.zeros(channels, device=columns.device)
    qkv_product = product(torch.cat(weights), torch.cat(biases))
    return AttentionWeights(
        heads, d, head, by_heads, masked, qkv_product, columns.half().contiguous(), bias, norm(layer_norm)
    )


def predictors(
    layers: Sequence[Sequence[tuple[nn.Conv1d, nn.LayerNorm, tuple[str, str]]]],
    lasts: Sequence[nn.Linear],
    names: Sequence[str],
) -> PredictorWeights:
    """From predictors of equal sizes: each one's layers, with their names, and its last linear layer."""
    folded = []
    for each in zip(*layers, strict=True):
        n = each[0][0].out_channels
        block = max(CHUNK, block_of(n))
        weights, biases, gains, shifts = (
            torch.stack([filled_up(tensor.float(), block) for tensor in tensors])
            for tensors in (
                [conv.weight for conv, _, _ in each],
                [conv.bias for conv, _, _ in each],
                [layer_norm.weight for _, layer_norm, _ in each],
                [layer_norm.bias for _, layer_norm, _ in each],
            )
        )
        folded.append(
            PredictorLayerWeights(
                product(weights.flatten(0, 1), None),
                block,
                n,
                biases,
                gains,
                shifts,
                tuple(names for _, _, names in each),
            )
        )
    n = lasts[0].weight.shape[1]
    last = torch.stack([filled_up(one.weight.float()[0], max(CHUNK, block_of(n))) for one in lasts])
    bias = torch.cat([one.bias.float() for one in lasts])
    return PredictorWeights(tuple(folded), last, bias, tuple(names))


def value(convolution: nn.Conv1d) -> ValueWeights:
    """From a convolution's weight (C, 1, taps)."""
    assert convolution.bias is not None
    return ValueWeights(convolution.weight.float()[:, 0].T.contiguous(), convolution.bias.float())
