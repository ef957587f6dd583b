"""FastSpeech's stages on the kernels."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from melforge.fastspeech.config import HEAD_SIZE, FastSpeechConfig
from melforge.fastspeech.model import MASKED_SCORE, FastSpeech, Transformer
from melforge.trt_plugins.graphs import TritonLaunch, Zeros
from melforge.trt_plugins.transformer import fold
from melforge.trt_plugins.transformer.engine import (
    NO_LIMIT,
    EncoderBuffers,
    LayerLaunches,
    SequenceBuffer,
    TransformerEngine,
    WorkBuffers,
    frames_launch,
)
from melforge.trt_plugins.transformer.fold import Layer, Product


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
    """The convolutions' largest reach, in steps."""
    return max(config.fft_conv1d_kernel, config.duration_predictor_kernel_size) // 2


class Encoder(TransformerEngine):
    name = "FastSpeech"

    def fold(self, network: FastSpeech) -> fold.Encoder:
        predictor = network.length_regulator.duration_predictor
        layers = [(predictor.conv1d_1, predictor.layer_norm_1), (predictor.conv1d_2, predictor.layer_norm_2)]
        return fold.Encoder(
            network.word_emb.weight.float(),
            None,
            positions_of(network),
            fold_layers(network.phoneme_side),
            (fold.predictors([layers], [predictor.linear_layer], ("duration",)),),
        )

    def work_buffers(self, inputs: Mapping[str, Tensor], zeros: Zeros, device: str) -> WorkBuffers:
        config = self.config
        sizes = *inputs["symbols"].shape, config.d_model, margin_of(config)
        return EncoderBuffers(self, SequenceBuffer(*sizes, zeros, device), NO_LIMIT)


class Decoder(TransformerEngine):
    name = "FastSpeech"

    def fold(self, network: FastSpeech) -> FoldedDecoder:
        last = network.mel_linear
        return FoldedDecoder(
            positions_of(network), fold_layers(network.mel_side), fold.product(last.weight, last.bias)
        )

    def work_buffers(self, inputs: Mapping[str, Tensor], zeros: Zeros, device: str) -> WorkBuffers:
        return DecoderBuffers(self, *inputs["repeat_index"].shape, zeros, device)


class DecoderBuffers:
    def __init__(self, engine: Decoder, batch: int, mel: int, zeros: Zeros, device: str):
        config = engine.config
        self.config, self.folded = config, engine.folded
        self.sequence = SequenceBuffer(batch, mel, config.d_model, margin_of(config), zeros, device)
        typical = engine.stage.dynamic_dims["mel"].typical
        self.stack = LayerLaunches(self.folded.layers, self.sequence, typical, engine.processors)
        self.mel = torch.zeros(batch, config.n_mel_channels, mel, device=device)

    def describe(self, inputs: Mapping[str, Tensor]) -> tuple[list[TritonLaunch], dict[str, Tensor]]:
        folded = self.folded
        source, masks = inputs["encoded"], self.config.mask_padding
        frames = frames_launch(self.sequence, source, source.shape[1], inputs, folded.positions, masks)
        stack = self.stack.launches(inputs["mel_lengths"])
        return [frames, *stack, self.stack.mel(folded.last, self.mel)], {"mel": self.mel}
