"""Hands shards to workers, one at a time; a lost worker is replaced, and its shard spoken again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from melforge.common.bulk.shards import Shard, ShardReport
from melforge.common.errors import InputError

MOST_FAILURES = 3  # of workers in a row without a finished shard, or of one shard

W = TypeVar("W")


class WorkerLost(Exception):
    """A worker died without an answer; the message says how."""


class Crew(Protocol, Generic[W]):
    """Starts workers and receives their answers: processes of this machine, or Ray's actors."""

    def begin(self) -> W:
        """Starts a worker, which loads its models."""
        ...

    def give(self, worker: W, shard: Shard) -> None:
        """Gives a shard to a worker that has loaded its models and is idle."""
        ...

    def wait(self) -> tuple[W, ShardReport | Exception | None]:
        """The next news: None (models are loaded), a report, WorkerLost, or what the worker raised."""
        ...

    def end(self) -> None:
        """Kills all workers."""
        ...


def feed(crew: Crew[W], count: int, shards: Iterable[Shard]) -> Iterator[ShardReport]:
    """The shards' reports as they come, from `count` workers; raises what a worker raises, after ending all.

    An InputError if workers are lost again and again.
    """
    given: dict[W, Shard | None] = {}  # None: it loads its models
    idle: list[W] = []
    again: list[Shard] = []
    lost: Counter[int] = Counter()
    failures = 0
    waiting = iter(shards)

    try:
        for _, shard in zip(range(count), waiting, strict=False):  # no more workers than shards
            again.append(shard)
            given[crew.begin()] = None
        # A worker that still loads, or for which a cluster has no room yet, is not waited for in the end.
        while again or any(given.values()):
            worker, outcome = crew.wait()
            if worker in idle:  # it is lost, with nothing to do
                idle.remove(worker)
            shard = given.pop(worker, None)
            if isinstance(outcome, WorkerLost):
                failures += 1
                number = -1 if shard is None else shard.number
                lost[number] += number >= 0
                if MOST_FAILURES in (failures, lost[number]):
                    raise InputError(
                        f"workers were lost {MOST_FAILURES} times, at last because {outcome}: if memory is "
                        "short, give fewer --workers or --workers-per-gpu. What was spoken stays; the same "
                        "command speaks the rest"
                    )
                if shard is not None:
                    again.append(shard)
                if not idle:
                    given[crew.begin()] = None
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                idle.append(worker)
                if outcome is not None:
                    failures = 0
                    yield outcome
            while idle and (shard := again.pop(0) if again else next(waiting, None)) is not None:
                given[idle[0]] = shard
                crew.give(idle.pop(0), shard)
    finally:
        crew.end()
