"""The state of Tacotron 2's decoder between two steps."""

from __future__ import annotations

from melforge.common.stages import Dim, TensorSpec
from melforge.tacotron2.config import Tacotron2Config

BATCH = Dim("batch", 1, 1, 32)
TEXT = Dim("text", 1, 128, 512)


def state_tensors(config: Tacotron2Config) -> tuple[TensorSpec, ...]:
    """What a decoder step hands to the next one, in the order of `DecoderState`; zeros before the first."""
    return tuple(
        TensorSpec(name, "float32", (BATCH, size))
        for name, size in (
            ("frame", config.frame_size),
            ("attention_hidden", config.attention_rnn_dim),
            ("attention_cell", config.attention_rnn_dim),
            ("decoder_hidden", config.decoder_rnn_dim),
            ("decoder_cell", config.decoder_rnn_dim),
            ("attention_weights", TEXT),
            ("attention_cumulative", TEXT),
            ("attention_context", config.encoder_embedding_dim),
        )
    )
