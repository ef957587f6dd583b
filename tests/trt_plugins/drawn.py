"""The ranges of noise that the kernel draws in tests, in the interpreter and on a GPU."""

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from melforge.common.arrays import to_numpy
from melforge.common.noise import Distribution, draw

# distribution, seeds, first number, count
RANGES = (
    ("normal", (0,), 0, 1),
    ("normal", (7,), 0, 5000),
    ("normal", (2**63 + 5,), 37, 100),
    ("uniform", (1, 2**64 + 1, 2**32), 16, 4099),
    ("uniform", (3, 3), 2**31 - 7, 33),
    ("uniform", (5,), 2**33 + 1, 47),
)


def differing(
    drawn_by: Callable[..., Tensor],
    device: str,
    distribution: Distribution,
    seeds: Sequence[int],
    first: int,
    count: int,
) -> int:
    """How many numbers differ from those of the host in a bit."""
    found = to_numpy(drawn_by(device, distribution, seeds, first, count))
    wanted = draw(distribution, seeds, first, count)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype == np.float32
    return int((found.view(np.int32) != wanted.view(np.int32)).sum())
