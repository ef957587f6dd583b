"""The stages of a HiFi-GAN vocoder: one, from mel to audio."""

from __future__ import annotations

from common.stages import Dim, Stage, Tensor
from hifigan.config import HifiganConfig

MODEL = "hifigan"


def stages(config: HifiganConfig) -> tuple[Stage, ...]:
    """The declaration of the generator of this size."""
    batch = Dim("batch", 1, 1, 16)
    mel = Dim("mel", 1, 640, 4096)
    hop = config.hop_length
    samples = Dim("samples", mel.min * hop, mel.typical * hop, mel.max * hop)
    return (
        Stage(
            model=MODEL,
            name="generator",
            network="hifigan.model:HifiganGenerator",
            method="generate",
            inputs=(Tensor("mel", "float32", (batch, config.n_mel_channels, mel)),),
            outputs=(Tensor("audio", "float32", (batch, samples)),),
        ),
    )
