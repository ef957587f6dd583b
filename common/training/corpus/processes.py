"""A corpus's lines by several processes, in their order, with a progress bar on a terminal."""

import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from tqdm import tqdm

from melforge.common.errors import InputError

_failure: Exception | None = None


def _start(start: Callable, *settings: Any) -> None:
    """Keeps what `start` raises for the first job: of its initialiser a pool says only that it ended."""
    global _failure
    try:
        start(*settings)
    except Exception as error:
        _failure = error


def _do(do: Callable, job: Any) -> Any:
    if _failure is not None:
        raise _failure
    return do(job)


def in_processes(
    do: Callable, jobs: Sequence, workers: int, doing: str, start: Callable, *settings: Any
) -> Iterator:
    """Each job's result, in order. `start(*settings)` prepares a process; one worker is this process.

    What `do` or `start` raises, the iteration raises.
    """

    def bar(results: Iterator) -> Iterator:
        yield from tqdm(results, doing, total=len(jobs), unit=" lines", mininterval=1, disable=None)

    workers = min(workers, len(jobs))
    if workers <= 1:
        if jobs:
            start(*settings)
        yield from bar(map(do, jobs))
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start, (start, *settings))
    try:
        chunk = max(1, min(8, len(jobs) // (4 * workers)))
        yield from bar(pool.map(functools.partial(_do, do), jobs, chunksize=chunk))
    except BrokenProcessPool:
        raise InputError(
            f"a process ended while {doing}, perhaps for lack of memory: run it again with fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
