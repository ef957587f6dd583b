"""Times calls, by the host's clock or by CUDA events."""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

PERCENTILES = (50, 90, 95, 99)


def timed(
    call: Callable[[], Any],
    runs: int,
    device: str = "cpu",
    *,
    warm_up: int = 0,
    longest: float = math.inf,
    least: int = 3,
    events: bool = False,
    queued: bool = False,
) -> list[float]:
    """Seconds of each call behind `warm_up` ones; `longest` seconds later only `least` ones are still made.

    By the host's clock, with the device waited for before and after each call; or with `events` what passes
    on the current stream, where `queued` calls do not wait for those before them.
    """
    for _ in range(warm_up):
        call()
    clock = device if events else "cpu"
    marks: list[tuple[Any, Any]] = []
    wait_for(device)
    begun = time.perf_counter()
    while len(marks) < runs and (len(marks) < least or time.perf_counter() - begun < longest):
        start = mark(clock)
        call()
        end = mark(clock) if events else None
        if not queued:
            wait_for(device)
        marks.append((start, end or mark(clock)))
    wait_for(device)
    return [elapsed(start, end) for start, end in marks]


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation and percentiles."""
    points = {f"p{point}": float(np.percentile(seconds, point)) for point in PERCENTILES}
    return {"mean": float(np.mean(seconds)), "std": float(np.std(seconds)), **points}


def mark(device: str) -> Any:
    """A point in time: the host's clock, or an event on a GPU's current stream."""
    if device == "cpu":
        return time.perf_counter()
    event = importlib.import_module("torch").cuda.Event(enable_timing=True)
    event.record()
    return event


def elapsed(start: Any, end: Any) -> float:
    """Seconds from one mark to another; NaN where one is the CPU's and the other a GPU's."""
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    if isinstance(start, float) or isinstance(end, float):
        return math.nan
    return start.elapsed_time(end) / 1000


def wait_for(device: str) -> None:
    """Until the device has done what it was given."""
    if device != "cpu":
        importlib.import_module("torch").cuda.synchronize(device)


def works(device: str) -> bool:
    """Whether a GPU still runs anything: some errors end all work of a process on it."""
    torch = sys.modules.get("torch")
    if device == "cpu" or torch is None or not torch.cuda.is_available():
        return True
    try:
        torch.ones(1, device=device).sum().item()
    except RuntimeError:
        return False
    return True
