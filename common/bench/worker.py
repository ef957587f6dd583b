"""Runs a job in a child process: one that hangs or crashes ends no other, and each has memory of its own."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from melforge.common.bench.report import Row


def run_job(task: Callable[..., Iterator[Row]], *arguments: Any, limit: float) -> Iterator[Row]:
    """The rows that `task(*arguments)` yields in a new process.

    Where that ends early, or yields nothing for `limit` seconds, the last row is {"ended": why}.
    """
    context = multiprocessing.get_context("spawn")
    rows, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(theirs, task, arguments))
    child.start()
    theirs.close()
    try:
        while rows.poll(limit):
            try:
                row = rows.recv()
            except EOFError:
                child.join()
                row = {"ended": f"its process ended with status {child.exitcode}"}
            if row is not None:
                yield row
            if row is None or "ended" in row:
                return
        yield {"ended": f"no answer within {limit:.0f} s"}
    finally:
        with suppress(ProcessLookupError):  # with the processes that it started, such as compilers
            os.killpg(child.pid or 0, signal.SIGKILL)
        child.kill()  # where it has no group of its own yet
        child.join()
        rows.close()


def _run(rows: Connection, task: Callable[..., Iterator[Row]], arguments: tuple[Any, ...]) -> None:
    os.setsid()
    os.dup2(2, 1)  # what libraries print is no result
    for row in task(*arguments):
        rows.send(row)
    rows.send(None)
    rows.close()
    os._exit(0)  # TensorRT may wait for something when Python ends
