"""What the frontend's small networks share: how their weights are kept, and products on the caller's thread.

NumPy's BLAS hands products from some ten thousand weights on to threads of its own, as many as there are
cores. For networks of a million operations the handing takes longer than the product, and where the cores
are busy, as beside other workers or listeners, a step of microseconds waits for a turn of milliseconds. A
limit for BLAS's threads, as threadpoolctl sets one, holds for the whole process, and calls side by side
would put each other's back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import safe_open

ALONE = 9000  # weights that OpenBLAS takes a vector by without its threads: fewer than 9,216


def read_weights(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """A file's metadata, and its weights in float32: they are kept in bytes with a scale a row."""
    with safe_open(path, "numpy") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return file.metadata(), {
            name: value.astype(np.float32) * stored.get(f"{name}.scale", np.float32(1))
            for name, value in stored.items()
            if not name.endswith(".scale")
        }


class Matrix:
    """float32 [..., K, N] that multiplies rows [..., R, K] from the right, block by block."""

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

    __array_ufunc__ = None  # `rows @ matrix` is this class's
