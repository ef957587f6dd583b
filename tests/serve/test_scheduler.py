"""The order of steps, pauses for slow listeners, and ends: with chunks that tests control, and no models."""

import asyncio
import itertools
import math
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from melforge.common.serve.pairs import CHUNKS
from melforge.common.serve.priority import be_patient, hurrying
from melforge.common.serve.scheduler import (
    LONG,
    MARGIN,
    Batches,
    Cancelled,
    Hanging,
    JobProgress,
    Scheduler,
    SpeechJob,
)
from melforge.common.synthesis.chunks import Chunks, Window, even_share

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


def held(gate, begun):
    """A worker that takes this waits for the gate."""
    begun.set()
    gate.wait(60)
    yield np.zeros(1, np.float32)


def hang(scheduler, length=0):
    """A job whose step has begun and ends with the gate that comes with it."""
    gate, begun = threading.Event(), threading.Event()
    job = scheduler.submit(held(gate, begun), Plain(), RATE, length=length)
    begun.wait(60)
    return gate, job


async def read(job):
    return b"".join([piece async for piece in job])


class Named:
    """Chunks that are made together with others of the same first letter."""

    def __init__(self, name, steps, fail_at=None, gate=None):
        self.name, self.steps, self.fail_at, self.gate = name, steps, fail_at, gate
        self.begun, self.closed, self.asked = threading.Event(), False, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        if self.gate:
            self.begun.set()
            self.gate.wait(60)
        if self.steps == self.fail_at:
            raise RuntimeError(f"{self.name} cannot be spoken")
        if not self.steps or self.closed:
            raise StopIteration
        self.steps -= 1
        return np.zeros(50, np.float32)

    def close(self):
        self.closed = True


class Ahead:
    """Notes which chunks were made together; waits for a gate there, or fails."""

    def __init__(self, gate=None, error=None):
        self.together, self.gate, self.error, self.begun = [], gate, error, threading.Event()

    def __call__(self, several):
        self.together.append([chunks.name for chunks in several])
        self.begun.set()
        if self.gate:
            self.gate.wait(60)
        if self.error:
            raise self.error


def batches_of(ahead, largest=8):
    return Batches(lambda chunks: getattr(chunks, "name", "")[:1] or None, ahead, largest)


def submit(scheduler, *chunks):
    """Jobs that all are there before the first step is made, by one worker, and the encoders."""
    gate, blocker = hang(scheduler)
    encoders = [Plain() for _ in chunks]
    jobs = [scheduler.submit(one, mine, RATE) for one, mine in zip(chunks, encoders, strict=True)]
    gate.set()
    return [blocker, *jobs], encoders


def run(test, workers=1, ahead=1000.0, clock=None, **how):
    """Runs a test's coroutine with a scheduler."""

    async def main():
        scheduler = Scheduler(workers, ahead, clock=clock or Clock(), **how)
        try:
            return await test(scheduler)
        finally:
            scheduler.stop()
            scheduler.join(60)

    return asyncio.run(main())


@pytest.mark.parametrize(("workers", "encoders"), [(1, 0), (2, 3)])
def test_all_bytes_come_in_order_with_the_encoder_s_rest(workers, encoders):
    async def test(scheduler):
        jobs = [scheduler.submit(chunks([], "a", range(1, 40)), Plain(), RATE) for _ in range(4)]
        return await asyncio.gather(*map(read, jobs))

    spoken = run(test, workers=workers, encoders=encoders)
    assert spoken == [bytes(sum(range(40))) + b"end"] * 4


def test_encoders_end_after_the_workers_and_what_these_were_at_is_cancelled():
    async def test(scheduler):
        gate, job = hang(scheduler)
        scheduler.stop()
        gate.set()
        with pytest.raises(Cancelled):
            await asyncio.wait_for(read(job), 60)
        scheduler.join(60)
        return [thread.is_alive() for thread in scheduler._threads]

    assert run(test, encoders=3) == [False] * 4


class Ending(Named):
    """Chunks that say which is the last."""

    @property
    def ended(self):
        return not self.steps


def test_the_end_comes_with_the_last_chunk_that_says_so():
    async def test(scheduler):
        ending = Ending("a", 3)
        job = scheduler.submit(ending, Plain(), RATE)
        return await read(job), ending.asked, ending.closed, job.progress.made, job.progress.ended

    assert run(test) == (bytes(150) + b"end", 3, True, 1.5, 0.0)


def test_first_sounds_of_a_batch_leave_before_the_rest():
    order = []

    class Noting(Plain):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def write(self, samples):
            order.append(self.name)
            return super().write(samples)

    async def test(scheduler):
        gate, blocker = hang(scheduler)
        jobs = [scheduler.submit(Named(name, 2), Noting(name), RATE) for name in ("a1", "a2", "a3")]
        jobs[0].progress.made = 0.01  # it has had a sound, and is the most urgent one
        gate.set()
        await asyncio.gather(*map(read, [blocker, *jobs]))

    run(test, batches=batches_of(Ahead()))
    assert order[:3] == ["a2", "a3", "a1"]


def test_who_has_nothing_comes_first_then_who_runs_dry_first():
    async def test(scheduler):
        steps = []
        gate, blocker = hang(scheduler)
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


class Keeping(Plain):
    """An encoder whose bytes leave at the end, as flac's do."""

    def write(self, samples):
        return b""


@pytest.mark.parametrize("encoders", [0, 1])
def test_nobody_is_behind_whose_encoder_keeps_the_audio(encoders):
    async def test(scheduler):
        job = scheduler.submit(chunks([], "", [50] * 20), Keeping(), RATE)
        assert await asyncio.wait_for(read(job), 60) == b"end"
        assert job.progress.made == job.progress.taken == 10.0

    run(test, ahead=1.0, encoders=encoders)


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
        steps = []
        gate, blocker = hang(scheduler)
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
        clock.now = 2.4
        yield np.zeros(100, np.float32)  # in time: what came late is heard late

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
        assert scheduler.replace_hanging(30.0) == 0 and scheduler.slowest_step() == 29.0
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


def test_a_text_that_is_no_book_is_heard_while_all_workers_are_busy():
    clock = Clock()

    async def test(scheduler):
        steps, gates, hanging = [], [], []
        for length in (LONG + 1, 0):  # the worker has the first, so the starter has the second
            gate, job = hang(scheduler, length)
            gates.append(gate)
            hanging.append(job)
        clock.now = 31.0
        assert scheduler.replace_hanging(30.0) == 2
        gate, busy = hang(scheduler, LONG + 1)
        book = scheduler.submit(chunks(steps, "book", [9]), Plain(), RATE, length=LONG + 1)
        sentence = scheduler.submit(chunks(steps, "sentence", [5, 5]), Plain(), RATE, length=LONG)
        heard = await asyncio.wait_for(sentence.__anext__(), 60)
        assert (heard, steps) == (bytes(5), ["sentence"])  # the rest is for workers
        for one in (gate, *gates):
            one.set()
        return await asyncio.gather(*map(read, [busy, book, sentence, *hanging]), return_exceptions=True)

    *spoken, first, second = run(test, clock=clock, starters=1)
    assert spoken == [bytes(1) + b"end", bytes(9) + b"end", bytes(5) + b"end"]
    assert isinstance(first, Hanging) and isinstance(second, Hanging)


def goes_first():
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR


own_policy = pytest.mark.skipif(sys.platform != "linux", reason="threads have no policy of their own")


@own_policy
def test_who_is_in_a_hurry_starts_others_who_are_not():
    with hurrying(True) as hurries, ThreadPoolExecutor(1) as other:
        meanwhile = goes_first(), other.submit(goes_first).result()
    assert meanwhile == (hurries, False) and not goes_first()


@own_policy
def test_what_was_begun_to_go_behind_others_never_goes_before_them():
    def patiently():
        be_patient()
        with hurrying(True) as hurries:
            return hurries or goes_first()

    with ThreadPoolExecutor(1) as thread:
        assert not thread.submit(patiently).result()


@own_policy
@pytest.mark.parametrize("length, starters", [(0, 1), (LONG + 1, 1), (0, 0)])
def test_only_first_chunks_go_before_others_where_the_system_allows_it(length, starters):
    async def test(scheduler):
        found = []

        def noted():
            for _ in range(3):
                found.append(goes_first())
                yield np.zeros(1, np.float32)

        await read(scheduler.submit(noted(), Plain(), RATE, length=length))
        return found

    with hurrying(True) as allowed:
        pass
    assert run(test, starters=starters) == [allowed and starters > 0 and length == 0, False, False]


def test_steps_that_go_together_are_made_together_the_most_urgent_first():
    ahead, steps = Ahead(), []

    async def test(scheduler):
        jobs, _ = submit(scheduler, *(Named(name, 1) for name in ("a1", "b1", "a2", "a3", "b2", "a4")))
        return await asyncio.gather(*map(read, jobs[1:]))

    spoken = run(test, batches=batches_of(ahead, largest=3), on_step=steps.append)
    assert spoken == [bytes(50) + b"end"] * 6
    # Who has less to play comes first: each has a chunk before one is asked for its next, which ends it.
    assert ahead.together[:2] == [["a1", "a2", "a3"], ["b1", "b2"]]
    assert len(steps) == 2 * 7  # a chunk and the end of each, and of the one before them


def test_without_a_key_or_with_a_largest_batch_of_one_each_is_alone():
    for key, largest in ((lambda chunks: None, 8), (lambda chunks: "a", 1)):
        ahead = Ahead()

        async def test(scheduler):
            jobs, _ = submit(scheduler, Named("a1", 2), Named("a2", 2))
            return await asyncio.gather(*map(read, jobs[1:]))

        assert run(test, batches=Batches(key, ahead, largest)) == [bytes(100) + b"end"] * 2
        assert not ahead.together


def test_a_worker_that_has_nothing_to_do_gets_its_share():
    async def test(scheduler):
        with scheduler._changed:  # neither of the workers can take what is submitted
            jobs = [scheduler.submit(Named(f"a{i}", 1), Plain(), RATE) for i in range(6)]
            first = scheduler._next_jobs(2)
        names = [job.chunks.name for job in first]
        for job in first:
            scheduler._encode(job, None, True)
        await asyncio.gather(*map(read, jobs))
        return names

    assert run(test, workers=2, batches=batches_of(Ahead())) == ["a0", "a1", "a2"]


def test_one_of_a_batch_is_cancelled_while_it_is_made():
    gate = threading.Event()
    ahead = Ahead(gate)

    async def test(scheduler):
        chunks = [Named(name, 3) for name in ("a1", "a2", "a3")]
        jobs, encoders = submit(scheduler, *chunks)
        ahead.begun.wait(60)
        jobs[2].cancel()
        gate.set()
        ends = await asyncio.gather(*map(read, jobs[1:]), return_exceptions=True)
        assert chunks[1].closed and encoders[1].discarded and chunks[1].steps == 3
        return ends

    first, second, third = run(test, batches=batches_of(ahead))
    assert first == third == bytes(150) + b"end" and isinstance(second, Cancelled)


def test_one_of_a_batch_that_fails_ends_alone():
    async def test(scheduler):
        chunks = [Named("a1", 3), Named("a2", 3, fail_at=2), Named("a3", 3)]
        jobs, encoders = submit(scheduler, *chunks)
        ends = await asyncio.gather(*map(read, jobs[1:]), return_exceptions=True)
        assert (
            [chunk.closed for chunk in chunks] == [one.discarded for one in encoders] == [False, True, False]
        )
        return ends

    first, second, third = run(test, batches=batches_of(Ahead()))
    assert first == third == bytes(150) + b"end" and str(second) == "a2 cannot be spoken"


def test_after_a_fault_of_the_batch_each_is_made_alone(caplog):
    ahead = Ahead(error=RuntimeError("no batches today"))

    async def test(scheduler):
        jobs, _ = submit(scheduler, Named("a1", 3), Named("a2", 3, fail_at=1))
        return await asyncio.gather(*map(read, jobs[1:]), return_exceptions=True)

    whole, failed = run(test, batches=batches_of(ahead))
    assert whole == bytes(150) + b"end" and str(failed) == "a2 cannot be spoken"
    assert "a batch failed: each text is spoken alone" in caplog.text and "no batches today" in caplog.text


def test_a_listener_far_behind_is_not_taken_along():
    ahead = Ahead()

    async def test(scheduler):
        jobs, _ = submit(scheduler, Named("a1", 9), Named("a2", 9))
        while not all(job.parked for job in jobs[1:]):
            await asyncio.sleep(0.001)
        assert ahead.together == [["a1", "a2"]] * 3
        await jobs[1].__anext__()
        return await read(jobs[1])

    # A second may wait: the third chunk of half a second makes it more.
    assert len(run(test, ahead=1.0, batches=batches_of(ahead))) == 303


def test_a_batch_that_hangs_ends_all_its_jobs():
    clock, gate = Clock(), threading.Event()
    ahead = Ahead(gate)

    async def test(scheduler):
        jobs, _ = submit(scheduler, Named("a1", 3), Named("a2", 3))
        ahead.begun.wait(60)
        clock.now = 31.0
        assert scheduler.replace_hanging(30.0) == 1 and scheduler.replace_hanging(30.0) == 0
        ends = await asyncio.gather(*map(read, jobs[1:]), return_exceptions=True)
        gate.set()  # the batch is made after all: nobody listens
        scheduler._threads[0].join(60)
        after = await read(scheduler.submit(chunks([], "next", [2]), Plain(), RATE))
        return ends, after, scheduler._threads[0].is_alive(), scheduler.jobs

    ends, after, alive, left = run(test, clock=clock, batches=batches_of(ahead))
    assert all(isinstance(end, Hanging) for end in ends) and after == bytes(2) + b"end"
    assert not alive and not left


def test_where_one_of_a_batch_hangs_the_next_ones_go_on():
    clock, gate = Clock(), threading.Event()

    async def test(scheduler):
        hanging = Named("a2", 3, gate=gate)
        jobs, _ = submit(scheduler, Named("a1", 3), hanging, Named("a3", 3), Named("a4", 3))
        hanging.begun.wait(60)
        jobs[4].cancel()
        clock.now = 31.0
        assert scheduler.replace_hanging(30.0) == 1
        ends = await asyncio.gather(*map(read, jobs[1:]), return_exceptions=True)
        gate.set()
        scheduler._threads[0].join(60)
        return ends, scheduler.jobs

    (first, second, third, fourth), left = run(test, clock=clock, batches=batches_of(Ahead()))
    assert first == third == bytes(150) + b"end" and isinstance(second, Hanging)
    assert isinstance(fourth, Cancelled) and not left


def test_a_listener_who_runs_dry_soon_comes_before_a_new_one_and_else_behind():
    def deadline(**course) -> float:
        job = SpeechJob(chunks([], "", []), Plain(), RATE, JobProgress(**course), None, _loop=None)
        return job.deadline

    playing = deadline(arrived=9.0, started=9.5, first_audio=10.0, made=1.0)  # dry at 11 s
    assert deadline(arrived=10.5) < playing == 11.0 - MARGIN < deadline(arrived=10.6)
    assert deadline(arrived=9.0, started=9.5, made=1.0) == 10.5 - MARGIN  # none of it has left


HOP, FRAME_RATE = 256, 22050


class Simulated:
    """A text whose steps take time by a clock: `slow` times as long as on a core of their own."""

    def __init__(self, clock, slow=1.0, frames=600):
        self.clock, self.slow, self.frames, self.made = clock, slow, frames, []
        mel = np.zeros((1, 1, frames), np.float32)
        self.chunks = Chunks(mel, lambda: lambda first, last: {}, 0.0, CHUNKS, self.window_of, self.compute)

    def window_of(self, start, size):
        return Window(start, start + even_share(self.frames - start, size, 4000), 0, 0, 0, 0)

    def compute(self, chunks):
        count = chunks.window.end - chunks.window.start
        acoustic = 0.0 if self.made else 2e-3 + 27e-6 * min(self.frames, 600)
        self.clock.now += self.slow * (acoustic + 3e-3 + 47e-6 * count)
        self.made.append(count)
        chunks.put(lambda window: np.zeros(count * HOP, np.float32))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.chunks)

    def stretch(self, seconds):
        self.chunks.stretch(int(seconds() * FRAME_RATE / HOP))

    @property
    def ended(self):
        return self.chunks.window is None

    def close(self):
        pass


def speak_at_once(texts, clock, before=()):
    """The courses of texts that come at the same time, behind those before."""

    async def test(scheduler):
        for text in before:
            await read(scheduler.submit(text, Plain(), FRAME_RATE))
        gate, blocker = hang(scheduler)
        jobs = [scheduler.submit(text, Plain(), FRAME_RATE, length=length) for text, length in texts]
        gate.set()
        await asyncio.gather(*map(read, [blocker, *jobs]))
        return [job.progress for job in jobs]

    return run(test, clock=clock)


@pytest.mark.parametrize("slow", [1, 4, 8])
def test_nobody_runs_dry_when_several_begin_together_though_the_machine_is_busy(slow):
    clock = Clock()
    texts = [(Simulated(clock, slow), 80) for _ in range(8)]
    courses = speak_at_once(texts, clock, before=[Simulated(clock, slow)])
    assert [course.dry for course in courses] == [0.0] * 8 and courses[0].made == pytest.approx(
        6.97, abs=0.01
    )


def test_chunks_are_long_where_nobody_is_due_and_shorter_where_somebody_is():
    clock = Clock()
    alone, several = Simulated(clock), [Simulated(clock, slow=8) for _ in range(8)]
    speak_at_once([(alone, 80)], clock, before=[Simulated(clock)])
    assert alone.made == [32, 568]  # the rest of the mel is no longer than a third more than 480
    speak_at_once([(one, 80) for one in several], clock, before=[Simulated(clock, slow=8)])
    assert all(one.made[0] < 160 and one.made[1] < 400 for one in several[:-1])
    assert several[-1].made[0] > 32  # which lasts until its next turn


@pytest.mark.parametrize("slow", [1, 8])
def test_a_sentence_behind_thirty_book_pages_waits_at_most_three_times_as_long_as_alone(slow):
    clock = Clock()

    def first_sound(pages):
        texts = [(Simulated(clock, slow, 6000), 4090) for _ in range(pages)]
        begun = clock.now
        *_, sentence = speak_at_once([*texts, (Simulated(clock, slow, 300), 60)], clock)
        return sentence.first_audio - begun

    assert first_sound(30) <= 3 * first_sound(0)


@pytest.mark.parametrize(
    "now, dry, first",
    [(1.0, 1.3, "playing"), (1.0, 1.4, "new"), (3.0, 2.3, "playing"), (3.0, 2.4, "new"), (0.1, 0.5, "new")],
)
def test_who_hears_nothing_yet_lets_those_pass_who_would_hear_a_gap_for_two_seconds(now, dry, first):
    clock, steps = Clock(), []

    async def test(scheduler):
        gate, blocker = hang(scheduler)
        jobs = [scheduler.submit(chunks(steps, name, [100]), Plain(), RATE) for name in ("playing", "new")]
        jobs[0].progress.first_audio, jobs[0].progress.made = dry - 0.2, 0.2
        with scheduler._changed:
            waiting, scheduler._queue = scheduler._queue, []
            for _, _, job in waiting:
                scheduler._push(job)
        clock.now = now
        gate.set()
        await asyncio.gather(*map(read, [blocker, *jobs]))
        return steps[0]

    assert run(test, clock=clock) == first


def test_a_pause_of_the_listener_is_no_underrun():
    clock = Clock()

    async def test(scheduler):
        job = scheduler.submit(chunks([], "a", [100] * 9), Plain(), RATE)
        seconds = len(await job.__anext__()) / RATE
        while not job.parked:
            await asyncio.sleep(0.001)
        clock.now = 60.0
        await read(job)
        return job.progress, seconds

    progress, seconds = run(test, ahead=3.0, clock=clock)
    # It heard what it had taken; then nothing was asked for.
    assert (progress.underruns, progress.dry, progress.paused, progress.made) == (0, 0.0, 60 - seconds, 9.0)
