"""Sizes of a Tacotron 2 network, under the names that published checkpoints carry in `config`."""

from __future__ import annotations

from dataclasses import dataclass

from melforge.common.config.typed import require_sizes
from melforge.common.errors import InputError

PRENET_LAYERS = 2
PRENET_DROPOUT = 0.5
# On a GPU the decoder checks at this interval whether all items have stopped. A check synchronises with the
# GPU, which takes about as long as a step. At most 15 of some hundreds of steps are wasted.
STOP_CHECK_STEPS = 16
# Steps that a TensorRT engine runs at a time. The next ones are launched before their stop flags are read.
GRAPH_STEPS = 8


@dataclass(frozen=True)
class Tacotron2Config:
    """Constructor arguments of the published network (defaults: the published sizes).

    `mask_padding` is the published option: the teacher-forced outputs behind an item's end are overwritten.
    `p_convolution_dropout`, of encoder and postnet in training, is fixed in the published network.
    In the published network padding leaks into shorter texts through the encoder's convolutions.
    `mask_text_padding` (ours) zeroes it before each convolution, and the frames behind an item's end in the
    postnet, so that an item of a batch equals the item alone.
    """

    mask_padding: bool = False
    n_mel_channels: int = 80
    n_symbols: int = 148
    symbols_embedding_dim: int = 512
    encoder_kernel_size: int = 5
    encoder_n_convolutions: int = 3
    encoder_embedding_dim: int = 512
    attention_rnn_dim: int = 1024
    attention_dim: int = 128
    attention_location_n_filters: int = 32
    attention_location_kernel_size: int = 31
    n_frames_per_step: int = 1
    decoder_rnn_dim: int = 1024
    prenet_dim: int = 256
    max_decoder_steps: int = 2000
    gate_threshold: float = 0.5
    p_attention_dropout: float = 0.1
    p_decoder_dropout: float = 0.1
    p_convolution_dropout: float = 0.5
    postnet_embedding_dim: int = 512
    postnet_kernel_size: int = 5
    postnet_n_convolutions: int = 5
    decoder_no_early_stopping: bool = False
    mask_text_padding: bool = False

    def __post_init__(self):
        kernels = ("encoder_kernel_size", "attention_location_kernel_size", "postnet_kernel_size")
        require_sizes(self, odd=kernels)
        if self.symbols_embedding_dim != self.encoder_embedding_dim:
            raise InputError(
                f"symbols_embedding_dim {self.symbols_embedding_dim} and encoder_embedding_dim "
                f"{self.encoder_embedding_dim} must be equal: the encoder takes the embedding as it is"
            )
        if self.encoder_embedding_dim % 2:
            raise InputError(
                f"encoder_embedding_dim {self.encoder_embedding_dim} must be even: half for each direction"
            )
        if self.postnet_n_convolutions < 2:
            raise InputError(
                f"postnet_n_convolutions {self.postnet_n_convolutions} must be at least 2: a first and a last"
            )
        if not 0 <= self.gate_threshold <= 1:
            raise InputError(f"gate_threshold must be from 0 to 1, not {self.gate_threshold}")

    @property
    def frame_size(self) -> int:
        """Mel values of one decoder step."""
        return self.n_mel_channels * self.n_frames_per_step


@dataclass(frozen=True)
class Tacotron2Settings:
    """What a voice says beside the sizes: the contrast added between neighbouring mel bands, 0 for none."""

    sharpness: float = 0.0
