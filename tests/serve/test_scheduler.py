"""The order of steps, pauses for slow listeners, and ends: with chunks that tests control, and no models."""

import asyncio
import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from common.serve.scheduler import Cancelled, Hanging, Scheduler

RATE = 100  # samples a second: a chunk of 50 is half a second of audio


class Plain:
    """An encoder that keeps one byte for each sample."""

    content_type = "test"

    def __init__(self):
        self.discarded = False

    def write(self, samples):
        return bytes(len(samples))

    def close(self):
        return b"end"

    def discard(self):
        self.discarded = True


class Clock:
    """Seconds that stand still until a test moves them."""

    now = 0.0

    def __call__(self):
        return self.now


def chunks(steps, name, lengths):
    """Notes each step in a list."""
    for length in lengths:
        steps.append(name)
        yield np.zeros(length, np.float32)


def held(gate, begun=None):
    """A worker that takes this waits for the gate."""
    if begun:
        begun.set()
    gate.wait(60)
    yield np.zeros(1, np.float32)


def hang(scheduler):
    """A job whose step has begun and ends with the gate that comes with it."""
    gate, begun = threading.Event(), threading.Event()
    job = scheduler.submit(held(gate, begun), Plain(), RATE)
    begun.wait(60)
    return gate, job


async def read(job):
    return b"".join([piece async for piece in job])


def run(test, workers=1, ahead=1000.0, clock=None):
    """Runs a test's coroutine with a scheduler."""

    async def main():
        scheduler = Scheduler(workers, ahead, clock=clock or Clock())
        try:
            return await test(scheduler)
        finally:
            scheduler.stop()
            scheduler.join(60)

    return asyncio.run(main())


def test_all_bytes_come_in_order_with_the_encoder_s_rest():
    async def test(scheduler):
        return await read(scheduler.submit(chunks([], "a", [5, 7]), Plain(), RATE))

    assert run(test) == bytes(12) + b"end"


def test_encoding_beside_the_workers_keeps_the_order():
    async def test(scheduler):
        with ThreadPoolExecutor(3) as beside:
            scheduler._encoders = beside
            jobs = [scheduler.submit(chunks([], "a", range(1, 40)), Plain(), RATE) for _ in range(4)]
            return await asyncio.gather(*map(read, jobs))

    assert run(test, workers=2) == [bytes(sum(range(40))) + b"end"] * 4


def test_who_has_nothing_comes_first_then_who_runs_dry_first():
    async def test(scheduler):
        steps, gate, begun = [], threading.Event(), threading.Event()
        blocker = scheduler.submit(held(gate, begun), Plain(), RATE)
        begun.wait(60)
        jobs = [
            scheduler.submit(chunks(steps, "long", [100, 100, 100]), Plain(), RATE),
            scheduler.submit(chunks(steps, "short", [30, 30, 30, 30, 30]), Plain(), RATE),
        ]
        gate.set()
        await asyncio.gather(*map(read, [blocker, *jobs]))
        return steps

    # With 1 s of audio at a time against 0.3 s, the second is asked for more until it has as much.
    assert run(test) == ["long", "short", "short", "short", "short", "long", "short", "long"]


def test_a_short_text_is_not_stuck_behind_a_book():
    async def test(scheduler):
        steps = []
        book = scheduler.submit(chunks(steps, "book", itertools.repeat(100)), Plain(), RATE)  # it has no end
        await book.__anext__()
        short = await read(scheduler.submit(chunks(steps, "short", [100]), Plain(), RATE))
        ended = book.progress.ended
        book.cancel()
        return short, ended

    short, ended = run(test, ahead=math.inf)
    assert short == bytes(100) + b"end" and ended is None


def test_a_listener_far_behind_is_paused_and_goes_on():
    async def test(scheduler):
        steps = []
        slow = scheduler.submit(chunks(steps, "slow", [100] * 10), Plain(), RATE)
        other = scheduler.submit(chunks(steps, "other", [10]), Plain(), RATE)
        await read(other)
        while not slow.parked:
            await asyncio.sleep(0.001)
        paused = len(steps)
        assert len(await read(slow)) == 1003
        return paused

    # 2.5 s may wait: the third chunk makes it more.
    assert run(test, ahead=2.5) == 3 + 1


def test_cancelling_closes_the_generator_and_the_listener_knows():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield np.zeros(1, np.float32)
        finally:
            closed.set()

    async def test(scheduler):
        encoder = Plain()
        job = scheduler.submit(endless(), encoder, RATE)
        await job.__anext__()
        job.cancel()
        with pytest.raises(Cancelled):
            await read(job)
        assert encoder.discarded and scheduler.jobs == 0

    run(test, workers=2)
    assert closed.is_set()


def test_a_job_that_waits_is_cancelled_without_a_step():
    async def test(scheduler):
        steps, gate, begun = [], threading.Event(), threading.Event()
        blocker = scheduler.submit(held(gate, begun), Plain(), RATE)
        begun.wait(60)
        job = scheduler.submit(chunks(steps, "left", [1]), Plain(), RATE)
        assert scheduler.waiting == 1
        job.cancel()
        gate.set()
        await read(blocker)
        return steps

    assert run(test) == []


def test_a_fault_reaches_its_listener_and_the_worker_goes_on():
    def failing():
        yield np.zeros(4, np.float32)
        raise RuntimeError("no more")

    async def test(scheduler):
        job = scheduler.submit(failing(), Plain(), RATE)
        with pytest.raises(RuntimeError, match="no more"):
            await read(job)
        return await read(scheduler.submit(chunks([], "next", [2]), Plain(), RATE))

    assert run(test) == bytes(2) + b"end"


def test_stopping_ends_what_runs_and_what_waits():
    async def test(scheduler):
        jobs = [scheduler.submit(chunks([], "a", [1] * 1_000_000), Plain(), RATE) for _ in range(3)]
        scheduler.stop()
        ends = await asyncio.gather(*map(read, jobs), return_exceptions=True)
        assert all(isinstance(end, Cancelled) for end in ends)

    run(test, workers=2)


def test_time_without_audio_is_counted():
    clock = Clock()

    def late():
        yield np.zeros(100, np.float32)  # a second of audio at 0 s
        clock.now = 1.5
        yield np.zeros(100, np.float32)  # half a second late
        clock.now = 2.0
        yield np.zeros(100, np.float32)  # in time

    async def test(scheduler):
        job = scheduler.submit(late(), Plain(), RATE)
        await read(job)
        return job.progress

    progress = run(test, clock=clock)
    assert (progress.underruns, progress.dry, progress.made) == (1, 0.5, 3.0)


def test_a_hanging_worker_is_replaced_and_its_job_ends():
    clock = Clock()

    async def test(scheduler):
        gate, job = hang(scheduler)
        clock.now = 29.0
        assert scheduler.replace_hanging(30.0) == 0
        clock.now = 31.0
        assert scheduler.replace_hanging(30.0) == 1 and scheduler.replace_hanging(30.0) == 0
        assert scheduler.slowest_step() == 0.0
        with pytest.raises(Hanging):
            await read(job)
        other = await read(scheduler.submit(chunks([], "a", [3]), Plain(), RATE))
        gate.set()  # the step returns after all: nobody listens
        scheduler._threads[0].join(60)
        return other, scheduler.jobs, scheduler._threads[0].is_alive()

    assert run(test, clock=clock) == (bytes(3) + b"end", 0, False)


def test_a_hanging_step_shows():
    clock = Clock()

    async def test(scheduler):
        gate, job = hang(scheduler)
        clock.now = 40.0
        hanging = scheduler.slowest_step()
        gate.set()
        await read(job)
        return hanging

    assert run(test, clock=clock) == 40.0
