"""The stages of Tacotron 2: encoder, decoder (a step at a time, or all of it as a loop), postnet."""

from __future__ import annotations

from functools import partial

from melforge.common.engines import TEXT_STEP
from melforge.common.stages import Dim, Stage, StagePlan, TensorSpec
from melforge.tacotron2.config import PRENET_LAYERS, Tacotron2Config
from melforge.tacotron2.state import BATCH, TEXT, state_tensors

LONGEST_LOOP = 2000
# What the decoder's steps make of each other: where to look, what was said, and when to stop. Other products
# are in half precision, the states that steps carry are not. In half precision TensorRT for RTX 1.4 gives NaN
# for the location convolution (2 channels) where the text's length is no multiple of 8.
FLOAT32_LAYERS = ("Softmax", "decoder.gate_layer", "decoder.linear_projection", "*.location_conv")


def longest_steps(config: Tacotron2Config) -> int:
    """The step limit that can be asked for at most."""
    return max(LONGEST_LOOP, config.max_decoder_steps)


def stages(config: Tacotron2Config) -> tuple[Stage, ...]:
    """All stages of a network of these sizes.

    The prenet's noise is uniform in [0, 1); what is below `prenet_dropout` drops its unit, and the rest is
    scaled by 1 / (1 - prenet_dropout). The network was trained with 0.5; 0 switches the dropout off, whatever
    the noise. In `decoder_loop` the rows of the noise are the step limit. A postnet that masks padding, as
    the encoder does, takes the frames' lengths.
    """
    memory = TensorSpec("memory", "float32", (BATCH, TEXT, config.encoder_embedding_dim))
    processed = TensorSpec("processed_memory", "float32", (BATCH, TEXT, config.attention_dim))
    lengths = TensorSpec("lengths", "int64", (BATCH,))
    dropout = TensorSpec("prenet_dropout", "float32", (1,))
    noise = (PRENET_LAYERS, BATCH, config.prenet_dim)
    limit = Dim("steps", 1, 200, longest_steps(config))
    made = Dim("made_steps", 1, limit.typical, limit.max)  # known when the loop has ended
    frames = Dim("mel", 1, 640, max(640, limit.max * config.n_frames_per_step))
    mel = TensorSpec("mel", "float32", (BATCH, config.n_mel_channels, frames))
    state = state_tensors(config)
    after = (TensorSpec(f"next_{tensor.name}", tensor.dtype, tensor.dims) for tensor in state)
    step_noise = TensorSpec("prenet_noise", "float32", noise)
    loop_inputs = (
        *(memory, processed, lengths, TensorSpec("prenet_noise", "float32", (limit, *noise)), dropout),
        TensorSpec("gate_threshold", "float32", (1,)),
    )
    loop_outputs = (
        mel,
        TensorSpec("mel_lengths", "int64", (BATCH,)),
        TensorSpec("gate", "float32", (BATCH, made)),
        TensorSpec("alignment", "float32", (BATCH, made, TEXT)),
        TensorSpec("stopped", "bool", (BATCH,)),
    )
    stage = partial(Stage, "tacotron2", network="melforge.tacotron2.model:Tacotron2")
    decoder = partial(stage, small_steps=True, float32_layers=FLOAT32_LAYERS, rtx_text_step=TEXT_STEP)
    symbols = TensorSpec("symbols", "int64", (BATCH, TEXT))
    step_inputs = memory, processed, lengths, *state, step_noise, dropout
    loop = {
        "inputs": loop_inputs,
        "outputs": loop_outputs,
        "graph": "melforge.tacotron2.export_loop:loop_graph",
    }
    gate, refined = TensorSpec("gate", "float32", (BATCH,)), TensorSpec("refined", "float32", mel.dims)
    masked = (lengths,) if config.mask_text_padding else ()
    return (
        stage("encoder", method="encode", inputs=(symbols, lengths), outputs=(memory, processed)),
        decoder("decoder_iter", method="decode_step", inputs=step_inputs, outputs=(gate, *after)),
        decoder("decoder_loop", method="decode_loop", feeds_back=True, **loop),
        stage("postnet", method="refine", inputs=(mel, *masked), outputs=(refined,)),
    )


PLAN = StagePlan(
    stages=stages,
    forms={"loop": ("encoder", "decoder_loop", "postnet"), "steps": ("encoder", "decoder_iter", "postnet")},
    default="loop",
    on_trt="steps",  # on a GPU a loop inside an engine takes twice as long a step
    kernels={
        "encoder": "melforge.trt_plugins.tacotron2_encoder:CapturedTacotron2Encoder",
        "decoder_loop": "melforge.trt_plugins.tacotron2_decoder.engine:DecoderLoop",
        "postnet": "melforge.common.engines.padded:CapturedNetwork",
    },
    on_cuda="loop",
    ahead="melforge.trt_plugins.ahead",
    layers=("embedding", "encoder*", "decoder*", "postnet*"),
)
