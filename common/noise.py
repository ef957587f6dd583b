"""Noise by a counter-based generator: the same numbers on every device, and any range of them by itself.

Number i of a seed depends on (seed, i) alone. Its 16 bits are a part of what Philox4x64-10 gives (Salmon and
others, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key is (the seed modulo 2^64, 0). The
counter (j + 1, 0, 0, 0) gives block j, four words of 64 bits: numpy's for Philox(key=seed, counter=j). A word
has four numbers, its lowest bits first: number i is in block i // 16, in its word i // 4 % 4, from bit
i % 4 * 16 on. The bits index a table of values, so that no device computes a logarithm of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np

from melforge.common.arrays import Array

# "uniform" in [0, 1), "normal" of mean 0 and variance 1.
Distribution = Literal["uniform", "normal"]
# (distribution, seeds, number of the first value, count) -> float32 [B, count], a row for each seed.
Draw = Callable[[Distribution, Sequence[int], int, int], Array]

VALUES = 1 << 16  # of a distribution
NUMBERS_PER_WORD, NUMBERS_PER_BLOCK = 4, 16


def draw(distribution: Distribution, seeds: Sequence[int], first: int, count: int) -> np.ndarray:
    """Numbers `first` to `first + count` of each seed, float32 [B, count]."""
    drawn = np.empty((len(seeds), count), np.float32)
    for row, seed in zip(drawn, seeds, strict=True):
        if distribution == "uniform":
            np.multiply(bits(seed, first, count), np.float32(1 / VALUES), out=row)  # as its table
        else:
            table(distribution).take(bits(seed, first, count), out=row, mode="clip")  # "raise" takes a copy
    return drawn


def bits(seed: int, first: int, count: int) -> np.ndarray:
    """The bits of a seed's numbers `first` to `first + count`, uint16 [count]."""
    block, start = divmod(first, NUMBERS_PER_BLOCK)
    generator = np.random.Philox(key=key_of(seed), counter=block)
    words = generator.random_raw(-(-(start + count) // NUMBERS_PER_WORD))
    return words.astype("<u8", copy=False).view("<u2")[start : start + count]


def key_of(seed: int) -> int:
    """The key's first word; its second one is 0."""
    return seed % (1 << 64)


def keys_of(seeds: Sequence[int]) -> np.ndarray:
    """Those of several, with their bits in int64 [B]."""
    return np.array([key_of(seed) for seed in seeds], np.uint64).view(np.int64)


@cache
def table(distribution: Distribution) -> np.ndarray:
    """The value for each 16 bits, float32 [65536], in rising order.

    The normal ones are the quantiles of (k + 0.5) / 65536, scaled to a variance of 1: from -4.32 to 4.32.
    """
    if distribution == "uniform":
        return np.arange(VALUES, dtype=np.float32) / np.float32(VALUES)
    from statistics import NormalDist

    above = (np.arange(VALUES // 2, VALUES) + 0.5) / VALUES
    upper = np.array(list(map(NormalDist().inv_cdf, above.tolist())))
    upper /= np.sqrt(np.mean(upper**2))
    return np.concatenate([-upper[::-1], upper]).astype(np.float32)
