"""The one scheduler: texts become jobs, whose steps few worker threads make in the order of playback.

A step is a chunk of audio, encoded. The next one is that of the job whose listener runs dry first: a short
text is not stuck behind a book, and a listener who has enough waits. One who falls far behind is paused.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

# Seconds from arrival to the first sound, as far as the order goes, and before it runs dry that a listener
# should have the next chunk.
TARGET, MARGIN = 0.1, 0.25


class Chunks(Protocol):
    """What makes a text's audio, float32 (S,) at a time: a `Stream`, or a generator."""

    def __iter__(self) -> Iterator[np.ndarray]: ...
    def __next__(self) -> np.ndarray: ...
    def close(self) -> None: ...


class Encoder(Protocol):
    """Samples in, bytes out: `WireEncoder`."""

    content_type: str

    def write(self, samples: np.ndarray) -> bytes: ...
    def close(self) -> bytes: ...
    def discard(self) -> None: ...


class Hanging(Exception):
    """A step has taken so long that its worker was given up."""


class Cancelled(Exception):
    """The job was ended before its time."""


@dataclass
class Progress:
    """A job's course in seconds of the clock, and of audio."""

    arrived: float
    started: float | None = None  # a worker has begun with it
    first_audio: float | None = None  # its first bytes are there
    ended: float | None = None
    made: float = 0.0  # audio
    taken: float = 0.0  # audio that its listener took
    dry: float = 0.0  # that a listener who plays it from the first sound on was without audio
    underruns: int = 0


@dataclass(eq=False)
class Job:
    """One text on its way to one listener; `chunks` are float32 samples (S,) at `rate` Hz.

    Iterating over it gives bytes as they come. What its chunks raise, the iteration raises.
    """

    chunks: Chunks
    encoder: Encoder
    rate: int
    progress: Progress
    scheduler: Scheduler
    cancelled: bool = False
    busy: bool = False  # a worker or an encoding thread has it
    parked: bool = False
    error: BaseException | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _unsent: deque[tuple[bytes, float]] = field(default_factory=deque)  # with seconds of audio
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _taking: float = 0.0

    @property
    def deadline(self) -> float:
        """When its listener should have more."""
        progress = self.progress
        if not progress.made:
            return progress.arrived + TARGET
        return (progress.first_audio or progress.started or progress.arrived) + progress.made - MARGIN

    def __aiter__(self) -> Job:
        return self

    async def __anext__(self) -> bytes:
        """All that was made since the last call; what the last call gave counts as taken."""
        self.scheduler.take(self, self._taking)
        self._taking = 0.0
        while not self._unsent:
            if self.error is not None:
                raise self.error
            if self.progress.ended is not None:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        parts = list(self._unsent)
        self._unsent.clear()
        self._taking = sum(seconds for _, seconds in parts)
        return b"".join(data for data, _ in parts)

    def cancel(self) -> None:
        """Ends the work within a step. For a job that has ended it does nothing."""
        self.scheduler.cancel(self)

    def deliver(self, data: bytes, seconds: float, ended: float | None, error: BaseException | None) -> None:
        """In the loop's thread."""
        if data:
            self._unsent.append((data, seconds))
        self.error = error
        self.progress.ended = ended
        self._news.set()


class Scheduler:
    """Jobs and the threads that work on them.

    `encoders` encodes audio beside the workers: where one thread owns a GPU, it should do nothing else.
    """

    def __init__(
        self,
        workers: int,
        ahead: float,
        encoders: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_step: Callable[[float], object] | None = None,
    ):
        self.ahead, self.clock = ahead, clock
        self._encoders, self._on_step = encoders, on_step
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, Job]] = []  # those that are neither busy nor parked
        self._numbers = itertools.count()
        self._jobs: set[Job] = set()  # that have not ended
        self._stopping = False
        self._steps: dict[int, tuple[float, Job]] = {}  # by worker: when its step began, and whose it is
        self._workers = itertools.count()
        self._threads: list[threading.Thread] = []
        for _ in range(workers):
            self._add_worker()

    @property
    def jobs(self) -> int:
        return len(self._jobs)

    @property
    def waiting(self) -> int:
        """Jobs that no step was made of yet."""
        with self._changed:
            return sum(job.progress.started is None for job in self._jobs)

    def submit(self, chunks: Chunks, encoder: Encoder, rate: int, arrived: float | None = None) -> Job:
        """In an event loop, where the job can be iterated over."""
        progress = Progress(self.clock() if arrived is None else arrived)
        job = Job(chunks, encoder, rate, progress, self)
        with self._changed:
            self._jobs.add(job)
            self._push(job)
        return job

    def cancel(self, job: Job) -> None:
        with self._changed:
            if job not in self._jobs or job.cancelled:
                return
            job.cancelled = True
            if job.busy:
                return  # whoever has it ends it
        self._end(job, None)

    def take(self, job: Job, seconds: float) -> None:
        """Notes that a listener took so much audio; a parked job goes on."""
        job.progress.taken += seconds
        with self._changed:
            if job.parked and not self._is_ahead(job):
                job.parked = False
                self._push(job)

    def slowest_step(self) -> float:
        """Seconds since the beginning of the step that has taken longest so far."""
        begun = [begun for begun, _ in list(self._steps.values())]
        return self.clock() - min(begun) if begun else 0.0

    def replace_hanging(self, seconds: float) -> int:
        """Gives up workers that have been at a step for longer: their jobs end, and others take over.

        A thread cannot be ended: it stays until its step returns, if it does. How many were given up.
        """
        with self._changed:
            oldest = self.clock() - seconds
            hanging = {n: job for n, (begun, job) in self._steps.items() if begun < oldest}
            for number, job in hanging.items():
                del self._steps[number]
                job.cancelled = True
        for job in hanging.values():
            self._add_worker()
            self._end(job, Hanging(f"a step took more than {seconds:g} seconds"), close=False)
        return len(hanging)

    def stop(self) -> None:
        """Cancels all jobs and lets the workers end after their steps."""
        with self._changed:
            self._stopping = True
            jobs = list(self._jobs)
            self._changed.notify_all()
        for job in jobs:
            job.cancel()

    def join(self, seconds: float) -> None:
        """Waits for the workers to end, after `stop`."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _add_worker(self) -> None:
        number = next(self._workers)
        thread = threading.Thread(target=self._work, args=(number,), name=f"speech-{number}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _push(self, job: Job) -> None:
        heapq.heappush(self._queue, (job.deadline, next(self._numbers), job))
        self._changed.notify()

    def _is_ahead(self, job: Job) -> bool:
        return job.progress.made - job.progress.taken > self.ahead

    def _next_job(self) -> Job | None:
        """The most urgent job, waiting for one; None when it is time to end."""
        with self._changed:
            while True:
                while self._queue:
                    _, _, job = heapq.heappop(self._queue)
                    if not job.cancelled:
                        job.busy = True
                        return job
                if self._stopping:
                    return None
                self._changed.wait()

    def _work(self, number: int) -> None:
        while (job := self._next_job()) is not None:
            begun = self.clock()
            with self._changed:
                self._steps[number] = (begun, job)
            if job.progress.started is None:
                job.progress.started = begun
            try:
                samples = next(job.chunks, None)
            except Exception as error:
                self._end(job, error)
            else:
                if self._on_step:
                    self._on_step(self.clock() - begun)
                if self._encoders is None:
                    self._encode(job, samples)
                else:
                    self._encoders.submit(self._encode, job, samples)
            with self._changed:
                if self._steps.pop(number, None) is None:
                    return  # given up: another worker is in this one's place

    def _encode(self, job: Job, samples: np.ndarray | None) -> None:
        """Sends a chunk on its way; None: there are no more."""
        if job.cancelled:
            self._end(job, None)
            return
        try:
            data = job.encoder.close() if samples is None else job.encoder.write(samples)
        except Exception as error:
            self._end(job, error)
            return
        seconds = 0.0 if samples is None else len(samples) / job.rate
        self._note(job.progress, seconds, bool(data))
        if samples is None:
            self._end(job, None, data)
            return
        self._deliver(job, data, seconds)
        with self._changed:
            job.busy = False
            if not job.cancelled:
                job.parked = self._is_ahead(job)
                if not job.parked:
                    self._push(job)
        if job.cancelled:
            self._end(job, None)

    def _note(self, progress: Progress, seconds: float, sent: bool) -> None:
        """A chunk is there: when the first came, and how long a listener waited for this one."""
        now = self.clock()
        if progress.first_audio is not None:
            late = now - (progress.first_audio + progress.made + progress.dry)
            if seconds and late > 0:
                progress.dry += late
                progress.underruns += 1
        elif sent:
            progress.first_audio = now
        progress.made += seconds

    def _end(self, job: Job, error: BaseException | None, rest: bytes = b"", close: bool = True) -> None:
        with self._changed:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
            self._changed.notify_all()
        if close and (error is not None or job.cancelled):
            job.chunks.close()
            job.encoder.discard()
            error = error or Cancelled()
        self._deliver(job, rest, 0.0, self.clock(), error)

    def _deliver(
        self,
        job: Job,
        data: bytes,
        seconds: float,
        ended: float | None = None,
        error: BaseException | None = None,
    ) -> None:
        try:
            job._loop.call_soon_threadsafe(job.deliver, data, seconds, ended, error)
        except RuntimeError:  # the loop is closed: nobody listens
            job.cancelled = True
