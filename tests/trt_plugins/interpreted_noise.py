"""Runs the noise kernel in Triton's interpreter and prints how many numbers are not those of the host."""

import triton.language as tl  # noqa: F401 (which a kernel must see)

from melforge.trt_plugins import noise
from tests.trt_plugins.drawn import RANGES, differing

print(sum(differing(noise.draw, "cpu", *what) for what in RANGES))
