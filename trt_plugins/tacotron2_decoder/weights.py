"""The decoder's weights in the kernel's layout; consecutive linear layers are folded into one."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from melforge.trt_plugins.tacotron2_decoder.launch import ROWS, UNITS, WEIGHTS

if TYPE_CHECKING:
    from melforge.tacotron2.model import Tacotron2

# Shape letters: A attention channels, C encoder channels, P prenet channels, F values of a frame, H units.
PAIR = 32  # channels of two adjacent tiles


class FoldedTacotron2Decoder(NamedTuple):
    """The matrices of one step, float32, rows and columns in the network's order; summed biases are one."""

    # (4 H_a, P), (4 H_a, C), (4 H_a, H_a): frame, context, recurrent
    attention: tuple[Tensor, ...]
    attention_bias: Tensor  # (4 H_a,)
    decoder: tuple[Tensor, ...]  # (4 H_d, H_a), (4 H_d, C), (4 H_d, H_d)
    decoder_bias: Tensor
    query: Tensor  # (A, H_a)
    prenet: Tensor  # (P, P), its second layer
    out: tuple[Tensor, ...]  # (P + F + 1, H_d), (.., C): the prenet's first layer, the frame, the gate
    out_bias: Tensor  # (P + F + 1,)
    location: Tensor  # (2, K, A): convolution and projection, of the last and of the cumulative attention
    energy: Tensor  # (A,)


# The tensors of `launch.WEIGHTS` in the kernel's order, and the matrix of `products`: (4 H_d, C) float16.
Arranged = namedtuple("Arranged", (*WEIGHTS, "context"))


@torch.no_grad()
def fold(network: Tacotron2) -> FoldedTacotron2Decoder:
    """Folds the prenet's first layer into the projection, which directly precedes it."""
    config, decoder = network.config, network.decoder
    attention, rnn = decoder.attention_rnn, decoder.decoder_rnn
    layers: list[Tensor] = [layer.linear_layer.weight for layer in cast(Any, decoder.prenet.layers)]
    projection, gate = decoder.linear_projection.linear_layer, decoder.gate_layer.linear_layer
    out = torch.cat([layers[0] @ projection.weight, projection.weight, gate.weight])
    out_bias = torch.cat([layers[0] @ projection.bias, projection.bias, gate.bias])
    location = decoder.attention_layer.location_layer
    dense = location.location_dense.linear_layer.weight
    context = config.encoder_embedding_dim
    return FoldedTacotron2Decoder(
        (*attention.weight_ih.split([config.prenet_dim, context], 1), attention.weight_hh),
        attention.bias_ih + attention.bias_hh,
        (*rnn.weight_ih.split([config.attention_rnn_dim, context], 1), rnn.weight_hh),
        rnn.bias_ih + rnn.bias_hh,
        decoder.attention_layer.query_layer.linear_layer.weight,
        layers[1],
        out.split([config.decoder_rnn_dim, context], 1),
        out_bias,
        torch.einsum("af,fwk->wka", dense, location.location_conv.conv.weight),
        decoder.attention_layer.v.linear_layer.weight[0],
    )


@torch.no_grad()
def arrange(folded: FoldedTacotron2Decoder, device: str | torch.device) -> Arranged:
    """Folded weights on a GPU, in the kernel's layout."""
    of_attention, of_context, recurrent = map(by_block, folded.decoder)
    small = joined(folded.query), joined(folded.prenet), joined(*folded.out)
    matrices = joined(*map(by_block, folded.attention)), joined(of_attention), joined(recurrent), *small
    biases = by_block(folded.attention_bias), by_block(folded.decoder_bias), folded.out_bias
    tensors = *matrices, *biases, folded.location, folded.energy, of_context
    types = [getattr(torch, name) for name in (*WEIGHTS.values(), "float16")]
    return Arranged(*(x.to(device, dtype).contiguous() for x, dtype in zip(tensors, types, strict=True)))


def by_block(gates: Tensor) -> Tensor:
    """Rows (4 H, ...) gate by gate -> block by block: the four gates of its UNITS units."""
    return gates.unflatten(0, (4, -1, UNITS)).transpose(0, 1).flatten(0, 2)


def joined(*parts: Tensor) -> Tensor:
    """Matrices of the same rows, concatenated along their columns: (tiles, pairs, 2, 32, 8)."""
    return torch.cat([fragments(part) for part in parts], dim=-4)


def fragments(matrix: Tensor) -> Tensor:
    """(..., rows, K) -> (..., tiles, pairs, 2, 32, 8): the fragment of lane 4 g + c in either tile of a pair.

    Padded with zeros. Of a pair's columns the lane holds 8 c to 8 c + 7, the first four in the first tile:
    rows g and g + 8 by two columns each, twice, the layout of the first operand of mma.m16n8k16.
    """
    rows, channels = matrix.shape[-2:]
    padded = F.pad(matrix, (0, -channels % PAIR, 0, -rows % ROWS))
    #                                  row: tile, 8, g;   column: pair, c, tile of it, k, 2
    split = padded.unflatten(-1, (-1, 4, 2, 2, 2)).unflatten(-6, (-1, 2, 8))
    first = split.dim() - 8
    order = (0, 3, 5, 2, 4, 6, 1, 7)
    return split.permute(*range(first), *(first + i for i in order)).flatten(-5, -4).flatten(-3)


def products(memory: Tensor, context: Tensor) -> Tensor:
    """memory (B, N, C) -> (B, tiles, pairs of N, 2, 32, 8): products for the decoder LSTM's gates.

    The context is linear in the memory, and so is its part of the gates: the sum of these products over N,
    weighted by the attention. The last rows hold the memory itself, whose weighted sum is the context.
    """
    turned = memory.to(context.dtype).transpose(1, 2)
    return fragments(torch.cat([context @ turned, turned], dim=1)).contiguous()
