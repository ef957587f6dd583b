"""The stages of a HiFi-GAN vocoder: from mel to audio, and its denoiser."""

from common.audio.denoiser import denoiser_stage, masked_denoiser_stage
from common.stages import Dim, Stage, StagePlan, TensorSpec
from hifigan.config import HifiganConfig

MODEL = "hifigan"


def stages(config: HifiganConfig) -> tuple[Stage, ...]:
    """The declarations for the generator of this size."""
    batch = Dim("batch", 1, 1, 16)
    mel = Dim("mel", 1, 640, 4096)
    hop = config.hop_length
    samples = Dim("samples", mel.min * hop, mel.typical * hop, mel.max * hop, of="mel", times=hop)
    generator = Stage(
        model=MODEL,
        name="generator",
        network="hifigan.model:HifiganGenerator",
        method="generate",
        inputs=(TensorSpec("mel", "float32", (batch, config.n_mel_channels, mel)),),
        outputs=(TensorSpec("audio", "float32", (batch, samples)),),
        float32_layers=("conv_post", "Tanh"),  # the waveform itself
    )
    return (
        generator,
        denoiser_stage(MODEL, hop, batch, mel),
        generator.masked(),
        masked_denoiser_stage(MODEL, hop, batch, mel),
    )


PLAN = StagePlan(
    stages=stages,
    # Padded mels (buckets) are masked by their lengths, so that padding changes no sample. That takes time.
    forms={
        "whole": ("generator", "denoiser"),
        "masked": ("masked_generator", "masked_denoiser"),
        "unmasked": ("generator", "masked_denoiser"),
    },
    default="whole",
    bucketed="masked",
    bucketed_unmasked="unmasked",
    kernels=dict.fromkeys(("generator", "masked_generator"), "trt_plugins.hifigan.engine:Generator"),
    layers=("conv_pre", "ups.*", "resblocks.*", "conv_post"),
)
