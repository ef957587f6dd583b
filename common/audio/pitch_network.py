"""The network of the stage "pitch" (common/audio/pitch.py), a part of vocoders with a harmonic source."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.arrays import length_mask
from melforge.common.audio.pitch import PitchConfig

LEAKY_SLOPE = 0.1
# Padding is zeros, so that zero is to be silence: the least log mel of HiFi-GAN's framing, log(1e-5).
SILENCE, SCALE = math.log(1e-5), 0.2


def centred(mel: Tensor) -> Tensor:
    return (mel - SILENCE) * SCALE


class PitchNetwork(nn.Module):
    """mel -> the pitch of each frame, the mean of a distribution over logarithmic bins."""

    places: Tensor

    def __init__(self, config: PitchConfig) -> None:
        super().__init__()
        channels = config.pitch_channels
        self.pre = nn.Conv1d(config.n_mel_channels, channels, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv1d(channels, channels, 3, dilation=d, padding=d) for d in (1, 2))
        self.post = nn.Conv1d(channels, config.pitch_bins, 1)
        low, high = (-math.log(period) for period in (config.longest_period, config.shortest_period))
        # Around their middle: what is rounded off adds up from frame to frame.
        self.middle = (low + high) / 2
        places = np.linspace(low - self.middle, high - self.middle, config.pitch_bins, dtype=np.float32)
        self.register_buffer("places", torch.from_numpy(places), persistent=False)

    def logits(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """mel (B, n_mels, T) -> (B, bins, T); `lengths` (B,), if given, masks padding."""
        mask = None if lengths is None else length_mask(lengths, mel.shape[2])[:, None].to(mel.dtype)

        def keep(x: Tensor) -> Tensor:
            return x if mask is None else x * mask

        x = keep(self.pre(keep(centred(mel))))
        for conv in self.convs:
            x = keep(x + conv(F.leaky_relu(x, LEAKY_SLOPE)))
        return self.post(F.leaky_relu(x, LEAKY_SLOPE))

    def mean(self, logits: Tensor) -> Tensor:
        """(B, bins, T) -> the logarithm of cycles a sample, less `middle` (B, T)."""
        return (logits.softmax(1) * self.places[:, None]).sum(1)

    def find(self, mel: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """The stage "pitch": mel (B, n_mels, T) -> cycles a sample (B, T)."""
        return (self.mean(self.logits(mel, lengths)).exp() * math.exp(self.middle),)
