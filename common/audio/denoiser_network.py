"""The denoiser as the network of a stage: `common.audio.denoiser` says what it does and on which windows."""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.mel import OVERLAP, analysis_window, spectra_of


class DenoiserNetwork(nn.Module):
    """Takes a bias spectrum out of audio; of a vocoder's config it needs the hop. It has no weights.

    A window's Fourier transform of P * Q points is done as transforms of P and of Q points with a rotation in
    between: a fifth of the work of one matrix, and tables of some kilobytes in the exported graph instead of
    megabytes. With sample Q * p + q and bin r + P * c,

        spectrum[r, c] = sum_q e(q c / Q) e(q r / N) sum_p e(p r / P) audio[p, q],    e(x) = exp(-2 pi i x).

    The rows r from 0 to P / 2 hold every bin or its mirror image, so that the others are left out.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        contract = spectra_of(config.hop_length)
        self.hop, self.size = contract.hop_length, contract.filter_length
        size = self.size
        self.rows = max(n for n in range(1, math.isqrt(size) + 1) if size % n == 0)
        self.columns = size // self.rows
        self.kept = self.rows // 2 + 1
        window = analysis_window(contract).astype(np.float64)
        kept, columns = np.arange(self.kept), np.arange(self.columns)
        over_rows = _turn(np.outer(kept, np.arange(self.rows)) / self.rows)  # (kept, P)
        between = _turn(np.outer(kept, columns) / size)  # (kept, Q)
        over_columns = _turn(np.outer(columns, columns) / self.columns)  # (Q, Q)
        # A row whose mirror image was left out counts twice in the sum over all.
        counts = np.where((kept == 0) | (2 * kept == self.rows), 1.0, 2.0) / size
        self._keep("window", window.reshape(self.rows, self.columns))
        self._keep("analysis_rows", np.concatenate((over_rows.real, over_rows.imag)))
        self._keep("turn_real", between.real)
        self._keep("turn_imaginary", between.imag)
        # What does to real parts beside imaginary ones what a complex matrix does from the right.
        real, imaginary = over_columns.real, over_columns.imag
        self._keep("over_columns", np.block([[real, imaginary], [-imaginary, real]]))
        back = over_rows.T * counts  # (P, kept); of the conjugate, whose real part is the audio
        self._keep("synthesis_rows", np.concatenate((back.real, -back.imag), axis=1))
        bins = np.add.outer(kept, self.rows * columns)
        bins = torch.from_numpy(np.minimum(bins, size - bins).reshape(-1))
        self.register_buffer("bins", bins, persistent=False)

    def _keep(self, name: str, table: np.ndarray) -> None:
        self.register_buffer(name, torch.from_numpy(table.astype(np.float32)), persistent=False)

    def spectrum(self, audio: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """audio (B, S) -> real and imaginary part (B, T, kept, Q) of T = S // hop + 1 centred windows.

        With `lengths` (B,), in hops, an item is reflected at its own end.
        """
        half, count = self.size // 2, audio.shape[1] // self.hop + 1
        samples = (count + OVERLAP - 1) * self.hop
        if lengths is None:
            audio = F.pad(audio[:, None], (half, half), mode="reflect")[:, 0, :samples]
        else:
            places = torch.arange(-half, samples - half, device=audio.device).abs()[None]
            last = (lengths * self.hop - 1)[:, None]
            places = torch.minimum(places, (2 * last - places).clamp(min=0))
            audio = audio.gather(1, places)
        hops = audio.unflatten(1, (count + OVERLAP - 1, self.hop))
        frames = torch.cat([hops[:, piece : piece + count] for piece in range(OVERLAP)], dim=2)
        frames = frames.unflatten(2, (self.rows, self.columns)) * self.window
        real, imaginary = torch.matmul(self.analysis_rows, frames).chunk(2, dim=2)
        return self._over_columns(*self._rotate(real, imaginary))

    def windows(self, real: Tensor, imaginary: Tensor) -> Tensor:
        """What `spectrum` gives -> (B, T, size), windowed again.

        The inverse is the transform of the conjugate, but for the order of its steps.
        """
        real, imaginary = self._rotate(*self._over_columns(real, -imaginary))
        frames = torch.matmul(self.synthesis_rows, torch.cat((real, imaginary), dim=2))
        return (frames * self.window).flatten(2)

    def _over_columns(self, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
        return torch.matmul(torch.cat((real, imaginary), dim=3), self.over_columns).chunk(2, dim=3)

    def _rotate(self, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
        return (
            real * self.turn_real - imaginary * self.turn_imaginary,
            real * self.turn_imaginary + imaginary * self.turn_real,
        )

    def overlap(self, frames: Tensor) -> Tensor:
        """frames (B, T, size), a hop apart -> their sum (B, S)."""
        hops = frames.unflatten(2, (OVERLAP, self.hop)).unbind(2)
        return sum(F.pad(hop, (0, 0, i, OVERLAP - 1 - i)) for i, hop in enumerate(hops)).flatten(1)

    def denoise(
        self, audio: Tensor, strength: Tensor, bias: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor]:
        """The stage "denoiser": audio (B, S), strength (B,), bias (bins,) -> audio (B, S // hop * hop).

        "masked_denoiser" takes `lengths` (B,) too, the hops after which an item ends and zeros follow.
        """
        real, imaginary = self.spectrum(audio, lengths)
        magnitude = (real.square() + imaginary.square()).sqrt()
        bias = bias[self.bins].view(self.kept, self.columns)
        left = (magnitude - strength[:, None, None, None] * bias).clamp(min=0)
        gain = left / magnitude.clamp(min=torch.finfo(torch.float32).tiny)
        frames = self.windows(real * gain, imaginary * gain)
        weights = self.window.square().flatten().expand(1, frames.shape[1], -1)
        if lengths is not None:
            inside = torch.arange(frames.shape[1], device=frames.device) <= lengths[:, None]
            frames, weights = frames * inside[:, :, None], weights * inside[:, :, None]
        total, weight = self.overlap(frames), self.overlap(weights)
        kept = slice(self.size // 2, self.size // 2 + audio.shape[1] // self.hop * self.hop)
        weight = weight[:, kept]
        denoised = total[:, kept] / torch.where(weight > torch.finfo(torch.float32).tiny, weight, 1.0)
        if lengths is not None:  # a window's edge alone, divided by its weight, is as large as may be
            inside = inside[:, 1:, None]
            denoised = (denoised.unflatten(1, (-1, self.hop)) * inside).flatten(1)
        return (denoised,)


def _turn(cycles: np.ndarray) -> np.ndarray:
    return np.exp(-2j * np.pi * cycles)
