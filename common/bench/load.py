"""Load on a server: streams in a closed loop, requests at a rate, listeners in real time; and what they met.

What is asked, of a speech server or of Triton, is a `LoadTarget` (targets.py).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from melforge.common.bench.machine import versions
from melforge.common.bench.report import Columns, Report, ResultTable, Row, by, latency_panel
from melforge.common.bench.timer import summary
from melforge.common.bench.triton_statistics import SERVER_COLUMNS, Counts, spent_on_server
from melforge.common.serve.client import ServerError

CLOSED, OPEN, LISTENERS = "closed loop", "open loop", "listeners"
STATIC, DYNAMIC, STREAM = "static batching", "dynamic batching", "stream"  # closed loops, by NVIDIA's names
# What a load's number counts.
COUNTED = {
    **{CLOSED: "streams", OPEN: "requests/s", LISTENERS: "listeners"},
    **{STATIC: "batch", DYNAMIC: "concurrency", STREAM: "streams"},
}
WHOLE = (STATIC, DYNAMIC)  # whose answers come in one piece
START_UP = 0.3  # seconds in which all processes have got their part
AUDIBLE = 0.1  # seconds without sound that a listener notices

# NVIDIA's method for Riva: so many streams at a time, each of which has ten sentences spoken so many times,
# and waits for the last chunk of one before it asks for the next.
RIVA_STREAMS, RIVA_ITERATIONS = (1, 4, 6, 8, 16, 32, 64), 20
RIVA_SENTENCES = Path(__file__).with_name("riva_sentences.txt")


@dataclass(frozen=True)
class Load:
    """How a server is asked: by a `number` of clients, or of requests a second (open loop).

    In a closed loop each client makes `requests` one after the other; in static batching one client has
    `number` items in each. Open loops and listeners send nothing after `seconds`.
    """

    kind: str
    number: float
    requests: int = 1
    seconds: float = 0.0

    @property
    def clients(self) -> int:
        return 1 if self.kind == STATIC else int(self.number)

    @property
    def items(self) -> int:
        """Texts or recordings in a request."""
        return int(self.number) if self.kind == STATIC else 1


@dataclass
class TimedAnswer:
    """One request; seconds by `time.perf_counter`, which the processes of a machine share."""

    due: float  # when it was to be sent: what waits before it is sent counts
    ended: float = 0.0
    error: str = ""
    status: int = 0
    chunks: list[tuple[float, float]] = field(default_factory=list)  # when, and seconds of audio in it
    frames: int = 0  # of all its mels, where that is known

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


class Caller(Protocol):
    """One client's connection."""

    async def ask(self, answer: TimedAnswer, first: int, load: Load) -> None:
        """One request, whose first item has the number `first`; its chunks are added to the answer.

        ServerError: an answer that is no speech; OSError: none.
        """
        ...

    def close(self) -> None: ...


class LoadTarget(Protocol):
    """What is asked of whom. It is sent to other processes."""

    @property
    def label(self) -> Row:
        """What tells its rows from those of others."""
        ...

    def connect(self) -> Caller: ...


def run_load(target: LoadTarget, load: Load, processes: int = 1) -> list[TimedAnswer]:
    """All answers; `processes` share the load, where one Python process is too slow for it."""
    parts = processes if load.kind == OPEN else max(1, min(processes, load.clients))
    if parts == 1:
        return _run_part(target, load, 0, 1, time.perf_counter())
    with ProcessPoolExecutor(parts, multiprocessing.get_context("spawn")) as pool:
        for ready in [pool.submit(time.sleep, 0.1) for _ in range(parts)]:  # all is imported then
            ready.result()
        begin = time.perf_counter() + START_UP
        running = [pool.submit(_run_part, target, load, part, parts, begin) for part in range(parts)]
        return [answer for one in running for answer in one.result()]


def _run_part(target: LoadTarget, load: Load, part: int, parts: int, begin: float) -> list[TimedAnswer]:
    async def run() -> list[TimedAnswer]:
        answers: list[TimedAnswer] = []
        if load.kind == OPEN:
            await _open_loop(target, load, part, parts, begin, answers)
            return answers
        one = _listener if load.kind == LISTENERS else _stream
        numbers = range(part, load.clients, parts)
        await asyncio.gather(*(one(target, load, number, begin, answers) for number in numbers))
        return answers

    return asyncio.run(run())


async def _stream(
    target: LoadTarget, load: Load, number: int, begin: float, answers: list[TimedAnswer]
) -> None:
    """One request after the other. Each client begins with another text."""
    with closing(target.connect()) as caller:
        await _until(begin)
        for turn in range(load.requests):
            answers.append(await _ask(caller, number + turn * load.items, load, time.perf_counter()))


async def _listener(
    target: LoadTarget, load: Load, number: int, begin: float, answers: list[TimedAnswer]
) -> None:
    """Who hears each answer to its end before the next request; all begin within the first text's length."""
    chance = random.Random(number)
    with closing(target.connect()) as caller:
        await _until(begin + chance.uniform(0, min(5.0, load.seconds / 4)))
        turn = 0
        while time.perf_counter() < begin + load.seconds:
            answer = await _ask(caller, number + turn, load, time.perf_counter())
            answers.append(answer)
            if answer.error:
                await asyncio.sleep(1.0)  # a server that refuses says so: Retry-After
            else:
                await _until(max(answer.ended, answer.chunks[0][0] + answer.audio + answer.dry))
            turn += 1


async def _open_loop(
    target: LoadTarget, load: Load, part: int, parts: int, begin: float, answers: list[TimedAnswer]
) -> None:
    """Requests at random times, as those of many independent callers are: a Poisson process, always the same.

    They are sent when due, whatever became of those before.
    """
    chance = random.Random(part)
    due, turn, running = begin, part, set()
    idle: list[Caller] = []

    async def one(due: float, turn: int) -> None:
        caller = idle.pop() if idle else target.connect()
        answers.append(await _ask(caller, turn, load, due))
        idle.append(caller)

    while (due := due + chance.expovariate(load.number / parts)) < begin + load.seconds:
        await _until(due)
        task = asyncio.ensure_future(one(due, turn))
        running.add(task)
        task.add_done_callback(running.discard)
        turn += parts
    await asyncio.gather(*running)
    for caller in idle:
        caller.close()


async def _ask(caller: Caller, first: int, load: Load, due: float) -> TimedAnswer:
    """One request, to the last byte of its answer or its error."""
    answer = TimedAnswer(due)
    try:
        await caller.ask(answer, first, load)
        if not answer.audio:
            answer.error = "an answer without sound"
    except ServerError as error:
        answer.error, answer.status = str(error), error.status
    except OSError as error:
        answer.error = f"no connection: {error.strerror or error}"
    answer.ended = time.perf_counter()
    return answer


async def _until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - time.perf_counter()))


def measure(
    target: LoadTarget,
    loads: Sequence[Load],
    processes: int,
    show: Callable[[Row], object],
    warm_up: int = 0,
    statistics: Callable[[], dict[str, Counts]] | None = None,
) -> list[Row]:
    """A row for each load, one after the other, each behind `warm_up` requests of every client.

    `statistics` are a Triton server's: what its models have done so far.
    """
    rows = []
    for load in loads:
        if warm_up:
            run_load(target, replace(load, requests=warm_up))
        before = statistics() if statistics else {}
        row = target.label | row_of(load, run_load(target, load, processes))
        if statistics and "failed" not in row and load.kind in WHOLE:
            row |= spent_on_server(before, statistics(), row["total"]["mean"])
        show(row)
        rows.append(row)
    return rows


def row_of(load: Load, answers: Sequence[TimedAnswer]) -> Row:
    """What a load's answers came to."""
    good = [answer for answer in answers if not answer.error]
    errors = Counter(
        f"{one.status}: {one.error}" if one.status else one.error for one in answers if one.error
    )
    row: Row = {"load": load.kind, "number": load.number, "answers": len(good)}
    row |= {"errors": len(answers) - len(good), "by_error": dict(errors)}
    if not good:
        return row | {"failed": "; ".join(errors) or "nothing was asked"}
    elapsed = max(answer.ended for answer in good) - min(answer.due for answer in answers)
    audio, frames = sum(answer.audio for answer in good), sum(answer.frames for answer in good)
    row |= {
        "elapsed_s": elapsed,
        "audio_s": audio,
        "total": summary([answer.total for answer in good]),
        "items_per_s": len(good) * load.items / elapsed,
        "frames_per_s": frames / elapsed if frames else None,
        "times_real_time": audio / elapsed,
    }
    if load.kind in WHOLE:
        return row
    gaps, dry = [gap for answer in good for gap in answer.gaps], [answer.dry for answer in good]
    return row | {
        "first_audio": summary([answer.first_audio for answer in good]),
        "chunk_gap": summary(gaps) if gaps else None,
        "dry": sum(seconds > AUDIBLE for seconds in dry),
        "longest_dry_s": max(dry),
    }


def line(row: Row) -> str:
    """A row in short, to show progress."""
    what = f"{label_of(row)}{row['load']}, {row['number']:g} {COUNTED[row['load']]}"
    if "failed" in row:
        return f"{what}: failed: {row['failed']}"
    key, name = ("first_audio", "first audio") if "first_audio" in row else ("total", "answered in")
    dry = f", {row['dry']} dry" if "dry" in row else ""
    speed = f"{row['times_real_time']:.1f} times real time"
    return f"{what}: {name} {row[key]['p50'] * 1e3:.0f} ms, {speed}, {row['errors']} errors{dry}"


def columns(kind: str) -> Columns:
    return {
        "server": "address",
        "model": "model",
        "audio s": "seconds g",
        COUNTED[kind]: "number g",
        "answers": "answers",
        "errors": "errors",
        "first audio 50 % ms": "first_audio.p50 ms",
        "95 %": "first_audio.p95 ms",
        "99 %": "first_audio.p99 ms",
        "total 50 % ms": "total.p50 ms",
        "total 95 %": "total.p95 ms",
        "total 99 %": "total.p99 ms",
        "chunk gap 50 % ms": "chunk_gap.p50 ms",
        "gap 95 %": "chunk_gap.p95 ms",
        "dry": "dry",
        "longest dry ms": "longest_dry_s ms",
        "a second": "items_per_s .1f",
        "mel frames/s": "frames_per_s .0f",
        "x real time": "times_real_time .1f",
    }


RIVA_COLUMNS = {
    "server": "address",
    "streams": "number g",
    **{
        f"{name} {label}": f"{key}.{value} ms"
        for key, name in (("first_audio", "first audio"), ("chunk_gap", "between chunks"))
        for label, value in (("mean ms", "mean"), ("90 %", "p90"), ("95 %", "p95"), ("99 %", "p99"))
    },
    "x real time": "times_real_time .1f",
}


def report_of(rows: Sequence[Row], about: str, command: str, as_riva: bool = False) -> Report:
    """`as_riva` adds a table of what NVIDIA's page on Riva's performance has."""
    tables, panels = [], []
    for kind, found in by(rows, lambda row: row["load"]).items():
        errors = [
            f"{row['number']:g}: {n} times {why}" for row in found for why, n in row["by_error"].items()
        ]
        tables.append(ResultTable(kind.capitalize(), columns(kind), found, errors))
        if known := [row for row in found if "server" in row]:
            models = {"model": "model", "audio s": "seconds g", COUNTED[kind]: "number g"}
            named = dict.fromkeys(name for row in known for name in row["server"])
            each = {
                f"{name} {what}": f"server.{name}.{how}"
                for name in named
                for what, how in SERVER_COLUMNS.items()
            }
            spent = {"client, network ms": "client_s ms", "queue": "queue_s ms", "compute": "compute_s ms"}
            tables.append(ResultTable(f"{kind.capitalize()}, on the server", models | spent | each, known))
        for key, name in (("first_audio", "first audio"), ("total", "total")):
            labels = {"p50": f"{name}, median", "p95": f"{name}, 95 %"}
            panels += latency_panel(
                f"{kind}: {name}", (COUNTED[kind], "number"), found, key, label_of, labels
            )
    if as_riva:
        tables.append(ResultTable("What NVIDIA publishes of Riva", RIVA_COLUMNS, rows))
    return Report(command, about, versions("cpu"), {"rows": list(rows)}, tables, panels)


def label_of(row: Row) -> str:
    """What tells a row from others of its load."""
    if "model" in row:
        return f"{row['model']}, {row['seconds']:g} s, "
    return f"{row['address']}, " if "address" in row else ""
