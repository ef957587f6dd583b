"""The denoiser as the network of a stage: `common.audio.denoiser` says what it does and on which windows."""

import functools
import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.mel import OVERLAP, analysis_window, spectra_of


class DenoiserNetwork(nn.Module):
    """Takes a bias spectrum out of audio; of a vocoder's config it needs the hop. It has no weights.

    A window's Fourier transform of P * Q points is done as two sums, the outer one over Q points: with sample
    Q * p + q and bin r + P * c,

        spectrum[r, c] = sum_q e(q c / Q) sum_p e(r (Q p + q) / N) audio[p, q],    e(x) = exp(-2 pi i x).

    That is a fifth of the work of one matrix. The rows r from 0 to P / 2 hold every bin or its mirror image,
    so that the others are left out. The window is part of the inner sum's tables, one for each q; the
    inverse uses them a second time. Time is the last axis of all products, which is the fastest on a CPU.
    """

    inner: Tensor
    outer: Tensor
    conjugate: Tensor
    counts: Tensor
    squares: Tensor
    bins: Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        contract = spectra_of(config.hop_length)
        self.hop, self.size = contract.hop_length, contract.filter_length
        hop, size = self.hop, self.size
        most = max(1, math.isqrt(size) // OVERLAP)
        self.rows = OVERLAP * max(n for n in range(1, most + 1) if hop % n == 0)  # P: whole ones for a hop
        self.columns = size // self.rows
        kept, columns = np.arange(self.rows // 2 + 1), np.arange(self.columns)
        window = analysis_window(contract).astype(np.float64)
        samples = np.arange(size).reshape(self.rows, self.columns).T  # (Q, P)
        inner = _parts(_turn(kept[:, None] * samples[:, None] / size) * window[samples][:, None], axis=1)
        # The window is symmetric: the tables of Q - q are those of q, conjugate and in reverse.
        self._keep("inner", inner.reshape(self.columns, 2 * len(kept), self.rows)[: self.columns // 2 + 1])
        self._keep("conjugate", np.repeat([1.0, -1.0], len(kept))[:, None])
        # Columns are the real and imaginary part of each q, rows the real parts of all bins, then the others.
        outer = _turn(np.outer(columns, columns) / self.columns)
        self._keep("outer", _parts(np.stack((outer, 1j * outer), axis=2), 0).reshape(2 * len(outer), -1))
        # A row whose mirror image was left out counts twice in the sum over all.
        counts = np.where((kept == 0) | (2 * kept == self.rows), 1.0, 2.0) / size
        self._keep("counts", np.tile(counts, self.columns))
        self._keep("squares", np.square(window).reshape(OVERLAP, hop))
        bins = np.add.outer(self.rows * columns, kept).reshape(-1)
        self.register_buffer("bins", torch.from_numpy(np.minimum(bins, size - bins)), persistent=False)

    def _keep(self, name: str, table: np.ndarray) -> None:
        self.register_buffer(name, torch.from_numpy(table.astype(np.float32)), persistent=False)

    def tables(self) -> Tensor:
        """The inner sum's (Q, 2 * kept, P), of each row the real parts first."""
        mirrored = (self.inner[1 : (self.columns + 1) // 2] * self.conjugate).flip(0, 2)
        return torch.cat((self.inner, mirrored))

    def spectrum(self, audio: Tensor, tables: Tensor, lengths: Tensor | None = None) -> Tensor:
        """audio (B, S) -> real and imaginary parts (B, 2, bins, T) of T = S // hop + 1 centred windows.

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
        hops = audio.unflatten(1, (count + OVERLAP - 1, self.hop)).transpose(1, 2)
        hops = hops.unflatten(1, (self.rows // OVERLAP, self.columns)).transpose(1, 2)
        windows = torch.cat([hops[..., first : first + count] for first in range(OVERLAP)], dim=2)
        sums = torch.matmul(tables, windows)  # (B, Q, 2 * kept, T)
        spectrum = torch.matmul(self.outer, sums.reshape(-1, 2 * self.columns, sums.shape[2] // 2 * count))
        return spectrum.reshape(-1, 2, len(self.bins), count)

    def overlapped(self, spectrum: Tensor, tables: Tensor) -> Tensor:
        """What `spectrum` gives -> its windows, windowed again, added up (B, T + OVERLAP - 1, hop).

        The inverse is the transform of the conjugate, its steps in reverse.
        """
        kept, count = tables.shape[1] // 2, spectrum.shape[3]
        sums = torch.matmul(self.outer.T, spectrum.reshape(-1, 2 * self.columns, kept * count))
        sums = sums.reshape(-1, self.columns, 2 * kept, count)
        windows = torch.matmul(tables.transpose(1, 2), sums).transpose(1, 2)  # (B, P, Q, T)
        hops = windows.reshape(-1, OVERLAP, self.hop, count).unbind(1)
        padded = [F.pad(hop, (i, OVERLAP - 1 - i)) for i, hop in enumerate(hops)]
        return functools.reduce(torch.add, padded).transpose(1, 2)

    def denoise(
        self, audio: Tensor, strength: Tensor, bias: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor]:
        """The stage "denoiser": audio (B, S), strength (B,), bias (bins,) -> audio (B, S // hop * hop).

        "masked_denoiser" takes `lengths` (B,) too, the hops after which an item ends and zeros follow.
        """
        tables, tiny = self.tables(), torch.finfo(torch.float32).tiny
        spectrum = self.spectrum(audio, tables, lengths)
        count, frames = spectrum.shape[3], audio.shape[1] // self.hop
        real, imaginary = spectrum.unbind(1)
        magnitude = (real * real + imaginary * imaginary).sqrt().clamp(min=tiny)
        hum = (strength[:, None] * (bias[self.bins] * self.counts))[:, :, None]
        gain = (self.counts[:, None] - hum / magnitude).clamp(min=0)
        inside = torch.ones(1, count, device=audio.device)
        if lengths is not None:
            inside = (torch.arange(count, device=audio.device) <= lengths[:, None]).to(audio.dtype)
            gain = gain * inside[:, None]
        total = self.overlapped(spectrum * gain[:, None], tables)
        windows = torch.stack([F.pad(inside, (i, OVERLAP - 1 - i)) for i in range(OVERLAP)], dim=2)
        weight = torch.matmul(windows, self.squares)  # (B, T + OVERLAP - 1, hop)
        kept = slice(OVERLAP // 2, OVERLAP // 2 + frames)
        denoised = total[:, kept] / weight[:, kept].clamp(min=tiny)
        if lengths is not None:  # a window's edge alone, divided by its weight, is as large as may be
            denoised = denoised * inside[:, 1:, None]
        return (denoised.flatten(1),)


def _turn(cycles: np.ndarray) -> np.ndarray:
    return np.exp(-2j * np.pi * cycles)


def _parts(values: np.ndarray, axis: int) -> np.ndarray:
    return np.stack((np.real(values), np.imag(values)), axis)
