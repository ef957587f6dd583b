"""Engines with something of them replaced, so that all runs of a row are alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common.arrays import Array, as_float32, valid
from common.deployment import Bucket
from common.engines import Engine


class EngineWrapper:
    """An engine; what is not replaced is its own."""

    def __init__(self, engine: Engine):
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class FixedDurations(EngineWrapper):
    """An acoustic model's encoder with durations that are given: its own are predicted, and not used."""

    def __init__(self, engine: Engine, frames: int):
        super().__init__(engine)
        self._frames = frames

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return self._given(inputs, self.engine(**inputs))

    def alone(self, bucket: Bucket | None = None) -> Callable[[dict[str, Array]], dict[str, Array]]:
        run = self.engine.alone(bucket)
        return lambda inputs: self._given(inputs, run(inputs))

    def _given(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> dict[str, Array]:
        inside = valid(inputs["lengths"], outputs["duration"].shape[1])
        return {**outputs, "duration": as_float32(inside) * self._frames}


class Remembered(EngineWrapper):
    """An engine that runs once for each shape and gives the same from then on: others are measured."""

    def __init__(self, engine: Engine):
        super().__init__(engine)
        self._outputs: dict[tuple, dict[str, Array]] = {}

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        key = tuple(tuple(value.shape) for value in inputs.values())
        if key not in self._outputs:
            self._outputs[key] = self.engine(**inputs)
        return self._outputs[key]
