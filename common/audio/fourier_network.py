"""Fourier transforms of windows a hop apart, and back, as products with small tables: no complex numbers."""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.mel import OVERLAP, analysis_window, spectra_of


class WindowedFourier(nn.Module):
    """The spectra of Hann windows of OVERLAP hops, and the windows of spectra added up. It has no weights.

    A window's Fourier transform of P * Q points is done as two sums, the outer one over Q points: with sample
    Q * p + q and bin r + P * c,

        spectrum[r, c] = sum_q e(q c / Q) sum_p e(r (Q p + q) / N) audio[p, q],    e(x) = exp(-2 pi i x).

    That is a fifth of the work of one matrix. The rows r from 0 to P / 2 hold every bin or its mirror image,
    so that the others are left out: `bins` says which, and where `mirrored` the image's conjugate. The window
    is part of the inner sum's tables, one for each q; the inverse uses them a second time, and takes spectra
    times `counts`. Time is the last axis of all products, which is the fastest on a CPU.
    """

    inner: Tensor
    outer: Tensor
    conjugate: Tensor
    counts: Tensor
    squares: Tensor
    bins: Tensor

    def __init__(self, hop_length: int) -> None:
        super().__init__()
        contract = spectra_of(hop_length)
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
        squares = np.square(window).reshape(OVERLAP, hop)
        self._keep("squares", squares)
        self.weight = float(squares.sum(0)[0])  # of a sample that all its windows cover
        bins = np.add.outer(self.rows * columns, kept).reshape(-1)
        self.mirrored = 2 * bins > size
        self.register_buffer("bins", torch.from_numpy(np.minimum(bins, size - bins)), persistent=False)

    def _keep(self, name: str, table: np.ndarray) -> None:
        self.register_buffer(name, torch.from_numpy(table.astype(np.float32)), persistent=False)

    def tables(self) -> Tensor:
        """The inner sum's (Q, 2 * kept, P), of each row the real parts first."""
        mirrored = (self.inner[1 : (self.columns + 1) // 2] * self.conjugate).flip(0, 2)
        return torch.cat((self.inner, mirrored))

    def spectra(self, hops: Tensor, tables: Tensor) -> Tensor:
        """Hops (B, T + OVERLAP - 1, hop) -> real and imaginary parts (B, 2, bins, T) of their T windows."""
        count = hops.shape[1] - OVERLAP + 1
        hops = hops.transpose(1, 2)
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


def _turn(cycles: np.ndarray) -> np.ndarray:
    return np.exp(-2j * np.pi * cycles)


def _parts(values: np.ndarray, axis: int) -> np.ndarray:
    return np.stack((np.real(values), np.imag(values)), axis)
