"""HiFi-GAN's generator: from mel spectrogram to waveform (Kong, Kim and Bae 2020, arXiv:2010.05646).

Its last stages may be an inverse STFT (iSTFTNet; Kaneko et al. 2022, arXiv:2203.02395).
Shape letters: B batch, C channels, T mel frames, F frames of the inverse STFT, S audio samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from melforge.common.arrays import length_mask
from melforge.hifigan.config import HifiganConfig

LEAKY_SLOPE = 0.1
# The published generators were trained with PyTorch's default slope before the last convolution.
LAST_LEAKY_SLOPE = 0.01
LARGEST_MAGNITUDE = 1e2  # of a bin, as in Vocos (arXiv:2306.00814); fits half precision
# Of a bin before training: near speech's mean, which is -5 for n_fft 16 to 128.
FIRST_LOG_MAGNITUDE = -4.0


def _same_conv(channels: int, kernel: int, dilation: int = 1) -> nn.Conv1d:
    return nn.Conv1d(channels, channels, kernel, dilation=dilation, padding=(kernel - 1) // 2 * dilation)


def sample_mask(lengths: Tensor, x: Tensor) -> Tensor:
    """x (B, C, T) -> padding mask (B, 1, T) of x's type: 1 at the first `lengths` (B,) steps."""
    return length_mask(lengths, x.shape[2])[:, None].to(x.dtype)


def keep(x: Tensor, mask: Tensor | None) -> Tensor:
    """x with zeros behind the items' ends, like a convolution's padding; without a mask, x."""
    return x if mask is None else x * mask


def upsampled_lengths(up: nn.ConvTranspose1d, lengths: Tensor) -> Tensor:
    """The lengths (B,) of what a transposed convolution makes of items of `lengths` (B,)."""
    rate = up.stride[0]  # an odd difference to the kernel size gives one sample more
    return lengths * rate + (up.kernel_size[0] - rate) % 2


class ResBlock1(nn.Module):
    """Residual pairs: a dilated convolution, then one of dilation 1 (V1, V2)."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(_same_conv(channels, kernel, dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(_same_conv(channels, kernel) for _ in dilations)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for dilated, plain in zip(self.convs1, self.convs2, strict=True):
            residual = keep(dilated(F.leaky_relu(x, LEAKY_SLOPE)), mask)
            x = keep(x + plain(F.leaky_relu(residual, LEAKY_SLOPE)), mask)
        return x


class ResBlock2(nn.Module):
    """Residual single dilated convolutions (V3)."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_same_conv(channels, kernel, dilation) for dilation in dilations)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = keep(x + conv(F.leaky_relu(x, LEAKY_SLOPE)), mask)
        return x


class InverseSTFT(nn.Module):
    """The inverse STFT for periodic Hann windows, as a product with a table: no complex numbers, no weights.

    A frame's phases count from its window's centre. Beyond both ends there are frames of zeros, like a
    convolution's padding.
    """

    table: Tensor

    def __init__(self, config: HifiganConfig) -> None:
        super().__init__()
        size, self.hop = config.istft_n_fft, config.istft_hop_length
        self.overlap, self.start = size // self.hop, config.istft_start
        n, bins = np.arange(size), np.arange(size // 2 + 1)
        window = 0.5 - 0.5 * np.cos(2 * np.pi * n / size)
        weight = np.square(window).reshape(self.overlap, self.hop).sum(0)  # the windows' overlap-add sum
        window /= np.tile(weight, self.overlap)
        turns = np.outer(n - size // 2, bins) / size
        # All bins but the first and the last count for their mirror images too.
        scale = window[:, None] * np.where((bins == 0) | (2 * bins == size), 1.0, 2.0) / size
        table = np.concatenate(
            (scale * np.cos(2 * np.pi * turns), -scale * np.sin(2 * np.pi * turns)), axis=1
        )
        self.register_buffer("table", torch.from_numpy(table.astype(np.float32)), persistent=False)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Real parts, then imaginary ones (B, n_fft + 2, F) -> audio (B, F * hop)."""
        frames = spectrum.shape[2]
        windows = torch.matmul(self.table, spectrum).unflatten(1, (self.overlap, self.hop)).unbind(1)
        last = self.overlap - 1
        padded = (F.pad(part, (i, last - i)) for i, part in enumerate(windows))
        hops = cast(Tensor, sum(padded))  # (B, hop, F + last)
        audio = hops.transpose(1, 2).flatten(1)
        return audio[:, self.start : self.start + frames * self.hop]


class WeightNormed(nn.Module):
    """A network whose convolutions may have weight normalisation."""

    def convolutions(self) -> list[nn.Module]:
        """Those that have it: all."""
        return [module for module in self.modules() if isinstance(module, nn.Conv1d | nn.ConvTranspose1d)]

    def add_weight_norm(self) -> None:
        """Splits plain `.weight` parameters into length and direction, in place."""
        for conv in self.convolutions():
            parametrizations.weight_norm(conv, dim=0)

    def remove_weight_norm(self) -> Self:
        """Folds the weight norm into plain `.weight` parameters, in place; returns the network."""
        for conv in self.convolutions():
            if parametrize.is_parametrized(conv, "weight"):
                parametrize.remove_parametrizations(conv, "weight")
        return self


class HifiganGenerator(WeightNormed):
    """Transposed convolutions for upsampling, each followed by the mean of parallel residual blocks.

    The last convolution makes audio, or the log magnitudes and phases of an inverse STFT. A phase is the sine
    of its channel as in iSTFTNet, but times pi, so that all phases can be reached and not only one radian.

    With `weight_norm` every convolution has weight normalisation (per output channel; per input channel in
    the transposed ones, as published). `remove_weight_norm` folds it into plain weights, and
    `weight_norm=False` builds the network without it.
    """

    def __init__(self, config: HifiganConfig, weight_norm: bool = True) -> None:
        super().__init__()
        self.config = config
        channels = config.upsample_initial_channel
        self.conv_pre = nn.Conv1d(config.n_mel_channels, channels, 7, padding=3)
        self.ups = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        block = ResBlock1 if config.resblock == "1" else ResBlock2
        for rate, kernel in zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True):
            wide, channels = channels, channels // 2
            self.ups.append(nn.ConvTranspose1d(wide, channels, kernel, rate, padding=(kernel - rate) // 2))
            sizes = zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True)
            self.resblocks.append(nn.ModuleList(block(channels, *size) for size in sizes))
        self.conv_post = nn.Conv1d(
            channels, config.istft_n_fft + 2 if config.istft_n_fft else 1, 7, padding=3
        )
        self.istft = InverseSTFT(config) if config.istft_n_fft else None
        if self.istft:
            assert self.conv_post.bias is not None
            nn.init.constant_(self.conv_post.bias[: config.istft_n_fft // 2 + 1], FIRST_LOG_MAGNITUDE)
        if weight_norm:
            self.add_weight_norm()

    def body(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """mel (B, n_mels, T) -> features (B, C, F), F = S without an inverse STFT.

        `lengths` (B,), if given, masks padding.
        """
        mask = None if lengths is None else sample_mask(lengths, mel)
        x = keep(self.conv_pre(keep(mel, mask)), mask)
        levels = cast(
            Iterable[tuple[nn.ConvTranspose1d, nn.ModuleList]], zip(self.ups, self.resblocks, strict=True)
        )
        for up, blocks in levels:
            x = up(F.leaky_relu(x, LEAKY_SLOPE))
            if lengths is not None:
                lengths = upsampled_lengths(up, lengths)
                mask = sample_mask(lengths, x)
            x = keep(x, mask)
            total = blocks[0](x, mask)
            for block in blocks[1:]:
                total = total + block(x, mask)
            x = total / len(blocks)
        return x

    def head(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Features (B, C, F) -> audio (B, 1, S). `lengths` (B,) are the items' mel frames.

        Separate from `body`, because bfloat16 training runs the last convolution and the inverse STFT in
        float32: a mantissa of eight bits is audible noise in a waveform.
        """
        x = self.conv_post(F.leaky_relu(features, LAST_LEAKY_SLOPE))
        if self.istft is None:
            return torch.tanh(x)
        log_magnitude, phase = x.chunk(2, dim=1)
        phase = math.pi * phase.sin()
        magnitude = log_magnitude.clamp(max=math.log(LARGEST_MAGNITUDE)).exp()
        if lengths is not None:
            for up in cast(Iterable[nn.ConvTranspose1d], self.ups):
                lengths = upsampled_lengths(up, lengths)
            magnitude = magnitude * sample_mask(lengths, magnitude)
        return self.istft(torch.cat((magnitude * phase.cos(), magnitude * phase.sin()), dim=1))[:, None]

    def forward(self, mel: Tensor) -> Tensor:
        """mel (B, n_mels, T) -> audio (B, 1, S), S = T * hop."""
        return self.head(self.body(mel))

    def generate(self, mel: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """The stage "generator": mel (B, n_mels, T) -> audio (B, T * hop).

        "masked_generator" takes `lengths` (B,) too: each item's audio then equals that of the item alone.
        """
        audio = self.head(self.body(mel, lengths), lengths).squeeze(1)
        config = self.config
        pairs = zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True)
        if any((kernel - rate) % 2 for rate, kernel in pairs):
            # With an odd difference a layer's output is one sample longer than its input times the rate.
            audio = audio[:, : mel.shape[2] * config.hop_length]
        return (audio,)
