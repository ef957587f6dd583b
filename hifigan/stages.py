"""The stages of a HiFi-GAN vocoder: from mel to audio, and its denoiser."""

from __future__ import annotations

from common.audio.denoiser import vocoder_plan, vocoder_stages
from common.stages import Dim, Stage, TensorSpec
from hifigan.config import HifiganConfig


def stages(config: HifiganConfig) -> tuple[Stage, ...]:
    """The declarations for the generator of this size."""
    batch = Dim("batch", 1, 1, 32)
    mel = Dim("mel", 1, 640, 4096)
    hop = config.hop_length
    samples = Dim("samples", mel.min * hop, mel.typical * hop, mel.max * hop, of="mel", times=hop)
    generator = Stage(
        model="hifigan",
        name="generator",
        network="hifigan.model:HifiganGenerator",
        method="generate",
        inputs=(TensorSpec("mel", "float32", (batch, config.n_mel_channels, mel)),),
        outputs=(TensorSpec("audio", "float32", (batch, samples)),),
        # The waveform itself; the only products besides convolutions are the inverse STFT's.
        float32_layers=("conv_post", "Tanh", "Exp", "Sin", "Cos", "MatMul"),
    )
    return vocoder_stages(generator, hop)


PLAN = vocoder_plan(
    stages,
    generator="trt_plugins.hifigan.engine:make_generator",
    denoiser="common.engines.padded:CapturedNetwork",
    layers=("conv_pre", "ups.*", "resblocks.*", "conv_post"),
)
