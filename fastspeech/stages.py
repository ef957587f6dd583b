"""The stages of FastSpeech in its forms: in two parts of any length, or whole with its lengths given."""

from __future__ import annotations

from functools import partial

from melforge.common.stages import Dim, Stage, StagePlan, TensorSpec
from melforge.fastspeech.config import FastSpeechConfig

NETWORK, KERNELS = "melforge.fastspeech.model:FastSpeech", "melforge.trt_plugins.transformer.fastspeech"
LONGEST_TEXT = 512
# The layers' norms, and with them what runs past the layers; the sinusoids; and the durations: a sound that
# is a frame longer shifts all that follow.
FLOAT32_LAYERS = ("*layer_norm*", "position", "length_regulator")

BATCH = Dim("batch", 1, 1, 32)


def stages(config: FastSpeechConfig) -> tuple[Stage, ...]:
    """Encoder, decoder, and both with the length regulator between them, for a network of these sizes.

    `frames` of "synthesis" counts 0, 1, ...: how many there are says how long its mel is, whatever the
    durations. `total_frames` is how long it would be otherwise.
    """
    text_max = min(LONGEST_TEXT, config.max_seq_len)
    text = Dim("text", 1, min(128, text_max), text_max)
    mel = Dim("mel", 1, min(640, config.max_seq_len), config.max_seq_len)
    symbols, lengths = TensorSpec("symbols", "int64", (BATCH, text)), TensorSpec("lengths", "int64", (BATCH,))
    encoded = TensorSpec("encoded", "float32", (BATCH, text, config.d_model))
    duration = TensorSpec("duration", "float32", (BATCH, text))
    made = TensorSpec("mel", "float32", (BATCH, config.n_mel_channels, mel))
    mel_lengths = TensorSpec("mel_lengths", "int64", (BATCH,))
    index = TensorSpec("repeat_index", "int64", (BATCH, mel))
    given = TensorSpec("alpha", "float32", (1,)), TensorSpec("frames", "int64", (mel,))
    total_frames = TensorSpec("total_frames", "int64", (BATCH,))
    stage = partial(Stage, "fastspeech", network=NETWORK, float32_layers=FLOAT32_LAYERS)
    whole = made, mel_lengths, total_frames, duration
    return (
        stage("encoder", method="encode", inputs=(symbols, lengths), outputs=(encoded, duration)),
        stage("decoder", method="decode", inputs=(encoded, index, mel_lengths), outputs=(made,)),
        stage("synthesis", method="synthesise", inputs=(symbols, lengths, *given), outputs=whole),
    )


PLAN = StagePlan(
    stages=stages,
    forms={
        "dynamic": ("encoder", "decoder"),
        "fixed": ("synthesis",),  # its engines are made for buckets
        "kernels": ("encoder", "decoder"),  # the same: a form of its own up to 0.2
    },
    default="dynamic",
    bucketed="fixed",
    kernels={"encoder": f"{KERNELS}:FastSpeechEncoder", "decoder": f"{KERNELS}:FastSpeechDecoder"},
    on_cuda="dynamic",
    ahead="melforge.trt_plugins.ahead",
    between={"regulation": "melforge.trt_plugins.transformer.length_regulator:kernel_regulation"},
    layers=("word_emb", "phoneme_side.*", "length_regulator.*", "mel_side.*", "mel_linear"),
)
