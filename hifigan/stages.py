"""The stages of a HiFi-GAN vocoder: from mel to audio, and its denoiser."""

from __future__ import annotations

from common.audio.denoiser import denoiser_stage, masked_denoiser_stage
from common.stages import Dim, Stage, Tensor
from hifigan.config import HifiganConfig

MODEL = "hifigan"
# Padded mels (buckets) need the lengths, so that nothing behind an item's end is heard. They take time.
VARIANTS = {
    "whole": ("generator", "denoiser"),
    "masked": ("masked_generator", "masked_denoiser"),
    "unmasked": ("generator", "masked_denoiser"),
}
BUCKETED, BUCKETED_UNMASKED = "masked", "unmasked"
KERNELS = dict.fromkeys(("generator", "masked_generator"), "trt_plugins.hifigan.engine:Generator")
# What verify_trt compares inside the stages, unless asked for other layers (common/engines/layer_outputs.py).
LAYERS = ("conv_pre", "ups.*", "resblocks.*", "conv_post")


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
        inputs=(Tensor("mel", "float32", (batch, config.n_mel_channels, mel)),),
        outputs=(Tensor("audio", "float32", (batch, samples)),),
        float32_layers=("conv_post", "Tanh"),  # the waveform itself
    )
    return (
        generator,
        denoiser_stage(MODEL, hop, batch, mel),
        generator.masked(),
        masked_denoiser_stage(MODEL, hop, batch, mel),
    )
