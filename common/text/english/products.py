"""Matrix products of the frontend's small networks, on the thread that asks for them.

NumPy's BLAS hands products from some ten thousand weights on to threads of its own, as many as there are
cores. For networks of a million operations the handing takes longer than the product, and where the cores
are busy, as beside other workers or listeners, a step of microseconds waits for a turn of milliseconds.
"""

from __future__ import annotations

import numpy as np

ALONE = 9000  # weights that OpenBLAS takes a vector by without its threads: fewer than 9,216


class Weights:
    """A matrix float32 [..., K, N] that multiplies rows [..., R, K] from the right, block by block."""

    def __init__(self, matrix: np.ndarray) -> None:
        *_, rows, self.columns = matrix.shape
        count = -(-self.columns * rows // ALONE)
        width = -(-self.columns // count)
        padded = np.zeros((*matrix.shape[:-1], count * width), np.float32)
        padded[..., : self.columns] = matrix
        blocks = padded.reshape(*padded.shape[:-1], count, width).swapaxes(-2, -3)
        self.blocks = np.ascontiguousarray(blocks)  # [..., blocks, K, width]

    def __rmatmul__(self, rows: np.ndarray) -> np.ndarray:
        """rows [..., R, K] -> [..., R, N]."""
        made = (rows[..., None, :, :] @ self.blocks).swapaxes(-3, -2)  # [..., R, blocks, width]
        return made.reshape(*made.shape[:-2], -1)[..., : self.columns]

    __array_ufunc__ = None  # `rows @ weights` is this class's
