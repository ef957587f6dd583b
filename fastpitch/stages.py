"""The two stages of FastPitch: what runs before and after the length regulator's index is known."""

from common.stages import Dim, Stage, StagePlan, TensorSpec
from fastpitch.config import FastPitchConfig

NETWORK = "fastpitch.model:FastPitch"
# The layers' norms, and with them what runs past the layers; angles, of which half precision cannot count
# beyond 2048; and durations and pitch: a sound that is a frame longer shifts all that follow.
FLOAT32_LAYERS = (
    "*layer_norm",
    "*norm",
    "*pos_emb",
    "duration_predictor",
    "pitch_predictor",
    "energy_predictor",
)

BATCH = Dim("batch", 1, 1, 16)
TEXT = Dim("text", 1, 128, 512)
MEL = Dim("mel", 1, 640, 4096)


def stages(config: FastPitchConfig) -> tuple[Stage, ...]:
    """Encoder and decoder for a network of these sizes."""
    lengths = TensorSpec("lengths", "int64", (BATCH,))
    encoded = TensorSpec("encoded", "float32", (BATCH, TEXT, config.in_fft_output_size))
    pitch = TensorSpec("pitch", "float32", (BATCH, 1, TEXT))
    speaker = (TensorSpec("speaker", "int64", (BATCH,)),) if config.n_speakers > 1 else ()
    energy = (TensorSpec("energy", "float32", (BATCH, TEXT)),) if config.energy_conditioning else ()
    encoder = Stage(
        model="fastpitch",
        name="encoder",
        network=NETWORK,
        method="encode",
        inputs=(TensorSpec("symbols", "int64", (BATCH, TEXT)), lengths, *speaker),
        outputs=(encoded, TensorSpec("duration", "float32", (BATCH, TEXT)), pitch),
        float32_layers=FLOAT32_LAYERS,
    )
    decoder = Stage(
        model="fastpitch",
        name="decoder",
        network=NETWORK,
        method="decode",
        inputs=(
            encoded,
            lengths,
            pitch,
            TensorSpec("repeat_index", "int64", (BATCH, MEL)),
            TensorSpec("mel_lengths", "int64", (BATCH,)),
        ),
        outputs=(TensorSpec("mel", "float32", (BATCH, config.n_mel_channels, MEL)), *energy),
        float32_layers=FLOAT32_LAYERS,
    )
    return encoder, decoder


PLAN = StagePlan(
    stages=stages,
    forms={"parallel": ("encoder", "decoder")},
    default="parallel",
    kernels={
        "encoder": "trt_plugins.transformer.fastpitch:Encoder",
        "decoder": "trt_plugins.transformer.fastpitch:Decoder",
    },
    layers=("encoder.*", "*_predictor*", "*_emb", "decoder.*", "proj"),
)
