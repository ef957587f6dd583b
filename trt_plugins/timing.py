"""Timing calls on a GPU, for the benchmarks of the engines on kernels of our own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

WARM_UP = 5


def time_calls(call: Callable[[], object], runs: int) -> tuple[float, float, float]:
    """Seconds of the first call, then median and 95th percentile of `runs` calls in milliseconds."""
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    for _ in range(WARM_UP):
        call()
    found = []
    for _ in range(runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end))
    found.sort()
    return first, statistics.median(found), found[int(0.95 * (len(found) - 1))]
