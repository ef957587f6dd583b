"""Jasper's features as a stage's network, without weights: normalised log mels of pre-emphasised audio."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from melforge.common.arrays import length_mask
from melforge.common.audio.mel import mel_basis
from melforge.jasper.config import DEVIATION_FLOOR, LOG_FLOOR, JasperConfig
from melforge.jasper.features import symmetric_window


class JasperFeatures(nn.Module):
    """Audio to normalised log mels.

    A window's Fourier transform of N = P * Q points is done as transforms of P and of Q points with a
    rotation in between, which takes tables of some kilobytes in a graph instead of a megabyte; see
    `melforge.common.audio.denoiser_network`. Mirror images in its spectrum are left out.
    """

    window: Tensor
    over_rows: Tensor
    turn_real: Tensor
    turn_imaginary: Tensor
    over_columns: Tensor
    basis: Tensor

    def __init__(self, config: JasperConfig) -> None:
        super().__init__()
        self.config = config
        size, window, hop = config.filter_length, config.win_length, config.hop_length
        self.rows = max(n for n in range(1, math.isqrt(size) + 1) if size % n == 0)
        self.columns = size // self.rows
        self.kept = self.rows // 2 + 1
        self.overlap = -(-window // hop)  # hops in a window
        self.left = size // 2 - (size - window) // 2  # samples of a window before its frame's centre
        taper = np.zeros(self.overlap * hop)
        taper[:window] = symmetric_window(config)
        kept, columns = np.arange(self.kept), np.arange(self.columns)
        # A window lies in the middle of its N points, which turns phases only: it is put at their start.
        self._keep("window", taper)
        self._keep("over_rows", parts(np.outer(kept, np.arange(self.rows)) / self.rows))
        turn = np.exp(-2j * np.pi * np.outer(kept, columns) / size)
        self._keep("turn_real", np.real(turn))
        self._keep("turn_imaginary", np.imag(turn))
        table = np.exp(-2j * np.pi * np.outer(columns, columns) / self.columns)
        real, imaginary = np.real(table), np.imag(table)
        self._keep("over_columns", np.block([[real, imaginary], [-imaginary, real]]))
        self._keep("basis", self.spread(mel_basis(config.mel)).T)

    def _keep(self, name: str, table: np.ndarray) -> None:
        self.register_buffer(name, torch.from_numpy(np.float32(table)), persistent=False)

    def spread(self, basis: np.ndarray) -> np.ndarray:
        """Mel filters [n_mels, bins] over the spectrum's kept places [n_mels, kept * Q], each bin once."""
        size = self.config.filter_length
        bins = np.add.outer(np.arange(self.kept), self.rows * np.arange(self.columns)).ravel()
        bins = np.minimum(bins, size - bins)
        wide = np.zeros((len(basis), len(bins)), np.float32)
        places = np.unique(bins, return_index=True)[1]
        wide[:, places] = basis[:, bins[places]]
        return wide

    def power(self, audio: Tensor, ends: Tensor) -> Tensor:
        """audio (B, T * hop), which ends at `ends` (B,) samples and is mirrored there -> (B, T, kept * Q)."""
        config, hop = self.config, self.config.hop_length
        frames = audio.shape[1] // hop
        audio = torch.cat((audio[:, :1], audio[:, 1:] - config.preemphasis * audio[:, :-1]), dim=1)
        count = (frames + self.overlap - 1) * hop
        places = torch.arange(-self.left, count - self.left, device=audio.device).abs()[None]
        places = torch.minimum(places, 2 * (ends[:, None] - 1) - places).clamp(min=0)
        audio = audio.gather(1, places)
        hops = audio.unflatten(1, (frames + self.overlap - 1, hop))
        windows = torch.cat([hops[:, first : first + frames] for first in range(self.overlap)], dim=2)
        windows = (windows * self.window)[:, :, : config.win_length]
        windows = nn.functional.pad(windows, (0, config.filter_length - config.win_length))
        points = windows.unflatten(2, (self.rows, self.columns))
        real, imaginary = torch.matmul(self.over_rows, points).chunk(2, dim=2)
        turned = (
            real * self.turn_real - imaginary * self.turn_imaginary,
            real * self.turn_imaginary + imaginary * self.turn_real,
        )
        real, imaginary = torch.matmul(torch.cat(turned, dim=3), self.over_columns).chunk(2, dim=3)
        return (real.square() + imaginary.square()).flatten(2)

    def forward(
        self, audio: Tensor, lengths: Tensor, ends: Tensor, basis: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """audio (B, T * hop), zeros behind the `lengths` (B,) -> features (B, n_mels, T), frames (B,).

        Audio is mirrored at `ends` (B,). `basis` (kept * Q, n_mels) or (B, kept * Q, n_mels) are other mel
        filters, as `spread` gives them.
        """
        power = self.power(audio, ends)
        mel = torch.matmul(power, self.basis if basis is None else basis)
        # log(mel + floor), written so that the exporter does not take the floor for zero and drop it.
        mel = (torch.log(mel / LOG_FLOOR + 1) + math.log(LOG_FLOOR)).transpose(1, 2)
        frames = torch.div(
            lengths + self.config.hop_length - 1, self.config.hop_length, rounding_mode="floor"
        )
        return self.normalised(mel, frames), frames

    def normalised(self, mel: Tensor, frames: Tensor) -> Tensor:
        """log mel (B, n_mels, T) of `frames` (B,) -> mean 0 and deviation 1, zeros behind the frames."""
        mask = length_mask(frames, mel.shape[2])[:, None].to(mel.dtype)
        bands = 1 if self.config.normalize == "per_feature" else mel.shape[1]
        axes = (2,) if bands == 1 else (1, 2)
        number = (frames * bands).to(mel.dtype)[:, None, None]
        mean = (mel * mask).sum(axes, keepdim=True) / number
        centred = (mel - mean) * mask
        variance = centred.square().sum(axes, keepdim=True) / (number - 1).clamp(min=1)
        return centred / (variance.sqrt() + DEVIATION_FLOOR)

    def extract_each(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The stage "masked_features": each item is what it is alone."""
        return self(audio, lengths, lengths)

    def extract(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The stage "features", as NVIDIA computes a batch: shorter items end in zeros."""
        return self(audio, lengths, torch.maximum(lengths, lengths.max()))


def parts(angles: np.ndarray) -> np.ndarray:
    """exp(-2 pi i x) of angles [R, C], the imaginary parts below the real ones: [2 R, C]."""
    turned = np.exp(-2j * np.pi * angles)
    return np.concatenate((np.real(turned), np.imag(turned)))
