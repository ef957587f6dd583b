"""Times calls, by the host's clock or by CUDA events: of anything, or of each engine within a run."""

import functools
import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from melforge.common.arrays import Array
from melforge.common.engines import Engine, WrappedEngine, as_capturable
from melforge.common.stages import Dim

TOGETHER = "runs together"  # among a call's sizes: so many runs of the stage are one call

Sizes = dict[str, int]  # of the dynamic dimensions in a call


def timed(
    call: Callable[[], Any],
    runs: int,
    device: str = "cpu",
    *,
    warm_up: int = 0,
    longest: float = math.inf,
    least: int = 3,
) -> list[float]:
    """Seconds of each call behind `warm_up` ones; `longest` seconds later only `least` ones are still made.

    By the host's clock, with the device waited for before and after each call.
    """
    for _ in range(warm_up):
        call()
    seconds: list[float] = []
    wait_for(device)
    begun = time.perf_counter()
    while len(seconds) < runs and (len(seconds) < least or time.perf_counter() - begun < longest):
        start = time.perf_counter()
        call()
        wait_for(device)
        seconds.append(time.perf_counter() - start)
    return seconds


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, percentiles and the largest."""
    points = {f"p{point}": float(np.percentile(seconds, point)) for point in (50, 90, 95, 99)}
    return {"mean": float(np.mean(seconds)), "std": float(np.std(seconds)), **points, "max": max(seconds)}


def mark(device: str) -> Any:
    """A point in time: the host's clock, or an event on a GPU's current stream."""
    if device == "cpu":
        return time.perf_counter()
    event = importlib.import_module("torch").cuda.Event(enable_timing=True)
    event.record()
    return event


def elapsed(start: Any, end: Any) -> float:
    """Seconds from one mark to another; NaN where one is the CPU's and the other a GPU's."""
    on_host = isinstance(start, float), isinstance(end, float)
    if any(on_host):
        return end - start if all(on_host) else math.nan
    return start.elapsed_time(end) / 1000


def wait_for(device: str) -> None:
    """Until the device has done what it was given."""
    if device != "cpu":
        importlib.import_module("torch").cuda.synchronize(device)


class StageTimer:
    """Measures the calls of engines while it is on: on a GPU by CUDA events, which are read after the run and
    do not make the host wait; on the CPU by the host's clock.
    """

    def __init__(self) -> None:
        self.on = False
        self.label: Callable[[str], AbstractContextManager] | None = None  # around each call, for a profiler
        self._marks: list[tuple[str, Sizes, Any, Any]] = []

    def watch_graphs(self, graphs: Any) -> None:
        """Two engines that are captured with what is computed for them; their calls count as the engines'."""
        graphs.encode = self._watched(graphs.encode, graphs.encoder)
        graphs.decode = self._watched(graphs.decode, graphs.decoder)

    def watch_graph(self, graph: Any) -> None:
        """A vocoder's stages in one graph; its calls count as the generator's."""
        graph.audio = self._watched(graph.audio, graph.generator)

    def _watched(self, call: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
        def watched(first: Any, *inputs: Any, **more: Any) -> Any:
            sizes = functools.partial(sizes_of, engine, first if isinstance(first, Mapping) else {})
            return self.time(engine, lambda: call(first, *inputs, **more), sizes)

        return watched

    def time(self, engine: Engine, call: Callable[[], Any], sizes: Callable[[Any], Sizes]) -> Any:
        """What the call gives. While the timer is on it counts as one of the engine, unless it gave None."""
        if self.label:
            with self.label(engine.stage.full_name):
                return call()
        if not self.on:
            return call()
        start = mark(engine.device)
        outputs = call()
        end = mark(engine.device)
        if outputs is not None:
            self._marks.append((engine.stage.full_name, sizes(outputs), start, end))
        return outputs

    def measure(self, run: Callable[[], Any], runs: int, device: str) -> dict[str, Any]:
        """Of one run, on average: `engines_s`, from the first engine's start to the last one's end with what
        the host does between them, and the `stages`: seconds of each engine at each of its sizes.
        """
        span, found = 0.0, {}
        for _ in range(runs):
            self._marks.clear()
            wait_for(device)
            self.on = True
            try:
                run()
            finally:
                self.on = False
            wait_for(device)
            if self._marks:
                span += elapsed(self._marks[0][2], self._marks[-1][3])
            for stage, sizes, start, end in self._marks:
                entry = found.setdefault((stage, tuple(sizes.items())), {"calls": 0, "seconds": 0.0})
                entry["calls"] += 1
                entry["seconds"] += elapsed(start, end)
        stages = [
            {"stage": name, "sizes": dict(sizes), **{key: value / runs for key, value in entry.items()}}
            for (name, sizes), entry in found.items()
        ]
        known = bool(stages) and not math.isnan(span)  # NaN: a part on the CPU and another on the GPU
        return {"engines_s": span / runs if known else None, "stages": stages}


class WatchedEngine(WrappedEngine):
    """An engine whose calls a timer measures."""

    def __init__(self, inner: Engine, timer: StageTimer):
        super().__init__(inner)
        self._timer = timer

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        inner = self.inner
        return self._timer.time(inner, lambda: inner(**inputs), lambda outputs: sizes_of(inner, inputs))

    def repeated(
        self, fixed: Mapping[str, Array], state: Mapping[str, Array], *how: Any
    ) -> Callable[[Array], dict[str, Array]]:
        """Steps that run together are one call, with their number among its sizes."""
        steps_of = as_capturable(self.inner).repeated(fixed, state, *how)
        sizes = sizes_of(self.inner, {**fixed, **state})
        return lambda rows: self._timer.time(
            self.inner, lambda: steps_of(rows), lambda outputs: {**sizes, TOGETHER: len(rows)}
        )


def sizes_of(
    engine: Engine, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None
) -> Sizes:
    """The dynamic dimensions that these arrays have, of those that the engine's stage declares."""
    return {
        dim.name: size
        for tensors, values in ((engine.stage.inputs, inputs), (engine.stage.outputs, outputs or {}))
        for tensor in tensors
        if tensor.name in values
        for dim, size in zip(tensor.dims, values[tensor.name].shape, strict=True)
        if isinstance(dim, Dim)
    }
