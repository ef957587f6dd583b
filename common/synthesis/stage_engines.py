"""A model's engines by the names of their stages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines import Engine
from melforge.common.engines.backends import make_engine
from melforge.common.engines.buckets import BucketedEngine, EnginePool
from melforge.common.errors import InputError, require_torch
from melforge.common.registry import get_model
from melforge.common.stages import Stage
from melforge.common.stages.choose import KERNELS
from melforge.common.weights.voices import ModelSource


class StageEngines(Mapping[str, Engine]):
    """Each engine is made when it is first asked for: not every call needs every stage.

    With buckets, a stage's engine stands for one of each bucket; a pool holds these, for all stages together.
    `watch` gives what runs in an engine's place.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        source: ModelSource,
        backend: str,
        device: str,
        threads: int | None = None,
        watch: Callable[[Engine], Engine] | None = None,
        deployment: Deployment | None = None,
    ):
        self._stages = {stage.name: stage for stage in stages}
        self._source = source
        self._backend, self._device, self._threads = backend, device, threads
        self._watch = watch
        self._deployment = deployment or Deployment()
        self._pool = EnginePool(self._deployment.engine_memory_limit)
        self._made: dict[str, Engine] = {}
        self._making = threading.RLock()
        self.buckets = self._deployment.buckets(get_model(source.model).kind)
        self.batch_frames = self._deployment.batch_frames

    def __getitem__(self, name: str) -> Engine:
        with self._making:
            if name not in self._made:
                stage = self._stages[name]
                if self.buckets and name not in self._deployment.kernels:
                    how = (self._pool, self._backend, self._device)
                    engine: Engine = BucketedEngine(stage, self.buckets, self._make, *how)
                else:
                    engine = self._make(stage)
                self._made[name] = self._watch(engine) if self._watch else engine
            return self._made[name]

    def _make(self, stage: Stage, bucket: Bucket | None = None) -> Engine:
        if stage.name in self._deployment.kernels:
            return make_engine(stage, self._source, KERNELS, self._device, self._threads)
        if self._backend in ("onnx", "trt") and stage.name not in self._source.graphs:
            require_torch(f"exporting stage {stage.full_name} of {self._source.weights} to ONNX")
            if self._backend == "trt" and self._deployment.no_build:
                require_export(self._source, self._deployment, stage)
            from melforge.common.export.to_onnx import with_graphs

            # Those of all stages, whose weights are then read once.
            ours = [one for one in self._stages.values() if one.name not in self._deployment.kernels]
            if self._backend == "trt":
                from melforge.common.engines.tensorrt.engine_file import require_possible

                require_possible(ours, self._source, self._deployment)
            self._source = with_graphs(self._source, ours)
        how = (self._backend, self._device, self._threads, self._deployment)
        return make_engine(stage, self._source, *how, bucket)

    @property
    def captures(self) -> bool:
        """Whether a driver may capture several engines together: a graph would keep those let go of."""
        how = self._deployment
        graphs = self._backend == "trt" and how.trt_cuda_graph
        return (graphs or self.on_kernels) and not how.engine_memory_limit

    @property
    def on_kernels(self) -> bool:
        """Whether all stages run on CUDA kernels, which pad lengths to few."""
        return set(self._stages) <= set(self._deployment.kernels)

    def covering(self, text: int) -> Bucket | None:
        """The bucket that a text of so many symbols needs; None without buckets."""
        return next((bucket for bucket in self.buckets if bucket.text >= text), None)

    @property
    def can_be_shared(self) -> bool:
        """Whether threads may run these engines at the same time."""
        return all(engine.can_be_shared for engine in self._made.values())

    @property
    def memory_bytes(self) -> int:
        """Of the engines that were made, each that shares its memory counted once."""
        owners = {id(engine.memory_owner): engine.memory_bytes for engine in self._made.values()}
        return sum(owners.values())

    def report(self) -> list[dict[str, Any]]:
        """A row for each bucket of each stage that ran."""
        return [row for engine in self._made.values() if engine.buckets for row in engine.buckets.report()]

    def count_anew(self) -> None:
        """Forgets what buckets were used for so far."""
        for engine in self._made.values():
            if engine.buckets:
                engine.buckets.count_anew()

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __contains__(self, name: object) -> bool:
        return name in self._stages


def require_export(source: ModelSource, deployment: Deployment, stage: Stage) -> None:
    """An InputError where a stage has no graph yet and so can have no engine."""
    from melforge.common.engines.tensorrt.api import load_tensorrt
    from melforge.common.engines.tensorrt.engine_file import build_command
    from melforge.common.export.to_onnx import find_cached

    if find_cached(source, [stage]) is None:
        command = build_command(source, deployment, load_tensorrt(), stage)
        raise InputError(f"{source.weights} has no engines yet: build them with {command}")
