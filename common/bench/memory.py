"""The most memory that a process takes, or its engines on a GPU."""

from __future__ import annotations

import importlib
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from common.engines import Engine

RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of `ru_maxrss`'s unit


def reset_peak(device: str) -> None:
    """What is held at most counts from now on."""
    if device != "cpu":
        importlib.import_module("torch").cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # Linux: the highest resident set
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(device: str, engines: Sequence[Engine]) -> int:
    """On a GPU, PyTorch's allocations and what other engines hold; on the CPU the whole process."""
    if device == "cpu":
        return peak_resident()
    torch = importlib.import_module("torch")
    others = {id(e.memory_owner): held_bytes(e) for e in engines if e.backend != "torch"}
    return torch.cuda.max_memory_allocated(device) + sum(others.values())


def held_bytes(engine: Engine) -> int:
    """An engine's weights, and for TensorRT the memory between its layers."""
    return engine.memory_bytes + getattr(getattr(engine, "loaded", None), "scratch_bytes", 0)


def peak_resident() -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
