"""Sizes of a HiFi-GAN generator, under the names that published checkpoints carry in their config."""

from __future__ import annotations

import math
from dataclasses import dataclass

from melforge.common.audio.mel import OVERLAP
from melforge.common.audio.pitch import check_pitch
from melforge.common.config.typed import require_sizes
from melforge.common.errors import InputError


@dataclass(frozen=True)
class HifiganConfig:
    """The published generator's hyper-parameters (defaults: V1 as NVIDIA's HiFiGAN project orders it).

    `resblock` "1" is the paper's two-convolution block (V1, V2), "2" the one-convolution block (V3).
    With `istft_n_fft` the head is an inverse STFT of windows of so many samples, `istft_hop_length` apart
    (iSTFTNet, arXiv:2203.02395), else the published convolution. `upsample_rates` and `istft_hop_length`
    must multiply to the hop length of the mel contract. With `source` the generator is that of
    hifigan/source_filter.py: nothing is upsampled, and `shortest_period` and `longest_period` are the pitch's
    limits in samples.
    """

    n_mel_channels: int = 80
    upsample_rates: tuple[int, ...] = (8, 8, 2, 2)
    upsample_kernel_sizes: tuple[int, ...] = (16, 16, 4, 4)
    upsample_initial_channel: int = 512
    resblock: str = "1"
    resblock_kernel_sizes: tuple[int, ...] = (11, 7, 3)
    resblock_dilation_sizes: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    istft_n_fft: int = 0  # 0: no inverse STFT
    istft_hop_length: int = 0
    source: bool = False
    noise_channels: int = 16  # beside the mel: what stays alike must not sound alike from frame to frame
    pitch_channels: int = 128
    pitch_bins: int = 128
    shortest_period: int = 52  # samples
    longest_period: int = 276

    def __post_init__(self) -> None:
        require_sizes(self, may_be_zero=("istft_n_fft", "istft_hop_length", "noise_channels"))
        if self.resblock not in ("1", "2"):
            raise InputError(f'resblock must be "1" or "2", not {self.resblock!r}')
        if len(self.upsample_rates) != len(self.upsample_kernel_sizes):
            raise InputError(
                f"upsample_rates has {len(self.upsample_rates)} entries, "
                f"upsample_kernel_sizes {len(self.upsample_kernel_sizes)}: they must have one for each stage"
            )
        if len(self.resblock_kernel_sizes) != len(self.resblock_dilation_sizes):
            raise InputError(
                f"resblock_kernel_sizes has {len(self.resblock_kernel_sizes)} entries, "
                f"resblock_dilation_sizes {len(self.resblock_dilation_sizes)}: they need one for each block"
            )
        for rate, kernel in zip(self.upsample_rates, self.upsample_kernel_sizes, strict=True):
            if rate < 1 or kernel < rate:
                raise InputError(f"upsampling by {rate} with kernel {kernel}: the kernel must cover the rate")
        if any(kernel % 2 == 0 for kernel in self.resblock_kernel_sizes):
            raise InputError(f"resblock_kernel_sizes must be odd, not {self.resblock_kernel_sizes}")
        if self.upsample_initial_channel < 2 ** len(self.upsample_rates):
            raise InputError(
                f"upsample_initial_channel {self.upsample_initial_channel} is halved at each of "
                f"{len(self.upsample_rates)} stages and would reach zero"
            )
        self._require_source()
        size, hop = self.istft_n_fft, self.istft_hop_length
        if bool(size) != bool(hop):
            raise InputError(
                f"istft_n_fft {size} and istft_hop_length {hop}: an inverse STFT needs both, and 0 for both "
                "is the published head"
            )
        if size % 2 or (size and (size % hop or size == hop)):
            raise InputError(
                f"istft_n_fft {size} must be even and a multiple of istft_hop_length {hop}, at least twice "
                "as long, so that windows overlap everywhere"
            )

    def _require_source(self) -> None:
        if not self.source:
            if not self.upsample_rates:
                raise InputError("upsample_rates is empty: without source there must be a stage")
            return
        if self.upsample_rates or self.resblock != "2":
            raise InputError('source: upsample_rates must be empty, and resblock "2"')
        if self.istft_n_fft != OVERLAP * self.istft_hop_length or self.istft_hop_length % 2:
            raise InputError(
                f"source: istft_n_fft {self.istft_n_fft} must be {OVERLAP} times istft_hop_length "
                f"{self.istft_hop_length}, which must be even"
            )
        check_pitch(self)

    @property
    def unused_controls(self) -> frozenset[str]:
        """Of the model's controls, those that change nothing at this size."""
        return frozenset() if self.source and self.noise_channels else frozenset({"seed"})

    @property
    def hop_length(self) -> int:
        """Audio samples for one mel frame."""
        return math.prod(self.upsample_rates) * (self.istft_hop_length or 1)

    @property
    def istft_start(self) -> int:
        """Samples before the first in the inverse STFT: windows are centred over their own hop."""
        return (self.istft_n_fft - self.istft_hop_length) // 2


# Frames on each side that the audio of one frame depends on behind the last convolution of a generator with a
# source: windows that overlap it, and the pulses of these.
EDGE = OVERLAP + 1


def receptive_field(config: HifiganConfig) -> int:
    """Mel frames on each side that the audio of one frame depends on.

    A chunk of mel with this much context on both sides (less only at the mel's ends, where the network pads
    with zeros) gives the same audio for its centre as the whole mel.
    """
    reach = 0
    for kernel, dilations in zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True):
        # In block type 1 a convolution of dilation 1 follows each dilated one.
        steps = sum(dilations) + (len(dilations) if config.resblock == "1" else 0)
        reach = max(reach, (kernel - 1) // 2 * steps)
    if config.source:
        # The windows that overlap the frame; of each its pulses, or the first convolution and the blocks.
        return max(EDGE, OVERLAP // 2 + 3 + reach)
    # [low, high]: the samples of one frame, traced back through every layer to the frames they depend on.
    low, high = 0, config.hop_length - 1
    if config.istft_n_fft:
        low, high = low + config.istft_start, high + config.istft_start
        hop = config.istft_hop_length
        low, high = -((config.istft_n_fft - 1 - low) // hop), high // hop
    low, high = low - 3, high + 3  # conv_post, kernel 7
    stages = list(zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True))
    for rate, kernel in reversed(stages):
        padding = (kernel - rate) // 2
        low, high = low - reach + padding, high + reach + padding
        low, high = -((kernel - 1 - low) // rate), high // rate
    return max(3 - low, high + 3)  # conv_pre, kernel 7


@dataclass(frozen=True)
class HifiganSettings:
    """What a voice says beside the sizes: how much of the vocoder's hum is taken out, 0 for nothing."""

    denoising_strength: float = 0.0
