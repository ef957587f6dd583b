"""Sizes of a FastPitch 1.1 network, under the names that published checkpoints carry in `config`."""

from __future__ import annotations

from dataclasses import dataclass

from melforge.common.config.typed import require_sizes
from melforge.common.errors import InputError


@dataclass(frozen=True)
class FastPitchConfig:
    """Constructor arguments of the published network (defaults: the published sizes), and `mask_padding`.

    In the published network padding leaks into valid positions through the convolutions' receptive field.
    `mask_padding=True` zeroes padded positions before every convolution, so that an item of a padded batch
    equals the same item alone. It adds no weights. The shipped voice is trained and run with it.
    """

    n_mel_channels: int = 80
    n_symbols: int = 148
    padding_idx: int = 0
    symbols_embedding_dim: int = 384
    in_fft_n_layers: int = 6
    in_fft_n_heads: int = 1
    in_fft_d_head: int = 64
    in_fft_conv1d_kernel_size: int = 3
    in_fft_conv1d_filter_size: int = 1536
    in_fft_output_size: int = 384
    p_in_fft_dropout: float = 0.1
    p_in_fft_dropatt: float = 0.1
    p_in_fft_dropemb: float = 0.0
    out_fft_n_layers: int = 6
    out_fft_n_heads: int = 1
    out_fft_d_head: int = 64
    out_fft_conv1d_kernel_size: int = 3
    out_fft_conv1d_filter_size: int = 1536
    out_fft_output_size: int = 384
    p_out_fft_dropout: float = 0.1
    p_out_fft_dropatt: float = 0.1
    p_out_fft_dropemb: float = 0.0
    dur_predictor_kernel_size: int = 3
    dur_predictor_filter_size: int = 256
    p_dur_predictor_dropout: float = 0.1
    dur_predictor_n_layers: int = 2
    pitch_predictor_kernel_size: int = 3
    pitch_predictor_filter_size: int = 256
    p_pitch_predictor_dropout: float = 0.1
    pitch_predictor_n_layers: int = 2
    pitch_embedding_kernel_size: int = 3
    energy_conditioning: bool = True
    energy_predictor_kernel_size: int = 3
    energy_predictor_filter_size: int = 256
    p_energy_predictor_dropout: float = 0.1
    energy_predictor_n_layers: int = 2
    energy_embedding_kernel_size: int = 3
    n_speakers: int = 1
    speaker_emb_weight: float = 1.0
    mask_padding: bool = False

    def __post_init__(self) -> None:
        kernels = [name for name in vars(self) if name.endswith("kernel_size")]
        require_sizes(self, may_be_zero=("padding_idx",), odd=kernels)
        for name in ("in_fft_output_size", "out_fft_output_size"):
            if getattr(self, name) != self.symbols_embedding_dim:
                raise InputError(
                    f"{name} {getattr(self, name)} and symbols_embedding_dim {self.symbols_embedding_dim} "
                    "must be equal: a transformer's layers keep their width"
                )
        if self.padding_idx >= self.n_symbols:
            raise InputError(f"padding_idx {self.padding_idx} is none of the {self.n_symbols} symbols")

    @property
    def unused_controls(self) -> frozenset[str]:
        """Of the model's controls, those that change nothing at this size."""
        return frozenset() if self.n_speakers > 1 else frozenset({"speaker"})


@dataclass(frozen=True)
class FastPitchSettings:
    """What a voice says beside the sizes: mean and deviation of its pitch in Hz (0: LJSpeech's), and the
    names of its speakers in the order of their ids, with the mean and deviation of each where they have their
    own.
    """

    pitch_mean: float = 0.0
    pitch_std: float = 0.0
    speakers: tuple[str, ...] = ()
    pitch_means: tuple[float, ...] = ()
    pitch_deviations: tuple[float, ...] = ()


# Longer predictions are errors of the network; NVIDIA's scripts cut them here too.
LONGEST_SYMBOL = 75
# Of LJSpeech, in Hz, for checkpoints that were saved without their own.
DEFAULT_PITCH = 218.14, 67.24
