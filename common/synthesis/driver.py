"""What drivers share: a driver runs a model's stages on whatever engines it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from melforge.common.config.deployment import Bucket
from melforge.common.engines import Engine
from melforge.common.registry import load_attribute
from melforge.common.speech import Controls
from melforge.common.stages import plan_of
from melforge.common.stages.choose import KERNELS
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource

Config = TypeVar("Config")


@dataclass(frozen=True)
class WarmUp:
    """A run beside those of single stages that should come before anybody waits for it."""

    what: str
    lengths: str
    run: Callable[[], object]


class Driver(ABC, Generic[Config]):
    """One model on its engines."""

    def __init__(self, source: ModelSource, engines: StageEngines):
        self.source = source
        self.config: Config = source.config
        self.engines = engines

    @property
    def controls(self) -> frozenset[str]:
        """The controls that change something."""
        return self.source.controls

    @property
    @abstractmethod
    def batch_safe(self) -> bool:
        """Whether an item of a padded batch equals the same item alone."""

    @property
    @abstractmethod
    def prefers_batches(self) -> bool:
        """Whether the items of a batch equal those alone, and take less time than one by one."""

    def padded_batch(self, items: int) -> int:
        """The batch size that is run for this many items, rounded up so that few CUDA graphs are captured."""
        return 1 << (items - 1).bit_length() if self.engines.on_kernels else items

    def batch_key(self, controls: Controls) -> Hashable:
        """What the items of a batch must have in common, of their controls: the rest may differ."""
        return None

    def kernel_between(self, name: str, *engines: Engine) -> Any | None:
        """What the model's `StagePlan.between` has under this name, where all these engines are kernels'."""
        path = plan_of(self.source.model).between.get(name)
        if path is None or any(engine.backend != KERNELS for engine in engines):
            return None
        return load_attribute(path)(engines[0].device)

    @property
    def captures_all(self) -> bool:
        """Whether its stages never run one by one on kernels, but as CUDA graphs of several."""
        return False

    @abstractmethod
    def takes(self, batch: int, bucket: Bucket | None) -> bool:
        """Whether such a batch may come, of items as long as a bucket's."""

    def warm_ups(self, bucket: Bucket | None, batch: int) -> Iterator[WarmUp]:
        """What this driver runs beside single stages, in a bucket or at typical lengths."""
        return iter(())


def bucket_for(engine: Engine, text: int = 0, mel: int = 0) -> Bucket:
    """The smallest of the engine's buckets for lengths that were checked to have one."""
    bucket = engine.buckets and engine.buckets.covering(text=text, mel=mel)
    assert bucket, f"{engine.stage.full_name} has no bucket for {text} symbols and {mel} frames"
    return bucket
