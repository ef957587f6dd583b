"""An engine around another one, for what watches or changes its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.arrays import Array
from common.config.deployment import Bucket
from common.engines import Engine, Run


class WrappedEngine(Engine):
    """Every ability is the inner engine's. Subclasses override the calls that they watch or change."""

    def __init__(self, inner: Engine):
        self.inner = inner
        self.stage, self.backend, self.device = inner.stage, inner.backend, inner.device
        self.memory_owner = inner.memory_owner
        self.attends_to_padding = inner.attends_to_padding
        self.can_be_captured, self.can_be_repeated = inner.can_be_captured, inner.can_be_repeated
        self.buckets, self.length_regulator = inner.buckets, inner.length_regulator

    @property
    def memory_bytes(self) -> int:
        return self.inner.memory_bytes

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return self.inner(**inputs)

    def capturable(self, bucket: Bucket | None = None) -> Run:
        return self.inner.capturable(bucket)

    def repeated(
        self,
        fixed: Mapping[str, Array],
        state: Mapping[str, Array],
        noise: str,
        steps: int,
        kept: Sequence[str],
    ) -> Callable[[Array], dict[str, Array]]:
        return self.inner.repeated(fixed, state, noise, steps, kept)

    def covering(self, text: int = 0, mel: int = 0) -> Bucket | None:
        return self.inner.covering(text, mel)

    def count_call(self, bucket: Bucket, batch: int, valid: Array) -> None:
        self.inner.count_call(bucket, batch, valid)

    def count_miss(self, bucket: Bucket | None = None) -> None:
        self.inner.count_miss(bucket)

    def count_padding(self, bucket: Bucket, steps: int) -> None:
        self.inner.count_padding(bucket, steps)

    def count_anew(self) -> None:
        self.inner.count_anew()

    def report(self) -> list[dict[str, Any]]:
        return self.inner.report()
