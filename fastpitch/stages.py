"""The two stages of FastPitch: what runs before and after the length regulator's index is known."""

from __future__ import annotations

from functools import partial

from melforge.common.stages import Dim, Stage, StagePlan, TensorSpec
from melforge.fastpitch.config import FastPitchConfig

NETWORK, KERNELS = "melforge.fastpitch.model:FastPitch", "melforge.trt_plugins.transformer.fastpitch"
# Of the decoder: the layers' norms, and with them what runs past the layers; angles, of which half precision
# cannot count beyond 2048; and the energy.
FLOAT32_LAYERS = ("*layer_norm", "*norm", "*pos_emb", "energy_predictor")

BATCH, TEXT, MEL = Dim("batch", 1, 1, 32), Dim("text", 1, 128, 512), Dim("mel", 1, 640, 4096)


def stages(config: FastPitchConfig) -> tuple[Stage, ...]:
    """Encoder and decoder for a network of these sizes."""
    lengths = TensorSpec("lengths", "int64", (BATCH,))
    encoded = TensorSpec("encoded", "float32", (BATCH, TEXT, config.in_fft_output_size))
    pitch = TensorSpec("pitch", "float32", (BATCH, 1, TEXT))
    speakers = config.n_speakers
    speaker = (TensorSpec("speaker", "float32", (BATCH, speakers)),) if speakers > 1 else ()
    energy = (TensorSpec("energy", "float32", (BATCH, TEXT)),) if config.energy_conditioning else ()
    symbols, duration = (
        TensorSpec("symbols", "int64", (BATCH, TEXT)),
        TensorSpec("duration", "float32", (BATCH, TEXT)),
    )
    index, mel_lengths = (
        TensorSpec("repeat_index", "int64", (BATCH, MEL)),
        TensorSpec("mel_lengths", "int64", (BATCH,)),
    )
    mel = TensorSpec("mel", "float32", (BATCH, config.n_mel_channels, MEL))
    stage = partial(Stage, "fastpitch", network=NETWORK, float32_layers=FLOAT32_LAYERS)
    inputs = encoded, lengths, pitch, index, mel_lengths
    return (
        stage(
            "encoder",
            method="encode",
            inputs=(symbols, lengths, *speaker),
            outputs=(encoded, duration, pitch),
            float32_layers=("*",),  # a sound that is a frame longer shifts all that follow
        ),
        stage("decoder", method="decode", inputs=inputs, outputs=(mel, *energy)),
    )


PLAN = StagePlan(
    stages=stages,
    forms={"parallel": ("encoder", "decoder")},
    default="parallel",
    kernels={"encoder": f"{KERNELS}:FastPitchEncoder", "decoder": f"{KERNELS}:FastPitchDecoder"},
    on_cuda="parallel",
    ahead="melforge.trt_plugins.ahead",
    between={"regulation": "melforge.trt_plugins.transformer.length_regulator:kernel_regulation"},
    layers=("encoder.*", "*_predictor*", "*_emb", "decoder.*", "proj"),
)
