"""FastSpeech's stages on the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastspeech.config import HEAD_SIZE, FastSpeechConfig
from fastspeech.model import MASKED_SCORE, FastSpeech, Transformer
from trt_plugins.graphs import Launch
from trt_plugins.transformer import fold
from trt_plugins.transformer.engine import (
    NO_LIMIT,
    STEP_ROWS,
    Guess,
    Room,
    Side,
    Stack,
    TransformerEngine,
    items_of,
)
from trt_plugins.transformer.fold import Layer, Predictors, Product, block_of


@dataclass(frozen=True)
class FoldedEncoder:
    embedding: Tensor  # (n_symbols, C) float32
    positions: Tensor  # (max_seq_len, C) float32, of positions 1, 2, ...
    layers: tuple[Layer, ...]
    predictors: Predictors  # of durations


@dataclass(frozen=True)
class FoldedDecoder:
    positions: Tensor
    layers: tuple[Layer, ...]
    last: Product


def fold_layers(transformer: Transformer) -> tuple[Layer, ...]:
    folded = []
    for layer in transformer.layer_stack:
        mine, after = layer.slf_attn, layer.pos_ffn
        weight, bias = (
            tensor.unflatten(0, (mine.n_heads, 3, HEAD_SIZE))
            for tensor in (mine.linear.weight, mine.linear.bias)
        )
        qkv = [(weight[:, index], bias[:, index]) for index in range(3)]
        folded.append(
            Layer(
                fold.attention(qkv, mine.fc, mine.layer_norm, MASKED_SCORE),
                fold.product(after.w_1.weight, after.w_1.bias),
                fold.product(after.w_2.weight, after.w_2.bias),
                fold.norm(after.layer_norm),
            )
        )
    return tuple(folded)


def positions_of(network: FastSpeech) -> Tensor:
    return network.position.weight[1:].float().contiguous()


def margin_of(config: FastSpeechConfig) -> int:
    """As far as any convolution reaches."""
    return max(config.fft_conv1d_kernel, config.duration_predictor_kernel_size) // 2


def options_of(config: FastSpeechConfig, side: Side) -> dict[str, Any]:
    """Of the kernels that begin a side."""
    return {
        "MASK_PADDING": config.mask_padding,
        "ITEMS": items_of(side.batch),
        "WIDTH": side.width,
        "BLOCK": block_of(side.channels),
        "BM": STEP_ROWS,
    }


class Encoder(TransformerEngine):
    name = "FastSpeech"

    def fold(self, network: FastSpeech) -> FoldedEncoder:
        predictor = network.length_regulator.duration_predictor
        layers = [(predictor.conv1d_1, predictor.layer_norm_1), (predictor.conv1d_2, predictor.layer_norm_2)]
        return FoldedEncoder(
            network.word_emb.weight.float(),
            positions_of(network),
            fold_layers(network.phoneme_side),
            fold.predictors([layers], [predictor.linear_layer], ("duration",)),
        )

    def room(self, inputs: Mapping[str, Tensor]) -> Room:
        return EncoderRoom(self.config, self.folded, *inputs["symbols"].shape, self.device, self.processors)


class EncoderRoom(Room):
    def __init__(
        self,
        config: FastSpeechConfig,
        folded: FoldedEncoder,
        batch: int,
        text: int,
        device: Any,
        processors: int,
    ):
        self.config, self.folded = config, folded
        self.side = Side(batch, text, config.d_model, margin_of(config), device)
        self.stack = Stack(folded.layers, self.side, processors)
        self.guess = Guess(folded.predictors, self.side, processors)

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[Launch], dict[str, Tensor]]:
        from trt_plugins.transformer import kernels

        side, folded = self.side, self.folded
        lengths = inputs["lengths"]
        symbols = Launch(
            kernels.symbols_kernel,
            side.grid(STEP_ROWS),
            (
                inputs["symbols"],
                lengths,
                None,
                folded.embedding,
                None,
                folded.positions,
                side.x32,
                side.x16,
                side.mask,
                side.inside,
                *side.layout,
                side.channels,
            ),
            {**options_of(self.config, side), "PADDING": None},
        )
        launches = [symbols, *self.stack.launches(lengths), *self.guess.launches(NO_LIMIT)]
        return launches, {"encoded": side.steps, "duration": self.guess.numbers[0]}


class Decoder(TransformerEngine):
    """The stages "decoder" and "mel_side"."""

    name = "FastSpeech"

    def fold(self, network: FastSpeech) -> FoldedDecoder:
        last = network.mel_linear
        return FoldedDecoder(
            positions_of(network), fold_layers(network.mel_side), fold.product(last.weight, last.bias)
        )

    def room(self, inputs: Mapping[str, Tensor]) -> Room:
        size = inputs["repeat_index" if "repeat_index" in inputs else "placed"].shape[1]
        batch = len(inputs["mel_lengths"])
        return DecoderRoom(self.config, self.folded, batch, size, self.device, self.processors)


class DecoderRoom(Room):
    def __init__(
        self,
        config: FastSpeechConfig,
        folded: FoldedDecoder,
        batch: int,
        mel: int,
        device: Any,
        processors: int,
    ):
        self.config, self.folded = config, folded
        self.side = Side(batch, mel, config.d_model, margin_of(config), device)
        self.stack = Stack(folded.layers, self.side, processors)
        self.mel = torch.zeros(batch, config.n_mel_channels, mel, device=device)

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[Launch], dict[str, Tensor]]:
        from trt_plugins.transformer import kernels

        side, folded = self.side, self.folded
        index = inputs.get("repeat_index")
        source = inputs["placed" if index is None else "encoded"]
        frames = Launch(
            kernels.frames_kernel,
            side.grid(STEP_ROWS),
            (
                source,
                index,
                inputs["mel_lengths"],
                None,
                None,
                None,
                None if index is None else folded.positions,
                side.x32,
                side.x16,
                side.mask,
                side.inside,
                source.shape[1] * source.shape[2],
                source.shape[1],
                *side.layout,
                side.channels,
            ),
            {**options_of(self.config, side), "SOURCE_WIDTH": source.shape[2], "TAPS": 0},
        )
        stack = self.stack.launches(inputs["mel_lengths"])
        return [frames, *stack, self.stack.mel(folded.last, self.mel)], {"mel": self.mel}
