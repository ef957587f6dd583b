"""Contrast between the bands of a mel, which a network that answers with averages has too little of."""

from __future__ import annotations

import numpy as np

from melforge.common.arrays import Array, is_numpy, to_device

SHARPENED_BANDS = 2  # on either side: harmonics of a voice stand two to four bands apart


def sharpen(mel: Array, amounts: np.ndarray) -> Array:
    """mel [B, n_mels, T] with so many times what sets each band apart from the mean of those around it.
    `amounts` are float32 [B].

    Squared and absolute errors teach a network to answer with averages, which blur the harmonics most. The
    published network is not sharpened; a voice that was trained briefly gains by some (its `sharpness`).
    """
    if not amounts.any():
        return mel
    bands = np.arange(mel.shape[1])
    offsets = range(-SHARPENED_BANDS, SHARPENED_BANDS + 1)
    around = sum(mel[:, (bands + offset).clip(0, bands[-1])] for offset in offsets) / len(offsets)
    amounts_there = amounts if is_numpy(mel) else to_device(amounts, mel.device)
    return mel + (mel - around) * amounts_there[:, None, None]


def sharpen_layer(weight: Array, bias: Array, amount: float) -> tuple[Array, Array]:
    """Weight [n_mels, C] and bias [n_mels] of a linear layer that answers as this one, but sharpened."""
    amounts = np.array([amount], np.float32)
    return sharpen(weight[None], amounts)[0], sharpen(bias[None, :, None], amounts)[0, :, 0]
