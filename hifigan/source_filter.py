"""A HiFi-GAN generator with a harmonic source: pulses at the mel's pitch, in filters at the rate of frames.

Source and filters as in neural source-filter models (Wang, Takaki and Yamagishi 2019, arXiv:1904.12088), with
HiFi-GAN's residual blocks and an inverse STFT (HiFTNet; Li, Han, Jiang and Mesgarani 2023, arXiv:2309.09493):

    spectrum = exp(a) e^(i theta) STFT(pulses) + exp(r) e^(i phi)

Shape letters: B batch, C channels, T mel frames, K bins, S audio samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.audio.fourier_network import WindowedFourier
from melforge.common.audio.mel import OVERLAP
from melforge.common.audio.pitch_network import PitchNetwork, centred
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import LEAKY_SLOPE, HifiganGenerator, ResBlock2, WeightNormed, keep, sample_mask

LARGEST_LOG_MAGNITUDE = 5.0
FIRST_LOG_MAGNITUDES = -4.0, -5.0  # of the filter and of the free spectrum before training
HIGHEST = 0.499  # cycles a sample: no harmonic is above
LOWEST = 1e-4  # cycles a sample, of what stands behind an item's end
STEEP = 1e-3  # sine below which the sum of all harmonics is their number
MAPS = 4  # log magnitude and phase of the filter, and of the free spectrum


class SourceFilterGenerator(WeightNormed):
    """The generator of a configuration with `source`. Weight norm as in `HifiganGenerator`."""

    turns: Tensor
    rows: Tensor

    def __init__(self, config: HifiganConfig, weight_norm: bool = True) -> None:
        super().__init__()
        self.config = config
        channels = config.upsample_initial_channel
        self.conv_pre = nn.Conv1d(config.n_mel_channels + config.noise_channels, channels, 7, padding=3)
        sizes = zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True)
        self.resblocks = nn.ModuleList(ResBlock2(channels, *size) for size in sizes)
        bins = config.istft_n_fft // 2 + 1
        self.conv_post = nn.Conv1d(channels, MAPS * bins, 1)
        self.pitch = PitchNetwork(config)
        self.fourier = WindowedFourier(config.istft_hop_length)
        turns = np.where(self.fourier.mirrored, -math.pi, math.pi).astype(np.float32)[:, None]
        self.register_buffer("turns", torch.from_numpy(turns), persistent=False)
        rows = bins * np.arange(MAPS)[:, None] + self.fourier.bins.numpy()
        self.register_buffer("rows", torch.from_numpy(rows), persistent=False)  # of each map
        first = torch.zeros(MAPS, bins)
        first[0], first[2] = FIRST_LOG_MAGNITUDES
        assert self.conv_post.bias is not None
        self.conv_post.bias.data.copy_(first.flatten())
        if weight_norm:
            self.add_weight_norm()

    def convolutions(self) -> list[nn.Module]:
        """All but the pitch network's."""
        blocks = cast(Iterable[ResBlock2], self.resblocks)
        return [self.conv_pre, *(conv for block in blocks for conv in block.convs), self.conv_post]

    def body(self, mel: Tensor, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """mel (B, n_mels, T), source (B, 2 + noise_channels, T) -> features (B, C, T).

        `lengths` (B,), if given, masks padding.
        """
        mask = None if lengths is None else sample_mask(lengths, mel)
        x = torch.cat((centred(mel), source[:, 2:]), dim=1)
        x = keep(self.conv_pre(keep(x, mask)), mask)
        total = self.resblocks[0](x, mask)
        for block in self.resblocks[1:]:
            total = total + block(x, mask)
        return total / len(self.resblocks)

    def head(
        self, features: Tensor, source: Tensor, lengths: Tensor | None = None, apart: bool = False
    ) -> tuple[Tensor, ...]:
        """Features (B, C, T) and source -> audio (B, S), and with `apart` the harmonic part of it (B, S)."""
        return self.sound(self.maps(features), source, lengths, apart)

    def maps(self, features: Tensor) -> Tensor:
        """Features (B, C, T) -> (B, MAPS * K, T)."""
        return self.conv_post(F.leaky_relu(features, LEAKY_SLOPE))

    def sound(
        self, maps: Tensor, source: Tensor, lengths: Tensor | None = None, apart: bool = False
    ) -> tuple[Tensor, ...]:
        """What `head` gives, of the maps.

        In float32: phases count to a hundredth of a cycle of the highest harmonic.
        """
        fourier, frames = self.fourier, maps.shape[2]
        # Each map's rows in one copy: indices of several axes transpose all maps before and behind it.
        a, theta, r, phi = (maps.index_select(1, rows) for rows in self.rows)
        mask = None if lengths is None else sample_mask(lengths, maps)
        wave = pulses(source[:, :2], fourier.hop, mask)
        inside = None if lengths is None else sample_mask(lengths * fourier.hop, wave[:, None])[:, 0]
        wave = keep(wave, inside)
        tables = fourier.tables()
        before = (fourier.size - fourier.hop) // 2  # a frame's window is centred over its own hop
        hops = F.pad(wave, (before, before)).unflatten(1, (-1, fourier.hop // 2))
        hops = hops.flatten(1).unflatten(1, (frames + OVERLAP - 1, fourier.hop))
        real, imaginary = fourier.spectra(hops, tables).unbind(1)
        theta, phi = self.turns * theta.tanh(), self.turns * phi.sin()
        counts = fourier.counts[:, None]
        gain = a.clamp(max=LARGEST_LOG_MAGNITUDE).exp() * (4 / fourier.size * counts)  # of a cosine's peak, 1
        size = r.clamp(max=LARGEST_LOG_MAGNITUDE).exp() * counts
        if mask is not None:
            gain, size = gain * mask, size * mask
        across, along = gain * theta.cos(), gain * theta.sin()
        tone = real * across - imaginary * along, real * along + imaginary * across
        free = size * phi.cos(), size * phi.sin()
        made = torch.stack([one + other for one, other in zip(tone, free, strict=True)], dim=1)
        if apart:
            made = torch.cat((made, torch.stack(tone, dim=1)))
        total = fourier.overlapped(made, tables).flatten(1)
        audio = total[:, before : before + frames * fourier.hop] / fourier.weight
        audio, *parts = audio.chunk(2) if apart else (audio,)
        return (keep(audio, inside), *parts)

    def find_pitch(self, mel: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """The stage "pitch": mel (B, n_mels, T) -> cycles a sample (B, T)."""
        return self.pitch.find(mel, lengths)

    def generate(self, mel: Tensor, source: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """The stage "generator": mel (B, n_mels, T), source (B, 2 + noise_channels, T) -> audio (B, T * hop).

        The source is the phase at each frame's centre in cycles, less the whole ones, the pitch there in
        cycles a sample, and noise of mean 0 and variance 1. "masked_generator" takes `lengths` (B,) too: each
        item's audio then equals that of the item alone.
        """
        return (self.head(self.body(mel, source, lengths), source, lengths)[0],)

    def generate_inner(self, mel: Tensor, source: Tensor, inner: Tensor) -> tuple[Tensor]:
        """The stage "inner_generator": the audio (B, I * hop) of the frames `inner` (I,), numbers in a row.

        Behind the last convolution others are not computed: EDGE frames at both ends are as if the mel ended.
        """
        maps = self.maps(self.body(mel, source))
        first = cast(int, inner[0].item())
        rest = maps.shape[2] - len(inner) - first
        torch._check(first >= 0)
        torch._check(rest >= 0)
        _, maps, _ = maps.split_with_sizes((first, len(inner), rest), dim=2)
        return (self.sound(maps, source.index_select(2, inner))[0],)


def make_generator(
    config: HifiganConfig, weight_norm: bool = True
) -> HifiganGenerator | SourceFilterGenerator:
    """The network of a configuration."""
    return (SourceFilterGenerator if config.source else HifiganGenerator)(config, weight_norm)


def pulses(source: Tensor, hop: int, mask: Tensor | None = None) -> Tensor:
    """Phase and pitch at the frames' centres (B, 2, T) -> all harmonics as cosines of amplitude 1 (B, S).

    Between two centres the phase is the cubic that has both phases and both pitches. The mask (B, 1, T) says
    which frames an item has.
    """
    phase, pitch = source.unbind(1)
    rate = pitch * hop  # cycles a frame
    following, change = F.pad(rate[:, 1:], (0, 1)), F.pad(phase[:, 1:] - phase[:, :-1], (0, 1))
    last = torch.arange(rate.shape[1], device=rate.device) == rate.shape[1] - 1
    if mask is not None:
        last = last | (F.pad(mask[:, 0, 1:], (0, 1)) == 0)
    following = torch.where(last, rate, following)
    evenly = 0.5 * (rate + following)
    # Phases are known modulo one cycle.
    missing = torch.where(last, torch.zeros_like(rate), change - evenly)
    advance = evenly + (missing - (missing + 0.5).floor())
    place = torch.arange(hop, device=rate.device, dtype=rate.dtype) / hop
    square = (3 * advance - 2 * rate - following)[..., None]
    cube = (rate + following - 2 * advance)[..., None]
    cycles = phase[..., None] + place * (rate[..., None] + place * (square + place * cube))  # (B, T, hop)
    rates = rate[..., None] + place * (following - rate)[..., None]
    half = hop // 2  # the first centre's samples before it
    early = phase[:, :1] - rate[:, :1] * (0.5 - place[:half])
    cycles = torch.cat((early, cycles.flatten(1)), dim=1)[:, :-half]
    rates = torch.cat((rate[:, :1].expand(-1, half), rates.flatten(1)), dim=1)[:, :-half]
    cycles = cycles - cycles.floor()
    count = (HIGHEST * hop / rates.clamp(min=LOWEST * hop)).floor() + 0.5
    low = (math.pi * cycles).sin()
    steep = low.abs() < STEEP
    ratio = (2 * math.pi * count * cycles).sin() / (2 * torch.where(steep, torch.ones_like(low), low))
    return torch.where(steep, count, ratio) - 0.5
