"""The numbers of `common/noise.py`, bit for bit, drawn by a kernel on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from melforge.common.arrays import Array, to_device
from melforge.common.engines import Engine
from melforge.common.engines.limits import PLAIN
from melforge.common.noise import NUMBERS_PER_BLOCK, Distribution, key_of, table
from melforge.trt_plugins.graphs import KernelModule, TritonLaunch

philox = KernelModule("melforge.trt_plugins.philox")

BLOCK = 128  # blocks of 16 numbers that a program makes


def draw(device: str, distribution: Distribution, seeds: Sequence[int], first: int, count: int) -> Tensor:
    """As `melforge.common.noise.draw`, float32 [B, count], on the current stream of the current device."""
    keys = np.array([key_of(seed) for seed in seeds], np.uint64).view(np.int64)
    drawn = torch.empty(len(seeds), count, device=device)
    blocks = -(-(first + count) // NUMBERS_PER_BLOCK) - first // NUMBERS_PER_BLOCK
    grid = -(-blocks // BLOCK), len(seeds)
    tensors = torch.as_tensor(to_device(keys, device)), table_on(device, distribution), drawn
    TritonLaunch(philox.draw_kernel, grid, (*tensors, first, count), {"BLOCK": BLOCK})()
    return drawn


@cache
def table_on(device: str, distribution: Distribution) -> Tensor:
    """The distribution's values, which stay on the device."""
    return torch.as_tensor(to_device(table(distribution), device))


class DrawsOnGpu(Engine):
    """An engine whose noise is drawn on its GPU where Triton can run; else on the host."""

    def draw(self, distribution: Distribution, seeds: Sequence[int], first: int, count: int) -> Array:
        if PLAIN.lacking(self.device):
            return super().draw(distribution, seeds, first, count)
        with torch.cuda.device(self.device):
            return draw(self.device, distribution, seeds, first, count)
