"""The scheduler: each text is a job, and a few worker threads make the jobs' chunks in the order of playback.

A step makes and encodes one chunk of audio. The next step belongs to the job whose listener will run out of
audio first, so a short text does not wait for a book, and a listener who has enough audio waits. A chunk is
the longer the more time there is before another listener is due. The job of a listener who falls far behind
is paused. Starters are steps beyond one a worker, for first chunks alone, and not those of books, so that a
text need not wait for long chunks of others to end; whichever thread is free takes them. First chunks are
made before others' work if the system allows it. Where models gain by it, a worker computes the next chunks
of several jobs together.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from melforge.common.serve.priority import hurrying

LOG = logging.getLogger("melforge.serve")
# Deadlines, in seconds: from a job's arrival to its first sound, and how long before a listener runs out of
# audio the next chunk should be there.
TARGET, MARGIN = 0.1, 0.35
# Seconds from a job's arrival for which its first sound waits for listeners who would hear a gap.
PATIENCE = 2.0
LONG = 1000  # characters of a text that starters leave to the workers: nobody is in a hurry for a book
SHORTER = 4  # a text so many times shorter than another need not wait for it
MEMORY = 0.9  # of a step's weight beside the next one's, in `Pace`


class SpeechChunks(Protocol):
    """What makes a text's audio, float32 (S,) at a time: a `Stream`, or a generator.

    Where it has a flag `ended`, this says after a chunk whether it was the last. Where it has a method
    `stretch`, this is given before each chunk what tells how many seconds of audio it may have.
    """

    def __iter__(self) -> Iterator[np.ndarray]: ...
    def __next__(self) -> np.ndarray: ...
    def close(self) -> None: ...


class AudioEncoder(Protocol):
    """Samples in, bytes out: `WireEncoder`."""

    content_type: str
    head_comes_last: bool
    head: bytes

    def write(self, samples: np.ndarray) -> bytes: ...
    def close(self) -> bytes: ...
    def discard(self) -> None: ...


@dataclass(frozen=True)
class Batches:
    """How the next chunks of up to `largest` jobs are computed together.

    If that fails, each job's chunk is computed alone, so that a job only fails by its own fault.
    """

    key: Callable[[Any], Hashable | None]  # of a job's chunks; alike: together; None: alone
    make_ahead: Callable[[Sequence[Any]], None]  # computes what `next` of each of them gives then
    largest: int


class Hanging(Exception):
    """A step took so long that its worker was abandoned."""


class Cancelled(Exception):
    """The job was cancelled before it was complete."""


@dataclass
class JobProgress:
    """A job's course in seconds of the clock, and of audio."""

    arrived: float
    started: float | None = None  # a worker has begun with it
    first_audio: float | None = None  # its first bytes are there
    ended: float | None = None
    made: float = 0.0  # audio
    taken: float = 0.0  # audio that its listener took
    dry: float = 0.0  # seconds of silence for a listener who plays from the first sound on
    underruns: int = 0
    paused: float = 0.0  # seconds in which audio was there that the listener did not take

    @property
    def runs_dry(self) -> float:
        """When who plays from the first sound on has heard all that was made."""
        begun = self.first_audio or self.started or self.arrived
        return begun + self.made + self.dry + self.paused


OnEnd = Callable[[JobProgress, BaseException | None, Callable[[], None]], None]


@dataclass(eq=False)
class SpeechJob:
    """One text being spoken for one listener; `chunks` are float32 samples (S,) at `rate` Hz, `length` is the
    text's.

    Iterating over it gives bytes as they come. What its chunks raise, the iteration raises.
    """

    chunks: SpeechChunks
    encoder: AudioEncoder
    rate: int
    progress: JobProgress
    scheduler: Scheduler
    length: int = 0
    ahead: float = math.inf  # seconds of audio that may wait for its listener before it is paused
    whole: bool = False  # its listener hears nothing before its end, so cannot run dry
    on_end: OnEnd | None = None
    cancelled: bool = False
    busy: bool = False  # a worker or an encoding thread has it
    parked: bool = False
    error: BaseException | None = None
    complete: asyncio.Event = field(default_factory=asyncio.Event)  # nothing more will be made
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _unsent: deque[tuple[bytes, float]] = field(default_factory=deque)  # with seconds of audio
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _taking: float = 0.0

    @property
    def deadline(self) -> float:
        """When its listener should have more audio."""
        progress = self.progress
        return progress.runs_dry - MARGIN if progress.made else progress.arrived + TARGET

    def half_way(self, now: float) -> float:
        """To when its listener runs dry, or the deadline of its first sound."""
        return (now + self.progress.runs_dry) / 2 if self.progress.made else self.deadline

    @property
    def for_starters(self) -> bool:
        return not (self.progress.made or self.whole) and self.length <= LONG

    def __aiter__(self) -> SpeechJob:
        return self

    async def __anext__(self) -> bytes:
        """Everything made since the last call; what that call returned counts as taken now."""
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
        """Stops the work after the current step; does nothing for a job that has ended."""
        self.scheduler.cancel(self)

    def deliver(self, data: bytes, seconds: float, ended: float | None, error: BaseException | None) -> None:
        """In the loop's thread."""
        if data:
            self._unsent.append((data, seconds))
        else:  # the encoder holds the audio back, so its listener cannot be behind
            self.scheduler.take(self, seconds)
        self.error = error
        self.progress.ended = ended
        if ended is not None:
            self.complete.set()
        self._news.set()


Waiting = tuple[float, int, SpeechJob]  # its deadline, and a number by which equal ones are in order


@dataclass(frozen=True)
class Step:
    """A worker's current step: when it began, the jobs whose chunks it makes, and those next in line."""

    begun: float
    starts: bool  # it is one more than there are workers, for a first chunk
    jobs: Sequence[SpeechJob]
    next_jobs: Sequence[SpeechJob] = ()


class Pace(NamedTuple):
    """The last steps, of which the latest count most: how many, the seconds that they took, and of audio."""

    steps: float = 0.0
    seconds: float = 0.0
    audio: float = 0.0

    def and_one(self, *step: float) -> Pace:
        return Pace(*(MEMORY * old + new for old, new in zip(self, step, strict=True)))


class Scheduler:
    """Jobs and the threads that work on them.

    There are as many steps at a time as `workers`, and as `starters` further ones, for first chunks alone.
    `encoders` further threads encode the audio, so that a worker that owns a GPU does nothing else. `on_step`
    is called with the seconds that each chunk took; the time of a batch is divided evenly.
    """

    def __init__(
        self,
        workers: int,
        ahead: float,
        encoders: int = 0,
        clock: Callable[[], float] = time.monotonic,
        on_step: Callable[[float], object] | None = None,
        batches: Batches | None = None,
        starters: int = 0,
    ):
        self.workers, self.ahead, self.clock = workers, ahead, clock
        self._on_step, self._batches, self._starters = on_step, batches, starters
        self._changed = threading.Condition()
        self._queue: list[Waiting] = []  # jobs that are neither busy nor parked
        self._numbers = itertools.count()
        self._jobs: set[SpeechJob] = set()  # not ended yet
        self._stopping = False
        self._steps: dict[int, Step] = {}  # by worker
        self._let_pass = False  # whether the last step was a short text's out of turn
        self._pace = Pace()
        self._workers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._working = 0  # workers that have not ended
        # Chunks for the encoders, each with whether it is the last; None ends these.
        self._made: queue.SimpleQueue[tuple[SpeechJob, np.ndarray | None, bool] | None] = queue.SimpleQueue()
        self._encoders = encoders
        for _ in range(workers + starters):
            self._add_worker()
        for number in range(encoders):
            self._add_thread(f"encode-{number}", self._encode_made)

    @property
    def jobs(self) -> int:
        return len(self._jobs)

    @property
    def waiting(self) -> int:
        """Jobs that no worker has begun yet."""
        with self._changed:
            return sum(job.progress.started is None for job in self._jobs)

    def submit(
        self,
        chunks: SpeechChunks,
        encoder: AudioEncoder,
        rate: int,
        arrived: float | None = None,
        length: int = 0,
        ahead: float | None = None,
        whole: bool = False,
        on_end: OnEnd | None = None,
    ) -> SpeechJob:
        """Adds a job; call it in the event loop that will iterate over the job.

        `on_end` is called in any thread when all of the job is made, or nothing more will be, with its error:
        its end reaches the listener when the function that it is given is called.
        """
        progress = JobProgress(self.clock() if arrived is None else arrived)
        ahead = self.ahead if ahead is None else ahead
        job = SpeechJob(chunks, encoder, rate, progress, self, length, ahead, whole, on_end)
        with self._changed:
            self._jobs.add(job)
            self._push(job)
        return job

    def cancel(self, job: SpeechJob) -> None:
        with self._changed:
            if job not in self._jobs or job.cancelled:
                return
            job.cancelled = True
            if job.busy:
                return  # the thread that has it ends it
        self._end(job, None)

    def take(self, job: SpeechJob, seconds: float) -> None:
        """Records that a listener took `seconds` of audio; a paused job may go on."""
        progress = job.progress
        progress.taken += seconds
        with self._changed:
            if job.parked and not self._is_ahead(job):
                job.parked = False
                # It has heard no more than it took.
                progress.paused += max(0.0, self.clock() - progress.runs_dry + progress.made - progress.taken)
                self._push(job)

    def slowest_step(self) -> float:
        """Seconds that the longest-running step has taken so far."""
        begun = [step.begun for step in list(self._steps.values())]
        return self.clock() - min(begun) if begun else 0.0

    def replace_hanging(self, seconds: float) -> int:
        """Abandons workers whose step has taken longer: its jobs end, and new workers take over.

        A thread cannot be killed: it stays until its step returns, if ever. Returns how many were abandoned.
        """
        with self._changed:
            oldest = self.clock() - seconds
            hanging = {number: step for number, step in self._steps.items() if step.begun < oldest}
            for number, step in hanging.items():
                del self._steps[number]
                for job in step.jobs:
                    job.cancelled = True
                for job in step.next_jobs:
                    job.busy = False
                    self._push(job)
        for step in hanging.values():
            self._add_worker()
            for job in step.jobs:
                self._end(job, Hanging(f"a step took more than {seconds:g} seconds"), close=False)
            for job in step.next_jobs:
                if job.cancelled:
                    self._end(job, None)
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
        """Waits for the threads to end, after `stop`."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _add_worker(self) -> None:
        number = next(self._workers)
        with self._changed:
            self._working += 1
        self._add_thread(f"speech-{number}", self._work, number)

    def _add_thread(self, name: str, run: Callable[..., object], *arguments: int) -> None:
        thread = threading.Thread(target=run, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _push(self, job: SpeechJob) -> None:
        self._queue.append((job.deadline, next(self._numbers), job))
        self._changed.notify()

    def _is_ahead(self, job: SpeechJob) -> bool:
        return job.progress.made - job.progress.taken > job.ahead

    def _next_jobs(self, number: int) -> list[SpeechJob]:
        """Waits for the most urgent job; a worker gets it with those whose next chunks are made with its own.

        The list is empty when it is time to stop.
        """
        with self._changed:
            while True:
                starting = sum(step.starts for step in self._steps.values())
                starts = starting < self._starters and any(job.for_starters for _, _, job in self._queue)
                idle = self.workers - len(self._steps) + starting - (not starts)  # beside this one
                if idle >= 0 and (job := self._pop(starts)):
                    if job.cancelled:
                        continue
                    jobs = [job, *self._companions(job, idle)]
                    for one in jobs:
                        one.busy = True
                    self._steps[number] = Step(self.clock(), starts, jobs)
                    return jobs
                if self._stopping:
                    return []
                self._changed.wait()

    def _pop(self, starts: bool) -> SpeechJob | None:
        """Takes the most urgent job from the queue; every other time a much shorter text without a sound.

        Many long texts whose listeners are late would keep that one waiting. `starts`: only what is for
        starters.
        """
        now = self.clock()

        def urgency(entry: Waiting) -> tuple[float, Waiting]:
            deadline, _, job = entry
            if not job.progress.made:  # who has heard nothing hears no gap
                deadline = max(deadline, min(now, job.progress.arrived + PATIENCE))
            return deadline, entry

        if starts:
            entry = min((one for one in self._queue if one[2].for_starters), default=None)
        elif entry := min(self._queue, key=urgency, default=None):
            longest = -1 if self._let_pass else entry[2].length // SHORTER
            short = [one for one in self._queue if not one[2].progress.made and one[2].length < longest]
            self._let_pass = bool(short)
            entry = min(short, default=entry)
        if entry is None:
            return None
        self._queue.remove(entry)
        return entry[2]

    def _time_for(self, job: SpeechJob) -> float:
        """Seconds of audio that the job's next chunk may have.

        A first chunk should last until the job's next turn. For another there is time until the job's own
        listener runs dry, or until the workers must turn to those who wait: half of it, as a step may take
        longer than the last ones.
        """
        pace, now = self._pace, self.clock()
        if not (pace.audio and pace.seconds):
            return 0.0
        with self._changed:
            waiting = sorted(
                one.half_way(now)
                for _, _, one in self._queue
                if not (one.cancelled or (self._starters and one.for_starters))  # who wait for no worker
            )
        step = pace.seconds / pace.steps
        if not job.progress.made:
            return (len(waiting) + self.workers) / self.workers * step
        due = (time - i // self.workers * step for i, time in enumerate(waiting))
        return (min([job.half_way(now), *due]) - now) * pace.audio / pace.seconds

    def _companions(self, job: SpeechJob, idle: int) -> list[SpeechJob]:
        """Takes from the queue the most urgent jobs that can share a step with this one.

        So many idle workers are left an equal share of them.
        """
        batches = self._batches
        if batches is None or batches.largest == 1 or (key := batches.key(job.chunks)) is None:
            return []
        alike = (
            entry
            for entry in sorted(self._queue)
            if not entry[2].cancelled and batches.key(entry[2].chunks) == key
        )
        found = list(itertools.islice(alike, batches.largest * (1 + idle) - 1))
        taken = found[: min(batches.largest, -(-(1 + len(found)) // (1 + idle))) - 1]
        if taken:
            numbers = {number for _, number, _ in taken}
            self._queue = [entry for entry in self._queue if entry[1] not in numbers]
        return [job for _, _, job in taken]

    def _work(self, number: int) -> None:
        with hurrying(True, bool(self._starters)) as hurries:  # and woken before others
            while jobs := self._next_jobs(number):
                with hurrying(False, hurries and not any(job.for_starters for job in jobs)):
                    goes_on = self._make_chunks(number, jobs)
                if not goes_on:
                    break  # abandoned: a replacement worker has taken over
        with self._changed:
            self._working -= 1
            if not self._working:
                self._made.put(None)

    def _make_chunks(self, number: int, jobs: Sequence[SpeechJob]) -> bool:
        """Makes one chunk of each job; False if this worker was abandoned meanwhile."""
        begun = self.clock()
        for job in jobs:
            if job.progress.started is None:
                job.progress.started = begun
        if self._batches and len(jobs) > 1:
            try:
                self._batches.make_ahead([job.chunks for job in jobs])
            except Exception:
                LOG.exception("a batch failed: each text is spoken alone")
            # First sounds first: they need not wait for the long chunks of others.
            jobs = sorted(jobs, key=lambda job: job.progress.made > 0)
        share = (self.clock() - begun) / max(len(jobs), 1)
        for i, job in enumerate(jobs):
            begun = self.clock()
            with self._changed:
                if number not in self._steps:
                    return False
                self._steps[number] = replace(
                    self._steps[number], begun=begun, jobs=[job], next_jobs=jobs[i + 1 :]
                )
            if job.cancelled:
                self._end(job, None)
                continue
            try:
                if stretch := getattr(job.chunks, "stretch", None):
                    stretch(functools.partial(self._time_for, job))
                samples = next(job.chunks, None)
            except Exception as error:
                self._end(job, error)
                continue
            if self._on_step:
                self._on_step(share + self.clock() - begun)
            is_last = samples is None or getattr(job.chunks, "ended", False)
            if is_last and samples is not None:
                job.chunks.close()  # breaks a reference cycle with its generator
            if self._encoders:
                self._made.put((job, samples, is_last))
            else:
                self._encode(job, samples, is_last)
            audio = 0.0 if samples is None else len(samples) / job.rate
            seconds = share + self.clock() - begun
            with self._changed:
                self._pace = self._pace.and_one(1.0, seconds, audio)
        with self._changed:
            return self._steps.pop(number, None) is not None

    def _encode_made(self) -> None:
        while made := self._made.get():
            self._encode(*made)
        self._made.put(None)  # for the next one

    def _encode(self, job: SpeechJob, samples: np.ndarray | None, is_last: bool) -> None:
        """Encodes and delivers a chunk; None: the one before was the last."""
        if job.cancelled:
            self._end(job, None)
            return
        try:
            data = b"" if samples is None else job.encoder.write(samples)
            if is_last:
                data += job.encoder.close()
        except Exception as error:
            self._end(job, error)
            return
        seconds = 0.0 if samples is None else len(samples) / job.rate
        self._note(job.progress, seconds, is_last if job.whole else bool(data))
        if is_last:
            self._end(job, None, data, seconds)
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

    def _note(self, progress: JobProgress, seconds: float, sent: bool) -> None:
        """Records when the first chunk came, and how long the listener had to wait for this one."""
        now = self.clock()
        if progress.first_audio is not None:
            late = now - progress.runs_dry
            if seconds and late > 0:
                progress.dry += late
                progress.underruns += 1
        elif sent:
            progress.first_audio = now
        progress.made += seconds

    def _end(
        self,
        job: SpeechJob,
        error: BaseException | None,
        rest: bytes = b"",
        seconds: float = 0.0,
        close: bool = True,
    ) -> None:
        with self._changed:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
            self._changed.notify_all()
        if close and (error is not None or job.cancelled):
            job.chunks.close()
            job.encoder.discard()
            error = error or Cancelled()
        deliver = functools.partial(self._deliver, job, rest, seconds, self.clock(), error)
        if job.on_end is None:
            deliver()
        else:
            job.on_end(job.progress, error, deliver)

    def _deliver(
        self,
        job: SpeechJob,
        data: bytes,
        seconds: float,
        ended: float | None = None,
        error: BaseException | None = None,
    ) -> None:
        try:
            job._loop.call_soon_threadsafe(job.deliver, data, seconds, ended, error)
        except RuntimeError:  # the loop is closed: nobody listens
            job.cancelled = True
