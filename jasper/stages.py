"""The stages of a recogniser: audio to features, to log-probabilities, to labels."""

from __future__ import annotations

from melforge.common.stages import Dim, Stage, StagePlan, TensorSpec
from melforge.jasper.config import JasperConfig

NETWORK, FEATURES = "melforge.jasper.model:Jasper", "melforge.jasper.features_network:JasperFeatures"
CAPTURED = "melforge.common.engines.padded:CapturedNetwork"
# Kernels of training, and whether they can be made on this machine.
TRAINING_KERNELS = {
    "depthwise": "melforge.trt_plugins.jasper.training:depthwise",
    "norms": "melforge.trt_plugins.jasper.training:norms",
    "read_at_speeds": "melforge.trt_plugins.jasper.training:read_at_speeds",
}
CAN_MAKE_KERNELS = "melforge.common.engines.limits:can_launch"
BATCH = Dim("batch", 1, 1, 32)
MEL = Dim("mel", 16, 704, 4096)  # frames of features


def stages(config: JasperConfig) -> tuple[Stage, ...]:
    """The stages of either form for a network of these sizes.

    Each item of a batch is what it is alone where "masked_features" and "masked_encoder" run. "features" and
    "encoder" compute a batch as NVIDIA's exported models do: the network attends to padding.
    """
    hop = config.hop_length
    steps = Dim("steps", config.steps(MEL.min), config.steps(MEL.typical), config.steps(MEL.max))
    samples = Dim("samples", MEL.min * hop, MEL.typical * hop, MEL.max * hop, of="mel", times=hop)
    lengths = TensorSpec("lengths", "int64", (BATCH,))
    audio = TensorSpec("audio", "float32", (BATCH, samples))
    features = TensorSpec("features", "float32", (BATCH, config.n_mel_channels, MEL))
    frames = TensorSpec("frames", "int64", (BATCH,))
    log_probs = TensorSpec("log_probs", "float32", (BATCH, steps, len(config.labels) + 1))
    labels, scores = (
        TensorSpec("labels", "int64", (BATCH, steps)),
        TensorSpec("scores", "float32", (BATCH, steps)),
    )
    everywhere = {"model": "jasper", "float32_layers": ("*",)}  # half precision would overflow
    extract = {"network": FEATURES, "inputs": (audio, lengths), "outputs": (features, frames), **everywhere}
    encoder = Stage(
        "jasper",
        "encoder",
        NETWORK,
        "encode",
        inputs=(features,),
        outputs=(log_probs,),
        float32_layers=("decoder.*", "LogSoftmax"),  # the log-probabilities themselves
    )
    greedy = Stage(
        name="decoder",
        network="melforge.jasper.model:GreedyDecoder",
        method="decode",
        inputs=(log_probs, lengths),
        outputs=(labels, scores),
        **everywhere,
    )
    return (
        encoder.masked(),
        encoder,
        Stage(name="masked_features", method="extract_each", **extract),
        Stage(name="features", method="extract", **extract),
        greedy,
    )


PLAN = StagePlan(
    stages=stages,
    forms={
        "masked": ("masked_features", "masked_encoder", "decoder"),
        "unmasked": ("features", "encoder", "decoder"),
    },
    default="masked",
    kernels={
        "masked_features": "melforge.trt_plugins.jasper.features:JasperFeaturesKernels",
        "masked_encoder": "melforge.trt_plugins.jasper.encoder:JasperEncoderKernels",
        "decoder": CAPTURED,
    },
    on_cuda="masked",
    ahead="melforge.trt_plugins.ahead",
    layers=("encoder.layers.*", "decoder.layers.0"),
)
