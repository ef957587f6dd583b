"""The stages of a WaveGlow vocoder: from mel and noise to audio, and its denoiser."""

from __future__ import annotations

from melforge.common.audio.denoiser import vocoder_stages
from melforge.common.audio.pitch import pitch_stages
from melforge.common.errors import InputError
from melforge.common.stages import Dim, Stage, TensorSpec
from melforge.common.synthesis.vocoder_plan import vocoder_plan
from melforge.waveglow.config import WaveglowConfig

OF_NOISE = (
    "sigma times the sum of unit noise and of harmonics of the pitch that waveglow.pitch gives: "
    "waveglow/noise.py has the formula"
)


def stages(config: WaveglowConfig) -> tuple[Stage, ...]:
    """The declarations for the network of this size. Longer mels are vocoded in chunks.

    The graph keeps the network's one-dimensional convolutions. On ONNX Runtime (2 cores with AVX2), 7 seconds
    of a compact network (8 flows, 6 layers, 56 channels) take 560 ms so; 650 ms with convolutions over an
    axis of height 1, which it reorders in memory and back; 620 ms with one conditioning convolution for all
    layers of a net; twice as long with the conditioning as inputs of each dilated one. The upsampling,
    as a product at the rate of frames, has 40 of them; as a transposed convolution it would have 210.
    """
    if config.hop_length % config.n_group:
        raise InputError(
            f"hop_length {config.hop_length} must be a multiple of n_group {config.n_group}: "
            "mels are vocoded in pieces, and a frame must have whole groups of samples"
        )
    batch, mel = Dim("batch", 1, 1, 32), Dim("mel", 1, 256, 1024)
    steps, samples = (
        Dim(name, mel.min * size, mel.typical * size, mel.max * size, of="mel", times=size)
        for name, size in (("steps", config.noise_length(1)), ("samples", config.hop_length))
    )
    network = (
        "melforge.waveglow.source:SourcedWaveglow" if config.source else "melforge.waveglow.model:Waveglow"
    )
    generator = Stage(
        model="waveglow",
        name="generator",
        network=network,
        method="generate",
        inputs=(
            TensorSpec("mel", "float32", (batch, config.n_mel_channels, mel)),
            TensorSpec("z", "float32", (batch, config.n_group, steps), OF_NOISE if config.source else ""),
        ),
        outputs=(TensorSpec("audio", "float32", (batch, samples)),),
        # The waveform on its way through the flows: what is multiplied there is multiplied in each of them.
        float32_layers=("convinv", "Exp"),
        rtx_in_order=True,
    )
    made = vocoder_stages(generator, config.hop_length)
    return (*made, *pitch_stages("waveglow", network, config, batch, mel)) if config.source else made


PLAN = vocoder_plan(
    stages,
    generator="melforge.trt_plugins.waveglow.engine:WaveglowKernels",
    layers=(":_upsampled", "cond", "WN.*.start", "WN.*.*_layers.*", "WN.*.end", "convinv.*:undo", "pitch.*"),
    ahead="melforge.trt_plugins.ahead",
    first="pitch",
    first_engine="melforge.trt_plugins.pitch.engine:PitchKernels",
    between={"draw": "melforge.trt_plugins.noise:kernel_draw"},
)
