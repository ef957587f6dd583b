"""Workers of one machine: processes with models of their own, or the calling one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from melforge.common.bulk.feed import WorkerLost, feed
from melforge.common.bulk.folder import RunFolder
from melforge.common.bulk.shards import BulkSettings, Shard, ShardReport, ShardSpeaker
from melforge.common.processes import end_with_parent
from melforge.common.synthesis.places import WorkerPlace


def speak_here(
    speech: BulkSettings, folder: RunFolder, shards: Iterable[Shard], places: Sequence[WorkerPlace]
) -> Iterator[ShardReport]:
    """The shards' reports as they are finished, of a worker in each place; a single one that has its device
    for itself is the calling process.
    """
    if len(places) > 1 or places[0].share < 1:
        yield from feed(Processes(speech, folder, places), len(places), shards)
        return
    speaker = None
    for shard in shards:
        speaker = speaker or ShardSpeaker(speech, folder)
        yield speaker.speak(shard)


class Processes:
    """A `Crew` of processes. They die with the process that started them, however it ends."""

    def __init__(self, speech: BulkSettings, folder: RunFolder, places: Sequence[WorkerPlace]):
        self._given = speech, folder
        self._free = list(places)
        self._running: dict[SpawnProcess, Connection] = {}
        self._places: dict[SpawnProcess, WorkerPlace] = {}

    def begin(self) -> SpawnProcess:
        context = get_context("spawn")
        mine, theirs = context.Pipe()
        place = self._free.pop(0)
        process = context.Process(target=_work, args=(*self._given, place, theirs), daemon=True)
        process.start()
        theirs.close()
        self._running[process], self._places[process] = mine, place
        return process

    def give(self, worker: SpawnProcess, shard: Shard) -> None:
        with suppress(OSError):  # it has died: `wait` will tell
            self._running[worker].send(shard)

    def wait(self) -> tuple[SpawnProcess, ShardReport | Exception | None]:
        while True:
            wait([*self._running.values()])  # a pipe whose other end is gone is ready too
            for process, link in self._running.items():
                if not link.poll():
                    continue
                try:
                    return process, link.recv()
                except (EOFError, OSError):
                    process.join()
                    del self._running[process]
                    place = self._places.pop(process)
                    self._free.append(place)
                    how = f"a process on {place.device} ended with status {process.exitcode}"
                    return process, WorkerLost(how)

    def end(self) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.join()


def _work(speech: BulkSettings, folder: RunFolder, place: WorkerPlace, link: Connection) -> None:
    """Runs in a worker process: loads the models, then speaks one shard after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent
    end_with_parent(signal.SIGKILL)
    try:
        models = {**speech.models, "device": place.claim()}
        speaker = ShardSpeaker(replace(speech, models=models), folder)
        link.send(None)
        while True:
            shard = link.recv()
            try:
                report = speaker.speak(shard)
            except (
                RuntimeError
            ) as error:  # as after a GPU's fault, where nothing runs in this process any more
                print(f"a worker on {place.device} failed: {error}", file=sys.stderr)
                raise SystemExit(1) from None
            link.send(report)
    except EOFError:
        pass
    except Exception as error:
        with suppress(OSError):  # the run has gone, which may be the error itself
            link.send(error)
