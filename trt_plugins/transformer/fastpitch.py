"""FastPitch's stages on the kernels."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from melforge.fastpitch.config import FastPitchConfig
from melforge.fastpitch.model import MASKED_SCORE, FastPitch, Predictor, Transformer
from melforge.trt_plugins.graphs import TritonLaunch, Zeros
from melforge.trt_plugins.transformer import fold
from melforge.trt_plugins.transformer.engine import (
    STEP_ROWS,
    EncoderBuffers,
    LayerLaunches,
    PredictorLaunches,
    SequenceBuffer,
    TransformerEngine,
    WorkBuffers,
    embedding_options,
    frames_launch,
)
from melforge.trt_plugins.transformer.fold import Layer, Predictors, Product, Value

LONGEST = 100.0  # frames of a symbol, as in the network's clamp


@dataclass(frozen=True)
class FoldedDecoder:
    pitch: Value
    energy: Value | None
    predictors: Predictors | None  # the energy's
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
    """Groups predictors of equal sizes, which share launches."""

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
    """The convolutions' largest reach, in steps."""
    return max(getattr(config, name) for name in vars(config) if name.endswith("kernel_size")) // 2


class Encoder(TransformerEngine):
    name = "FastPitch"

    def fold(self, network: FastPitch) -> fold.Encoder:
        speakers = network.speaker_emb
        return fold.Encoder(
            network.encoder.word_emb.weight.float(),
            None if speakers is None else speakers.weight.float() * self.config.speaker_emb_weight,
            network.encoder.pos_emb(self.stage.dynamic_dims["text"].max),
            fold_layers(network.encoder),
            fold_predictors(network, ("duration", "pitch")),
        )

    def work_buffers(self, inputs: Mapping[str, Tensor], zeros: Zeros, device: str) -> WorkBuffers:
        config = self.config
        sizes = *inputs["symbols"].shape, config.symbols_embedding_dim, margin_of(config)
        return EncoderBuffers(self, SequenceBuffer(*sizes, zeros, device), LONGEST, config.padding_idx)


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

    def work_buffers(self, inputs: Mapping[str, Tensor], zeros: Zeros, device: str) -> WorkBuffers:
        sizes = *inputs["encoded"].shape[:2], inputs["repeat_index"].shape[1]
        return DecoderBuffers(self, *sizes, zeros, device)


class DecoderBuffers:
    def __init__(self, engine: Decoder, batch: int, text: int, mel: int, zeros: Zeros, device: str):
        folded, config, processors = engine.folded, engine.config, engine.processors
        self.config, self.folded = config, folded
        self.text, self.sequence = (
            SequenceBuffer(batch, size, config.symbols_embedding_dim, margin_of(config), zeros, device)
            for size in (text, mel)
        )
        energy, dims = folded.predictors, engine.stage.dynamic_dims
        self.energy = (
            PredictorLaunches(energy, self.text, dims["text"].typical, processors) if energy else None
        )
        self.stack = LayerLaunches(folded.layers, self.sequence, dims["mel"].typical, processors)
        self.mel = torch.zeros(batch, config.n_mel_channels, mel, device=device)

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[TritonLaunch], dict[str, Tensor]]:
        from melforge.trt_plugins.transformer import kernels

        folded, text, sequence = self.folded, self.text, self.sequence
        masks, pitch = self.config.mask_padding, folded.pitch
        given = inputs["encoded"], inputs["lengths"], inputs["pitch"]
        with_pitch = TritonLaunch(
            kernels.values_kernel,
            text.grid(STEP_ROWS),
            (*given, pitch.weight, pitch.bias, *text.memory, *text.layout, text.channels),
            {**embedding_options(text, masks), "TAPS": len(pitch.weight)},
        )
        source, energy = text.x32[text.margin :], self.energy.numbers if self.energy else None
        frames = frames_launch(
            sequence, source, text.stride, inputs, folded.positions, masks, energy, folded.energy
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
