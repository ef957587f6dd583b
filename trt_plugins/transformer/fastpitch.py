"""FastPitch's stages on the kernels."""

from itertools import groupby
from typing import Any, cast

import torch

from melforge.common.stages import Stage
from melforge.fastpitch.config import FastPitchConfig
from melforge.fastpitch.model import MASKED_SCORE, FastPitch, Transformer
from melforge.trt_plugins.transformer import fold
from melforge.trt_plugins.transformer.engine import DecoderBuffers, EncoderBuffers, TransformerEngine

LONGEST = 100.0  # frames of a symbol, as in the network's clamp


def fold_layers(transformer: Transformer, side: str) -> tuple[fold.LayerWeights, ...]:
    folded, layers = [], cast(Any, transformer.layers)
    for number, layer in enumerate(layers):
        mine, name = layer.dec_attn, f"{side}.layers.{number}"
        names = f"{name}.dec_attn.qkv_net", f"{name}.dec_attn", f"{name}.pos_ff.CoreNet.2<", f"{name}.pos_ff"
        shape = (3, mine.n_heads, mine.d_head)
        weights, biases = (tensor.unflatten(0, shape) for tensor in (mine.qkv_net.weight, mine.qkv_net.bias))
        qkv = list(zip(weights, biases, strict=True))
        expand, _, contract, _ = layer.pos_ff.CoreNet
        folded.append(
            fold.LayerWeights(
                fold.attention(qkv, mine.o_net, mine.layer_norm, MASKED_SCORE, by_heads=False),
                fold.product(expand.weight, expand.bias),
                fold.product(contract.weight, contract.bias),
                fold.norm(layer.pos_ff.layer_norm),
                fold.LayerNames(*names),
            )
        )
    return tuple(folded)


def fold_predictors(network: FastPitch, names: tuple[str, ...]) -> tuple[fold.PredictorWeights, ...]:
    """Groups predictors of equal sizes, which share launches."""

    def sizes(name: str) -> list[torch.Size]:
        return [tensor.shape for tensor in modules[name].state_dict().values()]

    modules: dict[str, Any] = {name: getattr(network, f"{name}_predictor") for name in names}
    return tuple(
        fold.predictors(
            [
                [
                    (layer.conv, layer.norm, (f"{path}.{number}.conv", f"{path}.{number}.norm"))
                    for number, layer in enumerate(modules[name].layers)
                ]
                for name in group
                for path in [f"{name}_predictor.layers"]
            ],
            [modules[name].fc for name in group],
            group,
        )
        for group in (tuple(found) for _, found in groupby(names, sizes))
    )


def margin_of(config: FastPitchConfig) -> int:
    """The convolutions' largest reach, in steps."""
    return max(getattr(config, name) for name in vars(config) if name.endswith("kernel_size")) // 2


def encoder_weights(network: FastPitch, stage: Stage) -> fold.EncoderWeights:
    config, speakers = network.config, network.speaker_emb
    return fold.EncoderWeights(
        embedding=network.encoder.word_emb.weight.float(),
        speakers=None if speakers is None else speakers.weight.float() * config.speaker_emb_weight,
        positions=network.encoder.pos_emb(stage.dynamic_dims["text"].max),
        layers=fold_layers(network.encoder, "encoder"),
        predictors=fold_predictors(network, ("duration", "pitch")),
        margin=margin_of(config),
        longest=LONGEST,
        padding=config.padding_idx,
    )


def decoder_weights(network: FastPitch, stage: Stage) -> fold.DecoderWeights:
    has_energy = network.config.energy_conditioning
    return fold.DecoderWeights(
        positions=network.decoder.pos_emb(stage.dynamic_dims["mel"].max),
        layers=fold_layers(network.decoder, "decoder"),
        last=fold.product(network.proj.weight, network.proj.bias),
        margin=margin_of(network.config),
        pitch=fold.value(network.pitch_emb),
        energy=fold.value(network.energy_emb) if has_energy else None,
        predictors=fold_predictors(network, ("energy",))[0] if has_energy else None,
    )


class FastPitchEncoder(TransformerEngine):
    fold_weights, buffers = staticmethod(encoder_weights), EncoderBuffers


class FastPitchDecoder(TransformerEngine):
    fold_weights, buffers = staticmethod(decoder_weights), DecoderBuffers
