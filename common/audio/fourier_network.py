"""Fourier transforms of windows a hop apart, and back, as products with small tables: no complex numbers."""

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.audio.mel import OVERLAP, analysis_window, spectra_of


class Tables(NamedTuple):
    """Of the two sums, for products."""

    inner: Tensor  # (Q, 2 * kept, P): of each q and row the real parts first
    outer: Tensor  # (2 Q, 2 Q): rows are the real parts of all c, then the others; columns both of each q


class WindowedFourier(nn.Module):
    """The spectra of Hann windows of OVERLAP hops, and the windows of spectra added up. It has no weights.

    A window's Fourier transform of P * Q points is done as two sums, the outer one over Q points: with sample
    Q * p + q and bin r + P * c,

        spectrum[r, c] = sum_q e(q c / Q) sum_p e(r (Q p + q) / N) audio[p, q],    e(x) = exp(-2 pi i x).

    That is a fifth of the work of one matrix. The rows r from 0 to P / 2 hold every bin or its mirror image,
    so that the others are left out: `bins` says which, and where `mirrored` the image's conjugate. The window
    is part of the inner sum's tables, one for each q; the inverse uses them a second time, and takes spectra
    times `counts`. Time is the last axis of all products, which is the fastest on a CPU.

    The tables are made of few `numbers` in the graph, so that a graph is small: e(r p / P), e(r q / N), the
    window, and e(q c / Q).
    """

    numbers: Tensor
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
        numbers = (
            _turn(np.outer(kept, np.arange(self.rows)) / self.rows),
            _turn(np.outer(columns, kept) / size)[:, :, None],
            window.reshape(self.rows, self.columns).T[:, None],  # (Q, 1, P)
            _turn(np.outer(columns, columns) / self.columns),
        )
        self.shapes = [part.shape for part in numbers for _ in range(1 + np.iscomplexobj(part))]
        # In one tensor: the exporter would make the tables of smaller ones itself.
        self._keep("numbers", np.concatenate([_parts(part).ravel() for part in numbers]))
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

    def tables(self) -> Tables:
        parts = self.numbers.split([math.prod(shape) for shape in self.shapes])
        real, imaginary, cosine, sine, window, across, along = (
            part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)
        )
        inner = torch.cat((real * cosine - imaginary * sine, real * sine + imaginary * cosine), dim=1)
        outer = torch.stack((across, -along, along, across), dim=2)
        outer = outer.unflatten(2, (2, 2)).permute(2, 0, 1, 3)
        return Tables(inner * window, outer.reshape(2 * self.columns, -1))

    def spectra(self, hops: Tensor, tables: Tables) -> Tensor:
        """Hops (B, T + OVERLAP - 1, hop) -> real and imaginary parts (B, 2, bins, T) of their T windows."""
        count = hops.shape[1] - OVERLAP + 1
        hops = hops.transpose(1, 2)
        hops = hops.unflatten(1, (self.rows // OVERLAP, self.columns)).transpose(1, 2)
        windows = torch.cat([hops[..., first : first + count] for first in range(OVERLAP)], dim=2)
        sums = torch.matmul(tables.inner, windows)  # (B, Q, 2 * kept, T)
        spectrum = torch.matmul(tables.outer, sums.reshape(-1, 2 * self.columns, sums.shape[2] // 2 * count))
        return spectrum.reshape(-1, 2, len(self.bins), count)

    def overlapped(self, spectrum: Tensor, tables: Tables) -> Tensor:
        """What `spectrum` gives -> its windows, windowed again, added up (B, T + OVERLAP - 1, hop).

        The inverse is the transform of the conjugate, its steps in reverse.
        """
        kept, count = tables.inner.shape[1] // 2, spectrum.shape[3]
        sums = torch.matmul(tables.outer.T, spectrum.reshape(-1, 2 * self.columns, kept * count))
        sums = sums.reshape(-1, self.columns, 2 * kept, count)
        windows = torch.matmul(tables.inner.transpose(1, 2), sums).transpose(1, 2)  # (B, P, Q, T)
        hops = windows.reshape(-1, OVERLAP, self.hop, count).unbind(1)
        padded = [F.pad(hop, (i, OVERLAP - 1 - i)) for i, hop in enumerate(hops)]
        return functools.reduce(torch.add, padded).transpose(1, 2)


def _turn(cycles: np.ndarray) -> np.ndarray:
    return np.exp(-2j * np.pi * cycles)


def _parts(values: np.ndarray) -> np.ndarray:
    """Real numbers as they are, complex ones as real and imaginary parts."""
    return np.stack((np.real(values), np.imag(values))) if np.iscomplexobj(values) else values
