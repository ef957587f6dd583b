"""The numbers of `common/noise.py`, bit for bit, drawn by a kernel on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property

import torch
from torch import Tensor

from melforge.common.arrays import Array, to_device
from melforge.common.engines import Engine
from melforge.common.engines.limits import PLAIN
from melforge.common.noise import NUMBERS_PER_BLOCK, Distribution, keys_of, table
from melforge.trt_plugins.graphs import KernelModule, TritonLaunch

philox = KernelModule("melforge.trt_plugins.philox")

BLOCK = 128  # blocks of 16 numbers that a program makes


def draw(device: str, distribution: Distribution, seeds: Sequence[int], first: int, count: int) -> Tensor:
    """As `melforge.common.noise.draw`, float32 [B, count], on the current stream of the current device."""
    return draw_by_keys(distribution, torch.as_tensor(to_device(keys_of(seeds), device)), first, count)


def draw_by_keys(distribution: Distribution, keys: Tensor, first: int, count: int) -> Tensor:
    """The same of keys int64 [B], which are on the device."""
    drawn = torch.empty(len(keys), count, device=keys.device)
    blocks = -(-(first + count) // NUMBERS_PER_BLOCK) - first // NUMBERS_PER_BLOCK
    grid = -(-blocks // BLOCK), len(keys)
    tensors = keys, table_on(str(keys.device), distribution), drawn
    TritonLaunch(philox.draw_kernel, grid, (*tensors, first, count), {"BLOCK": BLOCK})()
    return drawn


@cache
def table_on(device: str, distribution: Distribution) -> Tensor:
    """The distribution's values, which stay on the device."""
    return torch.as_tensor(to_device(table(distribution), device))


class DrawsOnGpu(Engine):
    """An engine whose noise is drawn on its GPU where Triton can run; else on the host."""

    @cached_property
    def _on_host(self) -> bool:
        return bool(PLAIN.lacking(self.device))

    def draw(self, distribution: Distribution, seeds: Sequence[int], first: int, count: int) -> Array:
        if self._on_host:
            return super().draw(distribution, seeds, first, count)
        with torch.cuda.device(self.device):
            return draw(self.device, distribution, seeds, first, count)


def kernel_draw(device: str) -> Callable[[Tensor, int], Tensor] | None:
    """The first normal numbers of keys int64 [B], float32 [B, count]; None where its kernel does not run."""
    if PLAIN.lacking(device):
        return None

    def draw_first(keys: Tensor, count: int) -> Tensor:
        with torch.cuda.device(device):
            return draw_by_keys("normal", keys, 0, count)

    return draw_first
