"""The fixed lengths of an engine, and how much each is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from melforge.common.arrays import Array
from melforge.common.config.deployment import Bucket
from melforge.common.stages import Stage, bucket_roots


@dataclass
class BucketUse:
    """How much one bucket of one stage was used."""

    calls: int = 0
    steps: int = 0  # computed: symbols and frames of all items
    valid: Array = 0  # of these steps, those within an item; a GPU's tensor until it is reported
    misses: int = 0  # calls for which this bucket, chosen first, or as the largest, was too small
    loads: int = 0

    @property
    def waste(self) -> float:
        return 1 - int(self.valid) / self.steps if self.steps else 0.0


class CountedBuckets:
    """A stage's buckets in ascending order, and the use of each. `is_loaded` says whose engine is there."""

    def __init__(self, stage: Stage, buckets: Sequence[Bucket], is_loaded: Callable[[Bucket], bool]):
        self._stage, self._is_loaded = stage, is_loaded
        self.uses = {bucket: BucketUse() for bucket in buckets}

    @property
    def largest(self) -> Bucket:
        return list(self.uses)[-1]

    def covering(self, text: int = 0, mel: int = 0) -> Bucket | None:
        """The smallest for so many symbols and frames, 0 where a stage has none of them; None: no bucket."""
        return next((b for b in self.uses if (b.text or text) >= text and b.mel >= mel), None)

    def count_call(self, bucket: Bucket, batch: int, valid: Array) -> None:
        """Notes a call on this bucket, of which so many symbols and frames were within an item."""
        use = self.uses[bucket]
        use.calls += 1
        use.steps += batch * sum(getattr(bucket, name) for name in bucket_roots(self._stage))
        use.valid += valid

    def count_miss(self, bucket: Bucket | None = None) -> None:
        """Notes that this bucket, or without one the largest, was too small."""
        self.uses[bucket or self.largest].misses += 1

    def count_padding(self, bucket: Bucket, steps: int) -> None:
        """Notes that so many of the computed steps were padding, where only the caller knows it."""
        self.uses[bucket].valid -= steps

    def count_anew(self) -> None:
        """Forgets the calls so far, as those of a warm-up; what was loaded is still there."""
        self.uses = {bucket: BucketUse(loads=use.loads) for bucket, use in self.uses.items()}

    def report(self) -> list[dict[str, Any]]:
        """A row for each bucket: its calls, misses, loads and waste."""
        return [
            {
                "stage": self._stage.full_name,
                "bucket": str(bucket),
                **asdict(use),
                "valid": int(use.valid),
                "waste": use.waste,
                "loaded": self._is_loaded(bucket),
            }
            for bucket, use in self.uses.items()
        ]
