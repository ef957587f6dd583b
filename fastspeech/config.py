"""Sizes of a FastSpeech network, under the names that NVIDIA's FastSpeech project gives them."""

from __future__ import annotations

from dataclasses import dataclass

from melforge.common.config.typed import require_sizes
from melforge.common.errors import InputError

HEAD_SIZE = 64  # channels of a head's queries, keys and values; fixed in the published network


@dataclass(frozen=True)
class FastSpeechConfig:
    """Hyper-parameters of the published network (defaults: the published sizes), and `mask_padding`.

    In the published network padding leaks into shorter items through the convolutions' receptive field.
    `mask_padding=True` (ours) zeroes padded positions before each convolution, so that an item of a padded
    batch equals the item alone. It adds no weights. `max_seq_len` limits symbols as well as mel frames.
    """

    max_seq_len: int = 2048
    d_model: int = 384
    phoneme_side_n_layer: int = 6
    phoneme_side_head: int = 2
    phoneme_side_conv1d_filter_size: int = 1536
    phoneme_side_output_size: int = 384
    mel_side_n_layer: int = 6
    mel_side_head: int = 2
    mel_side_conv1d_filter_size: int = 1536
    mel_side_output_size: int = 384
    fft_conv1d_kernel: int = 3
    fft_conv1d_padding: int = 1
    duration_predictor_filter_size: int = 256
    duration_predictor_kernel_size: int = 3
    dropout: float = 0.1
    n_mel_channels: int = 80
    n_symbols: int = 149
    padding_idx: int = 0
    mask_padding: bool = False

    def __post_init__(self) -> None:
        require_sizes(
            self, may_be_zero=("padding_idx", "fft_conv1d_padding"), odd=("duration_predictor_kernel_size",)
        )
        for name in ("phoneme_side_output_size", "mel_side_output_size"):
            if getattr(self, name) != self.d_model:
                raise InputError(f"{name} {getattr(self, name)} must be d_model, {self.d_model}")
        if self.d_model % 2:
            raise InputError(f"d_model {self.d_model} must be even: sines and cosines share it")
        if self.fft_conv1d_padding * 2 != self.fft_conv1d_kernel - 1:
            raise InputError(
                f"fft_conv1d_padding {self.fft_conv1d_padding} must be half of fft_conv1d_kernel "
                f"{self.fft_conv1d_kernel} less one, to keep the length"
            )


@dataclass(frozen=True)
class FastSpeechSettings:
    """FastSpeech has no settings besides its sizes."""
