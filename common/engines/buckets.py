"""Engines for fixed lengths: a call runs on the smallest bucket that covers it, padded and cut back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from melforge.common.arrays import Array, pad_to
from melforge.common.config.deployment import Bucket
from melforge.common.engines import Arrays, CapturableEngine, Engine, Recent, Run, as_capturable, check_inputs
from melforge.common.engines.backends import engine_class
from melforge.common.engines.counts import CountedBuckets
from melforge.common.errors import InputError
from melforge.common.stages import Dim, Stage, TensorSpec, bucket_roots, fix, root

MB = 1_000_000


class EnginePool:
    """A model's engines, made when they are asked for; with a limit, those unused for longest are let go of.

    While an engine is loading, those that make room for it are still there: its size is known afterwards.
    """

    def __init__(self, limit: float | None = None):
        self.limit = limit  # MB
        self._engines: Recent[Hashable, Engine] = Recent()

    def get(self, key: Hashable, make: Callable[[], Engine]) -> Engine:
        engine = self._engines.get_or_make(key, make)
        if self.limit is not None and engine.memory_bytes > self.limit * MB:
            del self._engines[key]
            raise InputError(
                f"engine_memory_limit is {self.limit} MB, but one engine of {engine.stage.full_name} holds "
                f"{engine.memory_bytes / MB:.1f} MB: raise the limit"
            )
        while self.limit is not None and self.memory_bytes > self.limit * MB:
            self._engines.drop_oldest()
        return engine

    @property
    def memory_bytes(self) -> int:
        """Of all engines together; what several of them share counts once."""
        return sum({id(e.memory_owner): e.memory_bytes for e in self._engines.values()}.values())

    def __contains__(self, key: Hashable) -> bool:
        return key in self._engines


class BucketedEngine(CapturableEngine):
    """One stage on an engine for each bucket. To its callers, a stage that goes up to the largest of them.

    A bucket fixes the dimensions `text` and `mel`, and those that are multiples `of` them; others, such as
    the batch, stay as they come. Inputs are padded with zeros, which a network without padding masks attends
    to. `repeated` and `capturable` take inputs that have a bucket's lengths already.
    """

    buckets: CountedBuckets

    def __init__(
        self,
        stage: Stage,
        buckets: Sequence[Bucket],
        make: Callable[[Stage, Bucket], Engine],
        pool: EnginePool,
        backend: str,
        device: str,
    ):
        self.buckets = CountedBuckets(stage, buckets, lambda bucket: (stage.name, bucket) in pool)
        self.stage = fix(stage, self.buckets.largest, up_to=True)
        self.backend, self.device = backend, device
        self.memory_owner = pool  # of a model's engines together
        kind = engine_class(backend)
        self.can_be_captured, self.can_be_repeated = kind.can_be_captured, kind.can_be_repeated
        self._whole, self._make, self._pool = stage, make, pool

    @property
    def memory_bytes(self) -> int:
        return self._pool.memory_bytes

    def capturable(self, bucket: Bucket | None = None) -> Run:
        return as_capturable(self._engine(bucket or self.buckets.largest)).capturable()

    def repeated(
        self, fixed: Arrays, state: Arrays, noise: str, steps: int, kept: Sequence[str]
    ) -> Callable[[Array], dict[str, Array]]:
        lengths = self._lengths(fixed)
        if (bucket := self.buckets.covering(**lengths)) is None:
            raise ValueError(f"stage {self.stage.full_name}: no bucket covers {lengths}")
        return as_capturable(self._engine(bucket)).repeated(fixed, state, noise, steps, kept)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        given = self._lengths(inputs)
        bucket = self.buckets.covering(**given)
        if bucket is None:
            self.buckets.count_miss()
        check_inputs(self.stage, inputs)  # refuses lengths that no bucket covers
        assert bucket
        engine = self._engine(bucket)
        wanted = {name: getattr(bucket, name) for name in given}
        whole = [(t, inputs[t.name]) for t in self.stage.inputs]
        padded = {t.name: pad_to(array, resized(t, array, wanted)) for t, array in whole}
        batch = len(inputs[self.stage.inputs[0].name])
        valid = sum(self._valid(inputs, name, batch * size) for name, size in given.items())
        self.buckets.count_call(bucket, batch, valid)
        outputs = engine(**padded)
        return {t.name: cut(outputs[t.name], resized(t, outputs[t.name], given)) for t in self.stage.outputs}

    def _lengths(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        """Symbols and frames of a call, as far as the stage takes them: {"text": 37, "mel": 240}."""
        return {
            root(dim): -(-size // dim.times)
            for tensor in self.stage.inputs
            if tensor.name in inputs
            for size, dim in zip(inputs[tensor.name].shape, tensor.dims, strict=False)
            if isinstance(dim, Dim) and root(dim) in bucket_roots(self.stage)
        }

    def _valid(self, inputs: Mapping[str, Array], name: str, steps: int) -> Array:
        """How many of so many symbols or frames are within an item: all where the stage takes no lengths."""
        frames = name == "mel" and ("mel_lengths" in inputs or "text" in bucket_roots(self.stage))
        lengths = inputs.get("mel_lengths" if frames else "lengths")
        return steps if lengths is None else lengths.sum()

    def _engine(self, bucket: Bucket) -> Engine:
        def load() -> Engine:
            self.buckets.uses[bucket].loads += 1
            return self._make(fix(self._whole, bucket), bucket)

        return self._pool.get((self.stage.name, bucket), load)


def resized(tensor: TensorSpec, array: Array, lengths: dict[str, int]) -> tuple[int, ...]:
    """An array's shape, with these lengths along the dimensions that depend on them."""
    return tuple(
        lengths[root(dim)] * dim.times if isinstance(dim, Dim) and root(dim) in lengths else size
        for size, dim in zip(array.shape, tensor.dims, strict=True)
    )


def cut(array: Array, shape: tuple[int, ...]) -> Array:
    return array[tuple(slice(size) for size in shape)]
