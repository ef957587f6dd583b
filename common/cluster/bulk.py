"""Shards on Ray: actors that hold the models, each given one shard at a time.

Not on Ray Data: it cuts blocks, and so files, by what the cluster is like, and a run that was killed does not
say which rows are on disk. Here a shard is the unit of work, of what is lost and of what is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from melforge.common.bulk.feed import WorkerLost, feed
from melforge.common.bulk.folder import RunFolder
from melforge.common.bulk.shards import BulkSettings, Shard, ShardReport, ShardSpeaker
from melforge.common.cluster.connect import connected
from melforge.common.errors import InputError

PATIENCE = 30.0  # seconds without news after which the user is told what is missing


@dataclass(frozen=True)
class Share:
    """The resources of a worker, and the number of workers (None: as many as there is room for)."""

    cpus: int = 1
    gpus: float | None = None  # None: one where the cluster has GPUs
    workers: int | None = None

    def of(self, resources: dict[str, float]) -> tuple[int, float]:
        """The number of workers, and the GPUs of each; an InputError if the cluster has no room for one."""
        cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
        each = (1.0 if gpus else 0.0) if self.gpus is None else self.gpus
        room = int(min(cpus / self.cpus, gpus / each if each else cpus))
        if room < 1 and self.workers is None:
            has = f"the cluster has {cpus:g} CPUs and {gpus:g} GPUs"
            raise InputError(f"{has}, and a worker takes {self.cpus} and {each:g}: give --gpus-per-worker")
        return self.workers or room, each


def speak_on_ray(
    speech: BulkSettings, folder: RunFolder, shards: Iterable[Shard], address: str, share: Share
) -> Iterator[ShardReport]:
    """The shards' reports as they are finished. All machines see the folder by the same path or address."""
    with connected(address) as ray:
        workers, gpus = share.of(ray.cluster_resources())
        folder = replace(folder, path=folder.path.resolve())
        yield from feed(Actors(ray, speech, folder, share.cpus, gpus), workers, shards)


class Worker:
    """A Ray actor. Its models are loaded by a call, so that errors come as answers."""

    def __init__(self, speech: BulkSettings, folder: RunFolder):
        self._given = speech, folder
        self._speaker: ShardSpeaker | None = None

    def load(self) -> None:
        self._speaker = ShardSpeaker(*self._given)

    def speak(self, shard: Shard) -> ShardReport:
        assert self._speaker is not None
        return self._speaker.speak(shard)


class Actors:
    """A `Crew` of Ray's actors, by numbers."""

    def __init__(self, ray: Any, speech: BulkSettings, folder: RunFolder, cpus: int, gpus: float):
        self._ray = ray
        self._remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0)(Worker)
        self._given = ray.put(speech), folder
        self._running: dict[int, Any] = {}
        self._expected: dict[Any, int] = {}  # by the reference of an answer
        self._begun = 0

    def begin(self) -> int:
        self._begun += 1
        self._running[self._begun] = self._remote.remote(*self._given)
        self._expected[self._running[self._begun].load.remote()] = self._begun
        return self._begun

    def give(self, worker: int, shard: Shard) -> None:
        self._expected[self._running[worker].speak.remote(shard)] = worker

    def wait(self) -> tuple[int, ShardReport | Exception | None]:
        while not (ready := self._ray.wait(list(self._expected), timeout=PATIENCE)[0]):
            if len(self._expected) == self._begun == len(self._running):
                print("no worker has begun yet: the cluster may have no room for one", file=sys.stderr)
        worker = self._expected.pop(ready[0])
        try:
            return worker, self._ray.get(ready[0])
        except self._ray.exceptions.RayTaskError as error:
            return worker, error.cause if isinstance(error.cause, Exception) else error
        except self._ray.exceptions.RayError as error:
            del self._running[worker]
            return worker, WorkerLost(str(error).partition("\n")[0])

    def end(self) -> None:
        for actor in self._running.values():
            self._ray.kill(actor)
