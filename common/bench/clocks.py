"""Time of calls and of engines, and memory."""

from __future__ import annotations

import importlib
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from common.arrays import Array
from common.bench.work import TOGETHER
from common.engines import Engine
from common.stages import Dim, Stage, TensorSpec

PERCENTILES = (50, 90, 95, 99)
LEAST_RUNS = 3
WARM_UPS, LONGEST_WARM_UP = 3, 3.0  # further runs after the first one, and the seconds that they may take


def wait_for(device: str) -> None:
    """Until the device has done what it was told."""
    if device != "cpu":
        importlib.import_module("torch").cuda.synchronize(device)


def works(device: str) -> bool:
    """Whether a GPU still does what it is told: some errors end all work of a process on it."""
    torch = sys.modules.get("torch")
    if device == "cpu" or torch is None or not torch.cuda.is_available():
        return True
    try:
        torch.ones(1, device=device).sum().item()
    except RuntimeError:
        return False
    return True


def timed(
    run: Callable[[], Any], runs: int, device: str, longest: float, least: int = LEAST_RUNS
) -> list[float]:
    """Seconds of each run, from the host's side; after `longest` seconds no more than the least runs."""
    seconds: list[float] = []
    begun = time.perf_counter()
    while len(seconds) < runs and (len(seconds) < least or time.perf_counter() - begun < longest):
        wait_for(device)
        start = time.perf_counter()
        run()
        wait_for(device)
        seconds.append(time.perf_counter() - start)
    return seconds


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation and percentiles."""
    points = {f"p{point}": float(np.percentile(seconds, point)) for point in PERCENTILES}
    return {"mean": float(np.mean(seconds)), "std": float(np.std(seconds)), **points}


class EngineClock:
    """Measures the calls of the engines that it watches, while it is on.

    On a GPU by CUDA events around each call, read when all has run: the host waits for nothing, as without
    the clock. On the CPU by the host's clock.
    """

    def __init__(self, configs: Mapping[str, Any]):
        self.configs = configs  # by model
        self.on = False
        self._marks: list[tuple[Stage, dict[str, int], Any, Any]] = []

    def watch(self, engine: Engine) -> Engine:
        return _Watched(engine, self)

    def watch_halves(self, halves: Any) -> None:
        """Two engines that are captured with what is between them; their calls count as the engines'."""
        for name, engine in (("encode", halves.encoder), ("decode", halves.decoder)):
            setattr(halves, name, self._timed(getattr(halves, name), engine))

    def _timed(self, call: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
        def run(*inputs: Any, **more: Any) -> Any:
            if not self.on:
                return call(*inputs, **more)
            start = _mark(engine.device)
            outputs = call(*inputs, **more)
            if outputs is not None:
                given = inputs[0] if isinstance(inputs[0], Mapping) else {}
                sizes = _sizes(engine.stage.inputs, given) | _sizes(engine.stage.outputs, outputs)
                self._marks.append((engine.stage, sizes, start, _mark(engine.device)))
            return outputs

        return run

    @contextmanager
    def measuring(self, engine: Engine, sizes: dict[str, int]) -> Iterator[None]:
        start = _mark(engine.device)
        yield
        self._marks.append((engine.stage, sizes, start, _mark(engine.device)))

    def measure(self, run: Callable[[], Any], runs: int, device: str) -> dict[str, Any]:
        """Of one run, on average: seconds from the first engine's start to the last one's end, and of each.

        An engine's calls at the same sizes are one entry.
        """
        self._marks.clear()
        span, found = 0.0, {}
        for _ in range(runs):
            wait_for(device)
            self.on = True
            try:
                run()
            finally:
                self.on = False
            wait_for(device)
            if self._marks:
                span += _seconds(self._marks[0][2], self._marks[-1][3])
            for stage, sizes, start, end in self._marks:
                key = (stage.full_name, tuple(sizes.items()))
                entry = found.setdefault(key, {"calls": 0, "seconds": 0.0})
                entry["calls"] += 1
                entry["seconds"] += _seconds(start, end)
            self._marks.clear()
        stages = [
            {"stage": name, "sizes": dict(sizes), **{key: value / runs for key, value in entry.items()}}
            for (name, sizes), entry in found.items()
        ]
        known = bool(stages) and span == span  # not where a part runs on the CPU and another on the GPU
        return {"device_s": span / runs if known else None, "stages": stages}


class _Watched:
    """An engine that notes how long its calls take."""

    def __init__(self, engine: Engine, clock: EngineClock):
        self._engine, self._clock = engine, clock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        return self._repeated if name == "repeated" else found

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        if not self._clock.on:
            return self._engine(**inputs)
        with self._clock.measuring(self._engine, sizes_of(self._engine.stage, inputs)):
            return self._engine(**inputs)

    def _repeated(self, fixed: Mapping[str, Array], state: Mapping[str, Array], *how: Any) -> Callable:
        """Steps that an engine makes together are one call, whose sizes say how many."""
        steps_of = self._engine.repeated(fixed, state, *how)
        sizes = sizes_of(self._engine.stage, {**fixed, **state})

        def run(values: Any) -> dict[str, Array]:
            if not self._clock.on:
                return steps_of(values)
            with self._clock.measuring(self._engine, {**sizes, TOGETHER: len(values)}):
                return steps_of(values)

        return run


def sizes_of(stage: Stage, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The dynamic dimensions' sizes in a call."""
    return _sizes(stage.inputs, inputs)


def _sizes(tensors: Sequence[TensorSpec], values: Mapping[str, Array]) -> dict[str, int]:
    return {
        dim.name: size
        for tensor in tensors
        if tensor.name in values
        for dim, size in zip(tensor.dims, values[tensor.name].shape, strict=True)
        if isinstance(dim, Dim)
    }


def _mark(device: str) -> Any:
    if device == "cpu":
        return time.perf_counter()
    event = importlib.import_module("torch").cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(start: Any, end: Any) -> float:
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    if isinstance(start, float) or isinstance(end, float):  # one part on the CPU, another on the GPU
        return float("nan")
    return start.elapsed_time(end) / 1000


class Memory:
    """The most memory that a row takes."""

    def __init__(self, device: str):
        self.device = device

    def reset(self) -> None:
        if self.device != "cpu":
            importlib.import_module("torch").cuda.reset_peak_memory_stats(self.device)
            return
        with suppress(OSError):  # Linux: the highest resident set counts from now on
            Path("/proc/self/clear_refs").write_text("5")

    def peak_bytes(self, engines: Sequence[Engine]) -> int:
        """On a GPU, PyTorch's allocations and what other engines hold; on the CPU the whole process."""
        if self.device == "cpu":
            return peak_resident()
        torch = importlib.import_module("torch")
        others = {id(e.memory_owner): held_bytes(e) for e in engines if e.backend != "torch"}
        return torch.cuda.max_memory_allocated(self.device) + sum(others.values())


def held_bytes(engine: Engine) -> int:
    """An engine's weights, and for TensorRT the memory between its layers."""
    return engine.memory_bytes + getattr(getattr(engine, "loaded", None), "scratch_bytes", 0)


def peak_resident() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    # Kilobytes, but bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
