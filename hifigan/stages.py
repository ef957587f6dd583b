"""The stages of a HiFi-GAN vocoder: from mel to audio, and its denoiser."""

from __future__ import annotations

from dataclasses import replace

from melforge.common.audio.denoiser import vocoder_stages
from melforge.common.audio.pitch import pitch_stages
from melforge.common.stages import Dim, Stage, TensorSpec
from melforge.common.synthesis.vocoder_plan import vocoder_plan
from melforge.hifigan.config import HifiganConfig

SOURCE_FILTER = "melforge.hifigan.source_filter:SourceFilterGenerator"


def stages(config: HifiganConfig) -> tuple[Stage, ...]:
    """The declarations for the generator of this size."""
    batch = Dim("batch", 1, 1, 32)
    mel = Dim("mel", 1, 640, 4096)
    hop = config.hop_length
    samples = Dim("samples", mel.min * hop, mel.typical * hop, mel.max * hop, of="mel", times=hop)
    if config.source:
        return source_stages(config, batch, mel, samples)
    generator = Stage(
        model="hifigan",
        name="generator",
        network="melforge.hifigan.model:HifiganGenerator",
        method="generate",
        inputs=(TensorSpec("mel", "float32", (batch, config.n_mel_channels, mel)),),
        outputs=(TensorSpec("audio", "float32", (batch, samples)),),
        # The waveform itself; the only products besides convolutions are the inverse STFT's.
        float32_layers=("conv_post", "Tanh", "Exp", "Sin", "Cos", "MatMul"),
    )
    return vocoder_stages(generator, hop)


def source_stages(config: HifiganConfig, batch: Dim, mel: Dim, samples: Dim) -> tuple[Stage, ...]:
    """Those of a generator with a source: the pitch of each frame, then audio of mel and source."""
    mels = TensorSpec("mel", "float32", (batch, config.n_mel_channels, mel))
    hop = config.hop_length
    source = TensorSpec(
        "source",
        "float32",
        (batch, 2 + config.noise_channels, mel),
        "at each frame's centre the phase in cycles, less the whole ones, and the pitch, which hifigan.pitch "
        f"gives; then noise of mean 0 and variance 1. phase[0] is 0, phase[t] is phase[t - 1] + {hop} * "
        "(pitch[t - 1] + pitch[t]) / 2, summed in float64",
    )
    generator = Stage(
        model="hifigan",
        name="generator",
        network=SOURCE_FILTER,
        method="generate",
        inputs=(mels, source),
        outputs=(TensorSpec("audio", "float32", (batch, samples)),),
        float32_layers=("*",),  # as the pitch
    )
    inner = Dim("inner", mel.min, mel.typical, mel.max)
    inner_samples = Dim("samples", hop, mel.typical * hop, mel.max * hop, of="inner", times=hop)
    inner_generator = replace(
        generator,
        name="inner_generator",
        method="generate_inner",
        inputs=(mels, source, TensorSpec("inner", "int64", (inner,), "numbers of frames in a row")),
        outputs=(TensorSpec("audio", "float32", (batch, inner_samples)),),
    )
    pitches = pitch_stages("hifigan", SOURCE_FILTER, config, batch, mel)
    return (*vocoder_stages(generator, hop), inner_generator, *pitches)


PLAN = vocoder_plan(
    stages,
    generator="melforge.trt_plugins.hifigan.engine:generator_kind",
    layers=("conv_pre", "ups.*", "resblocks.*", "conv_post", "pitch.*"),
    ahead="melforge.trt_plugins.ahead",
    first="pitch",
    on_cpu={"generator": "inner_generator"},
    first_engine="melforge.trt_plugins.pitch.engine:PitchKernels",
    between={
        "join_source": "melforge.trt_plugins.hifigan.engine:kernel_join",
        "draw": "melforge.trt_plugins.noise:kernel_draw",
    },
)
