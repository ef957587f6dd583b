"""FastPitch's stages on the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from fastpitch.config import FastPitchConfig
from fastpitch.model import MASKED_SCORE, FastPitch, Predictor, Transformer
from trt_plugins.graphs import Launch
from trt_plugins.transformer import fold
from trt_plugins.transformer.engine import (
    STEP_ROWS,
    Guess,
    Room,
    Side,
    Stack,
    TransformerEngine,
    items_of,
)
from trt_plugins.transformer.fold import Layer, Predictors, Product, Value, block_of

LONGEST = 100.0  # frames that the network's own clamp lets a symbol have


@dataclass(frozen=True)
class FoldedEncoder:
    embedding: Tensor  # (n_symbols, C) float32
    speakers: Tensor | None  # (n_speakers, C) float32
    positions: Tensor  # (longest text, C) float32
    layers: tuple[Layer, ...]
    predictors: tuple[Predictors, ...]  # those of the same sizes together


@dataclass(frozen=True)
class FoldedDecoder:
    pitch: Value
    energy: Value | None
    predictors: Predictors | None  # of the energy
    positions: Tensor  # (longest mel, C) float32
    layers: tuple[Layer, ...]
    last: Product


def fold_layers(transformer: Transformer) -> tuple[Layer, ...]:
    folded = []
    for layer in transformer.layers:
        mine = layer.dec_attn
        shape = (3, mine.n_heads, mine.d_head)
        weights, biases = (tensor.unflatten(0, shape) for tensor in (mine.qkv_net.weight, mine.qkv_net.bias))
        qkv = list(zip(weights, biases, strict=True))
        expand, _, contract, _ = layer.pos_ff.CoreNet
        folded.append(
            Layer(
                fold.attention(qkv, mine.o_net, mine.layer_norm, MASKED_SCORE),
                fold.product(expand.weight, expand.bias),
                fold.product(contract.weight, contract.bias),
                fold.norm(layer.pos_ff.layer_norm),
            )
        )
    return tuple(folded)


def fold_predictors(network: FastPitch, names: tuple[str, ...]) -> tuple[Predictors, ...]:
    """Predictors of the same sizes run together."""

    def sizes(name: str) -> list[torch.Size]:
        return [tensor.shape for tensor in modules[name].state_dict().values()]

    modules: dict[str, Predictor] = {name: getattr(network, f"{name}_predictor") for name in names}
    return tuple(
        fold.predictors(
            [[(layer.conv, layer.norm) for layer in modules[name].layers] for name in group],
            [modules[name].fc for name in group],
            group,
        )
        for group in (tuple(found) for _, found in groupby(names, sizes))
    )


def margin_of(config: FastPitchConfig) -> int:
    """As far as any convolution reaches."""
    return max(getattr(config, name) for name in vars(config) if name.endswith("kernel_size")) // 2


class Encoder(TransformerEngine):
    name = "FastPitch"

    def fold(self, network: FastPitch) -> FoldedEncoder:
        speakers = network.speaker_emb
        return FoldedEncoder(
            network.encoder.word_emb.weight.float(),
            None if speakers is None else speakers.weight.float() * self.config.speaker_emb_weight,
            network.encoder.pos_emb(self.stage.dynamic_dims["text"].max),
            fold_layers(network.encoder),
            fold_predictors(network, ("duration", "pitch")),
        )

    def room(self, inputs: Mapping[str, Tensor]) -> Room:
        return EncoderRoom(self.config, self.folded, *inputs["symbols"].shape, self.device, self.processors)


class EncoderRoom(Room):
    def __init__(
        self,
        config: FastPitchConfig,
        folded: FoldedEncoder,
        batch: int,
        text: int,
        device: Any,
        processors: int,
    ):
        self.config, self.folded = config, folded
        self.side = Side(batch, text, config.symbols_embedding_dim, margin_of(config), device)
        self.stack = Stack(folded.layers, self.side, processors)
        self.guesses = [Guess(predictors, self.side, processors) for predictors in folded.predictors]

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
                inputs.get("speaker"),
                folded.embedding,
                folded.speakers,
                folded.positions,
                side.x32,
                side.x16,
                side.mask,
                side.inside,
                *side.layout,
                side.channels,
            ),
            {
                "PADDING": self.config.padding_idx,
                "MASK_PADDING": self.config.mask_padding,
                "ITEMS": items_of(side.batch),
                "WIDTH": side.width,
                "BLOCK": block_of(side.channels),
                "BM": STEP_ROWS,
            },
        )
        launches = [symbols, *self.stack.launches(lengths)]
        outputs = {"encoded": side.steps}
        for guess in self.guesses:
            names = guess.predictors.names
            launches += guess.launches(LONGEST if "duration" in names else 0.0)
            outputs |= dict(zip(names, guess.numbers, strict=True))
        return launches, {**outputs, "pitch": outputs["pitch"][:, None]}


class Decoder(TransformerEngine):
    name = "FastPitch"

    def fold(self, network: FastPitch) -> FoldedDecoder:
        has_energy = self.config.energy_conditioning
        return FoldedDecoder(
            fold.value(network.pitch_emb),
            fold.value(network.energy_emb) if has_energy else None,
            fold_predictors(network, ("energy",))[0] if has_energy else None,
            network.decoder.pos_emb(self.stage.dynamic_dims["mel"].max),
            fold_layers(network.decoder),
            fold.product(network.proj.weight, network.proj.bias),
        )

    def room(self, inputs: Mapping[str, Tensor]) -> Room:
        batch, text, _ = inputs["encoded"].shape
        mel = inputs["repeat_index"].shape[1]
        return DecoderRoom(self.config, self.folded, batch, text, mel, self.device, self.processors)


class DecoderRoom(Room):
    def __init__(
        self,
        config: FastPitchConfig,
        folded: FoldedDecoder,
        batch: int,
        text: int,
        mel: int,
        device: Any,
        processors: int,
    ):
        self.config, self.folded = config, folded
        self.text, self.side = (
            Side(batch, size, config.symbols_embedding_dim, margin_of(config), device) for size in (text, mel)
        )
        self.energy = Guess(folded.predictors, self.text, processors) if folded.predictors else None
        self.stack = Stack(folded.layers, self.side, processors)
        self.mel = torch.zeros(batch, config.n_mel_channels, mel, device=device)

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[Launch], dict[str, Tensor]]:
        from trt_plugins.transformer import kernels

        folded, text, side = self.folded, self.text, self.side
        options = {
            "MASK_PADDING": self.config.mask_padding,
            "ITEMS": items_of(side.batch),
            "WIDTH": side.width,
            "BLOCK": block_of(side.channels),
            "BM": STEP_ROWS,
        }
        with_pitch = Launch(
            kernels.values_kernel,
            text.grid(STEP_ROWS),
            (
                inputs["encoded"],
                inputs["lengths"],
                inputs["pitch"],
                folded.pitch.weight,
                folded.pitch.bias,
                text.x32,
                text.x16,
                text.mask,
                text.inside,
                *text.layout,
                text.channels,
            ),
            {**options, "TAPS": len(folded.pitch.weight)},
        )
        energy = folded.energy
        frames = Launch(
            kernels.frames_kernel,
            side.grid(STEP_ROWS),
            (
                text.x32[text.margin :],
                inputs["repeat_index"],
                inputs["mel_lengths"],
                self.energy.numbers if energy else None,
                energy.weight if energy else None,
                energy.bias if energy else None,
                folded.positions,
                side.x32,
                side.x16,
                side.mask,
                side.inside,
                text.stride * text.width,
                text.size,
                *side.layout,
                side.channels,
            ),
            {**options, "SOURCE_WIDTH": text.width, "TAPS": len(energy.weight) if energy else 0},
        )
        launches = [
            with_pitch,
            *(self.energy.launches() if self.energy else ()),
            frames,
            *self.stack.launches(inputs["mel_lengths"]),
            self.stack.mel(folded.last, self.mel),
        ]
        outputs = {"mel": self.mel}
        if self.energy:
            outputs["energy"] = self.energy.numbers[0]
        return launches, outputs
