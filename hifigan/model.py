"""HiFi-GAN's generator: from mel spectrogram to waveform (Kong, Kim and Bae 2020, arXiv:2010.05646).

Shape letters: B batch, C channels, T mel frames, S audio samples.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from common.arrays import length_mask
from hifigan.config import HifiganConfig

LEAKY_SLOPE = 0.1
# The published generators were trained with PyTorch's default slope before the last convolution.
LAST_LEAKY_SLOPE = 0.01


def _same_conv(channels: int, kernel: int, dilation: int = 1) -> nn.Conv1d:
    return nn.Conv1d(channels, channels, kernel, dilation=dilation, padding=(kernel - 1) // 2 * dilation)


def sample_mask(lengths: Tensor, x: Tensor) -> Tensor:
    """x (B, C, T) -> padding mask (B, 1, T) of x's type: 1 at the first `lengths` (B,) steps."""
    return length_mask(lengths, x.shape[2])[:, None].to(x.dtype)


def keep(x: Tensor, mask: Tensor | None) -> Tensor:
    """x with zeros behind the items' ends, like a convolution's padding; without a mask, x."""
    return x if mask is None else x * mask


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


class HifiganGenerator(nn.Module):
    """Transposed convolutions for upsampling, each followed by the mean of parallel residual blocks.

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
        self.conv_post = nn.Conv1d(channels, 1, 7, padding=3)
        if weight_norm:
            for conv in self._convolutions():
                parametrizations.weight_norm(conv, dim=0)

    def _convolutions(self) -> list[nn.Module]:
        return [module for module in self.modules() if isinstance(module, nn.Conv1d | nn.ConvTranspose1d)]

    def remove_weight_norm(self) -> HifiganGenerator:
        """Folds the weight norm into plain `.weight` parameters, in place; returns the network."""
        for conv in self._convolutions():
            if parametrize.is_parametrized(conv, "weight"):
                parametrize.remove_parametrizations(conv, "weight")
        return self

    def body(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """mel (B, n_mels, T) -> features (B, C, S). `lengths` (B,), if given, masks padding."""
        mask = None if lengths is None else sample_mask(lengths, mel)
        x = keep(self.conv_pre(keep(mel, mask)), mask)
        for up, blocks in zip(self.ups, self.resblocks, strict=True):
            x = up(F.leaky_relu(x, LEAKY_SLOPE))
            if lengths is not None:
                rate = up.stride[0]  # an odd difference to the kernel size gives one sample more
                lengths = lengths * rate + (up.kernel_size[0] - rate) % 2
                mask = sample_mask(lengths, x)
            x = keep(x, mask)
            total = blocks[0](x, mask)
            for block in blocks[1:]:
                total = total + block(x, mask)
            x = total / len(blocks)
        return x

    def head(self, features: Tensor) -> Tensor:
        """Features (B, C, S) -> audio (B, 1, S).

        Separate from `body`, because bfloat16 training runs the last convolution in float32: a mantissa of
        eight bits is audible noise in a waveform.
        """
        return torch.tanh(self.conv_post(F.leaky_relu(features, LAST_LEAKY_SLOPE)))

    def forward(self, mel: Tensor) -> Tensor:
        """mel (B, n_mels, T) -> audio (B, 1, S), S = T * hop."""
        return self.head(self.body(mel))

    def generate(self, mel: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """The stage "generator": mel (B, n_mels, T) -> audio (B, T * hop).

        "masked_generator" takes `lengths` (B,) too: each item's audio then equals that of the item alone.
        """
        audio = self.head(self.body(mel, lengths)).squeeze(1)
        config = self.config
        pairs = zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True)
        if any((kernel - rate) % 2 for rate, kernel in pairs):
            # With an odd difference a layer's output is one sample longer than its input times the rate.
            audio = audio[:, : mel.shape[2] * config.hop_length]
        return (audio,)
