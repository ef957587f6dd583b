"""The stages of FastSpeech in its forms: in two parts of any length, whole with its lengths given, or in two
parts between which kernels of our own run."""

from common.stages import Dim, Stage, StagePlan, TensorSpec
from fastspeech.config import FastSpeechConfig

MODEL = "fastspeech"
NETWORK = "fastspeech.model:FastSpeech"
LONGEST_TEXT = 512
# The layers' norms, and with them what runs past the layers; the sinusoids; and the durations: a sound that
# is a frame longer shifts all that follow.
FLOAT32_LAYERS = ("*layer_norm*", "position", "length_regulator")

BATCH = Dim("batch", 1, 1, 16)


def stages(config: FastSpeechConfig) -> tuple[Stage, ...]:
    """Encoder, decoder, both with the length regulator between them, and the decoder without its beginning,
    for a network of these sizes.

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
    return (
        Stage(
            model=MODEL,
            name="encoder",
            network=NETWORK,
            method="encode",
            inputs=(symbols, lengths),
            outputs=(encoded, duration),
            float32_layers=FLOAT32_LAYERS,
        ),
        Stage(
            model=MODEL,
            name="decoder",
            network=NETWORK,
            method="decode",
            inputs=(encoded, TensorSpec("repeat_index", "int64", (BATCH, mel)), mel_lengths),
            outputs=(made,),
            float32_layers=FLOAT32_LAYERS,
        ),
        Stage(
            model=MODEL,
            name="synthesis",
            network=NETWORK,
            method="synthesise",
            inputs=(
                symbols,
                lengths,
                TensorSpec("alpha", "float32", (1,)),
                TensorSpec("frames", "int64", (mel,)),
            ),
            outputs=(made, mel_lengths, TensorSpec("total_frames", "int64", (BATCH,)), duration),
            float32_layers=FLOAT32_LAYERS,
        ),
        Stage(
            model=MODEL,
            name="mel_side",
            network=NETWORK,
            method="render",
            inputs=(TensorSpec("placed", "float32", (BATCH, mel, config.d_model)), mel_lengths),
            outputs=(made,),
            float32_layers=FLOAT32_LAYERS,
        ),
    )


PLAN = StagePlan(
    stages=stages,
    forms={
        "dynamic": ("encoder", "decoder"),
        "fixed": ("synthesis",),  # its engines are made for buckets
        "kernels": ("encoder", "mel_side"),
    },
    default="dynamic",
    bucketed="fixed",
    kernels={
        "encoder": "trt_plugins.transformer.fastspeech:Encoder",
        "decoder": "trt_plugins.transformer.fastspeech:Decoder",
        "mel_side": "trt_plugins.transformer.fastspeech:Decoder",
    },
    operations="trt_plugins.operations:KERNELS",
    layers=("word_emb", "phoneme_side.*", "length_regulator.*", "mel_side.*", "mel_linear"),
)
