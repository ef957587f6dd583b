"""Sizes of a HiFi-GAN generator, under the names that published checkpoints carry in their config."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HifiganConfig:
    """The published generator's hyper-parameters (defaults: V1 as NVIDIA's HiFiGAN project orders it).

    `resblock` "1" is the paper's two-convolution block (V1, V2), "2" the one-convolution block (V3).
    `upsample_rates` must multiply to the hop length of the mel contract.
    """

    n_mel_channels: int = 80
    upsample_rates: tuple[int, ...] = (8, 8, 2, 2)
    upsample_kernel_sizes: tuple[int, ...] = (16, 16, 4, 4)
    upsample_initial_channel: int = 512
    resblock: str = "1"
    resblock_kernel_sizes: tuple[int, ...] = (11, 7, 3)
    resblock_dilation_sizes: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
