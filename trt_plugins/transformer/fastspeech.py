"""FastSpeech's stages on the kernels."""

from typing import Any, cast

from torch import Tensor

from melforge.common.stages import Stage
from melforge.fastspeech.config import HEAD_SIZE, FastSpeechConfig
from melforge.fastspeech.model import MASKED_SCORE, FastSpeech, FastSpeechTransformer
from melforge.trt_plugins.transformer import fold
from melforge.trt_plugins.transformer.engine import DecoderBuffers, EncoderBuffers, TransformerEngine


def fold_layers(transformer: FastSpeechTransformer, side: str) -> tuple[fold.LayerWeights, ...]:
    folded, layers = [], cast(Any, transformer.layer_stack)
    for number, layer in enumerate(layers):
        mine, after, name = layer.slf_attn, layer.pos_ffn, f"{side}.layer_stack.{number}"
        names = f"{name}.slf_attn.linear", f"{name}.slf_attn", f"{name}.pos_ffn.w_2<", f"{name}.pos_ffn"
        weight, bias = (
            tensor.unflatten(0, (mine.n_heads, 3, HEAD_SIZE))
            for tensor in (mine.linear.weight, mine.linear.bias)
        )
        qkv = [(weight[:, index], bias[:, index]) for index in range(3)]
        folded.append(
            fold.LayerWeights(
                fold.attention(qkv, mine.fc, mine.layer_norm, MASKED_SCORE, by_heads=True),
                fold.product(after.w_1.weight, after.w_1.bias),
                fold.product(after.w_2.weight, after.w_2.bias),
                fold.norm(after.layer_norm),
                fold.LayerNames(*names),
            )
        )
    return tuple(folded)


def positions_of(network: FastSpeech) -> Tensor:
    return network.position.weight[1:].float().contiguous()


def margin_of(config: FastSpeechConfig) -> int:
    """The convolutions' largest reach, in steps."""
    return max(config.fft_conv1d_kernel, config.duration_predictor_kernel_size) // 2


def encoder_weights(network: FastSpeech, stage: Stage) -> fold.EncoderWeights:
    predictor = network.length_regulator.duration_predictor
    path = "length_regulator.duration_predictor"
    layers = [
        (getattr(predictor, conv), getattr(predictor, norm), (f"{path}.{conv}", f"{path}.{norm}"))
        for conv, norm in (("conv1d_1", "layer_norm_1"), ("conv1d_2", "layer_norm_2"))
    ]
    return fold.EncoderWeights(
        embedding=network.word_emb.weight.float(),
        speakers=None,
        positions=positions_of(network),
        layers=fold_layers(network.phoneme_side, "phoneme_side"),
        predictors=(fold.predictors([layers], [predictor.linear_layer], ("duration",)),),
        margin=margin_of(network.config),
    )


def decoder_weights(network: FastSpeech, stage: Stage) -> fold.DecoderWeights:
    last = network.mel_linear
    return fold.DecoderWeights(
        positions=positions_of(network),
        layers=fold_layers(network.mel_side, "mel_side"),
        last=fold.product(last.weight, last.bias),
        margin=margin_of(network.config),
    )


class FastSpeechEncoder(TransformerEngine):
    fold_weights, buffers = staticmethod(encoder_weights), EncoderBuffers


class FastSpeechDecoder(TransformerEngine):
    fold_weights, buffers = staticmethod(decoder_weights), DecoderBuffers
