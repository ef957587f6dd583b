"""Time of each engine's calls within a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from common.arrays import Array
from common.bench.timer import elapsed, mark, wait_for
from common.engines import Engine
from common.stages import Dim, Stage, TensorSpec

TOGETHER = "runs together"  # among a call's sizes: so many runs of the stage are one call

Sizes = dict[str, int]  # of the dynamic dimensions in a call


class StageTimer:
    """Measures the calls of the engines that it watches, while it is on.

    On a GPU by CUDA events around each call, read when all has run: the host waits for nothing, as without
    the timer. On the CPU by the host's clock.
    """

    def __init__(self) -> None:
        self.on = False
        self._marks: list[tuple[Stage, Sizes, Any, Any]] = []

    def watch(self, engine: Engine) -> Engine:
        return WatchedEngine(engine, self)

    def watch_graphs(self, graphs: Any) -> None:
        """Two engines that are captured with what is computed for them; their calls count as the engines'."""
        for name, engine in (("encode", graphs.encoder), ("decode", graphs.decoder)):
            setattr(graphs, name, partial(self._graph, getattr(graphs, name), engine))

    def _graph(self, call: Callable[..., Any], engine: Engine, *inputs: Any, **more: Any) -> Any:
        def sizes(outputs: Mapping[str, Array]) -> Sizes:
            given = inputs[0] if isinstance(inputs[0], Mapping) else {}
            return sizes_of(engine.stage.inputs, given) | sizes_of(engine.stage.outputs, outputs)

        return self.time(engine, lambda: call(*inputs, **more), sizes)

    def time(self, engine: Engine, call: Callable[[], Any], sizes: Callable[[Any], Sizes]) -> Any:
        """What the call gives. While the timer is on it counts as one of the engine, unless it gave None."""
        if not self.on:
            return call()
        start = mark(engine.device)
        outputs = call()
        end = mark(engine.device)
        if outputs is not None:
            self._marks.append((engine.stage, sizes(outputs), start, end))
        return outputs

    def measure(self, run: Callable[[], Any], runs: int, device: str) -> dict[str, Any]:
        """Of one run, on average: seconds from the first engine's start to the last one's end, and of each.

        An engine's calls at the same sizes are one entry.
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
                key = (stage.full_name, tuple(sizes.items()))
                entry = found.setdefault(key, {"calls": 0, "seconds": 0.0})
                entry["calls"] += 1
                entry["seconds"] += elapsed(start, end)
        stages = [
            {"stage": name, "sizes": dict(sizes), **{key: value / runs for key, value in entry.items()}}
            for (name, sizes), entry in found.items()
        ]
        known = bool(stages) and span == span  # not where a part runs on the CPU and another on the GPU
        return {"device_s": span / runs if known else None, "stages": stages}


class EngineWrapper:
    """An engine; what is not replaced is its own."""

    def __init__(self, engine: Engine):
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class WatchedEngine(EngineWrapper):
    """An engine whose calls a timer measures."""

    def __init__(self, engine: Engine, timer: StageTimer):
        super().__init__(engine)
        self._timer = timer

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        sizes = lambda outputs: sizes_of(self.engine.stage.inputs, inputs)  # noqa: E731
        return self._timer.time(self.engine, lambda: self.engine(**inputs), sizes)

    @property
    def repeated(self) -> Callable:
        """Steps that an engine makes together are one call, whose sizes say how many."""
        return partial(self._repeated, self.engine.repeated)

    def _repeated(
        self, repeated: Callable, fixed: Mapping[str, Array], state: Mapping[str, Array], *how: Any
    ) -> Callable:
        steps_of = repeated(fixed, state, *how)
        sizes = sizes_of(self.engine.stage.inputs, {**fixed, **state})

        def run(values: Any) -> dict[str, Array]:
            together = {**sizes, TOGETHER: len(values)}
            return self._timer.time(self.engine, lambda: steps_of(values), lambda outputs: together)

        return run


def sizes_of(tensors: Sequence[TensorSpec], values: Mapping[str, Array]) -> Sizes:
    return {
        dim.name: size
        for tensor in tensors
        if tensor.name in values
        for dim, size in zip(tensor.dims, values[tensor.name].shape, strict=True)
        if isinstance(dim, Dim)
    }
