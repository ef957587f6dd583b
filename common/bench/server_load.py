"""Load on a speech server: streams in a closed loop, requests at a rate, listeners in real time."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from melforge.common.serve.client import Address, Connection, ServerError

CLOSED, OPEN, LISTENERS = "closed loop", "open loop", "listeners"
START_UP = 0.3  # seconds in which all processes have got their part


@dataclass(frozen=True)
class Target:
    """What is asked of whom. The sound is pcm, so that every chunk has a length in seconds."""

    address: Address
    key: str | None
    fields: dict[str, Any]  # of a request, beside its text
    rate: int  # Hz
    texts: tuple[str, ...]
    timeout: float = 300.0

    def connection(self) -> Connection:
        return Connection(self.address, self.key, self.timeout)


@dataclass(frozen=True)
class Load:
    """How it is asked: by a `number` of streams (closed loop), requests a second (open loop) or listeners.

    A closed loop ends after `iterations` of all texts; the others send nothing after `seconds`.
    """

    kind: str
    number: float
    iterations: int = 1
    seconds: float = 0.0


@dataclass
class Answer:
    """One request; seconds by `time.perf_counter`, which the processes of a machine share."""

    due: float  # when it was to be sent: what waits before it is sent counts
    ended: float = 0.0
    error: str = ""
    status: int = 0
    chunks: list[tuple[float, float]] = field(default_factory=list)  # when, and seconds of audio in it

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Around the request: writes down its error, and when it ended."""
        try:
            yield
            if not self.audio:
                self.error = "an answer without sound"
        except ServerError as error:
            self.error, self.status = str(error), error.status
        except OSError as error:
            self.error = f"no connection: {error.strerror or error}"
        self.ended = time.perf_counter()

    @property
    def first_audio(self) -> float:
        return self.chunks[0][0] - self.due

    @property
    def total(self) -> float:
        return self.ended - self.due

    @property
    def audio(self) -> float:
        return sum(seconds for _, seconds in self.chunks)

    @property
    def gaps(self) -> list[float]:
        """Seconds from each chunk to the next."""
        times = [when for when, _ in self.chunks]
        return [b - a for a, b in pairwise(times)]

    @property
    def dry(self) -> float:
        """For how long a listener hears nothing, who plays from the first chunk on."""
        stalled, played_from, audio = 0.0, self.chunks[0][0], 0.0
        for when, seconds in self.chunks:
            stalled = max(stalled, when - played_from - audio)
            audio += seconds
        return stalled


A = TypeVar("A", bound=Answer)


def run_load(target: Target, load: Load, processes: int = 1) -> list[Answer]:
    """All answers; `processes` share the load, where one Python process is too slow for it."""
    processes = max(1, min(processes, int(load.number))) if load.kind != OPEN else processes
    return run_parts(partial(_run_part, target, load), processes)


def run_parts(run: Callable[[int, int, float], list[A]], parts: int) -> list[A]:
    """All answers of `run(part, parts, begin)`, each part in a process of its own; they begin together."""
    if parts == 1:
        return run(0, 1, time.perf_counter())
    with ProcessPoolExecutor(parts, multiprocessing.get_context("spawn")) as pool:
        for ready in [pool.submit(time.sleep, 0.1) for _ in range(parts)]:  # all is imported then
            ready.result()
        begin = time.perf_counter() + START_UP
        running = [pool.submit(run, part, parts, begin) for part in range(parts)]
        return [answer for one in running for answer in one.result()]


def _run_part(target: Target, load: Load, part: int, parts: int, begin: float) -> list[Answer]:
    return asyncio.run(_run(target, load, part, parts, begin))


async def _run(target: Target, load: Load, part: int, parts: int, begin: float) -> list[Answer]:
    answers: list[Answer] = []
    await _until(begin)
    if load.kind == OPEN:
        await _open_loop(target, load, part, parts, begin, answers)
        return answers
    one: Callable[..., Awaitable[None]] = _stream if load.kind == CLOSED else _listener
    numbers = range(part, int(load.number), parts)
    await asyncio.gather(*(one(target, load, number, begin, answers) for number in numbers))
    return answers


async def _stream(target: Target, load: Load, number: int, begin: float, answers: list[Answer]) -> None:
    """One request after the other. Each stream begins with another text."""
    connection = target.connection()
    for turn in range(load.iterations * len(target.texts)):
        answers.append(await ask(target, connection, number + turn, time.perf_counter()))
    connection.close()


async def _listener(target: Target, load: Load, number: int, begin: float, answers: list[Answer]) -> None:
    """Who hears each answer to its end before the next request; all begin within the first text's length."""
    connection = target.connection()
    chance = random.Random(number)
    await _until(begin + chance.uniform(0, min(5.0, load.seconds / 4)))
    turn = 0
    while time.perf_counter() < begin + load.seconds:
        answer = await ask(target, connection, number + turn, time.perf_counter())
        answers.append(answer)
        if answer.error:
            await asyncio.sleep(1.0)  # a server that refuses says so: Retry-After
        else:
            await _until(max(answer.ended, answer.chunks[0][0] + answer.audio + answer.dry))
        turn += 1
    connection.close()


async def _open_loop(
    target: Target, load: Load, part: int, parts: int, begin: float, answers: list[Answer]
) -> None:
    """Requests at random times, as those of many independent callers are: a Poisson process, always the same.

    They are sent when due, whatever became of those before.
    """
    chance = random.Random(part)
    due, turn, running = begin, part, set()
    idle: list[Connection] = []

    async def one(due: float, turn: int) -> None:
        connection = idle.pop() if idle else target.connection()
        answers.append(await ask(target, connection, turn, due))
        idle.append(connection)

    while (due := due + chance.expovariate(load.number / parts)) < begin + load.seconds:
        await _until(due)
        task = asyncio.ensure_future(one(due, turn))
        running.add(task)
        task.add_done_callback(running.discard)
        turn += parts
    await asyncio.gather(*running)
    for connection in idle:
        connection.close()


async def ask(target: Target, connection: Connection, turn: int, due: float) -> Answer:
    """One request, to the last byte of its answer or its error."""
    answer = Answer(due)
    text = target.texts[turn % len(target.texts)]
    request = {**target.fields, "input": text, "response_format": "pcm"}
    with answer.recorded():
        try:
            async for data in connection.speech(request):
                answer.chunks.append((time.perf_counter(), len(data) / 2 / target.rate))
        except OSError:
            connection.close()
            raise
    return answer


async def _until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - time.perf_counter()))


def warm_up(target: Target) -> None:
    """Each text once, one after the other. Raises ServerError or OSError where one is not spoken."""

    async def speak() -> None:
        connection = target.connection()
        for text in dict.fromkeys(target.texts):
            async for _ in connection.speech({**target.fields, "input": text, "response_format": "pcm"}):
                pass
        connection.close()

    asyncio.run(speak())


def counted(kind: str, number: float, answers: Sequence[Answer]) -> dict[str, Any]:
    """A row's beginning: the load, how many were answered or failed, and the seconds from first to last."""
    good = [answer for answer in answers if not answer.error]
    errors = Counter(
        f"{answer.status}: {answer.error}" if answer.status else answer.error
        for answer in answers
        if answer.error
    )
    row = {"load": kind, "number": number, "answers": len(good)}
    row |= {"errors": len(answers) - len(good), "by_error": dict(errors)}
    if not good:
        return row | {"failed": "; ".join(errors) or "nothing was asked"}
    elapsed = max(answer.ended for answer in good) - min(answer.due for answer in answers)
    return row | {"audio_s": sum(answer.audio for answer in good), "elapsed_s": elapsed}
