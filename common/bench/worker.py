"""Runs jobs in child processes: one that hangs or crashes ends no other, and each has memory of its own."""

import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from melforge.common.bench.machine import child_environment
from melforge.common.bench.table import Row
from melforge.common.bench.timer import works
from melforge.common.registry import load_attribute


def run_jobs(task: str, jobs: Sequence[Any], limit: float, device: str = "cpu") -> Iterator[tuple[int, Row]]:
    """The rows (JSON) that `task`, a "module:function", yields for each job, with the job's number.

    One child runs the jobs in order. Where it ends early, or yields nothing for `limit` seconds, the job has
    {"ended": why} as its last row, and a new child goes on with the next job. A job without rows that was not
    its child's first is run once more: an earlier one may have left the process broken.
    """
    done = 0
    while done < len(jobs):
        first, began, why = done, False, ""
        for message in _listen(task, jobs[first:], limit, device):
            if isinstance(message, str):
                why = message
            elif message is None:
                done, began = done + 1, False
            else:
                began = True
                yield done, message
        if done < len(jobs) and (began or done == first):
            yield done, {"ended": why}
            done += 1


def _listen(task: str, jobs: Sequence[Any], limit: float, device: str) -> Iterator[Row | str | None]:
    """A child's rows, None behind those of each job, and at last why there are no more."""
    with tempfile.TemporaryFile() as file:
        pickle.dump((task, jobs, device), file)
        file.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-m", "melforge.common.bench.worker"],
            stdin=file,
            stdout=subprocess.PIPE,
            bufsize=0,  # a line that Python had read ahead would not wake the selector
            env=child_environment(),
            start_new_session=True,
        )
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ)
    try:
        while selector.select(timeout=limit):
            line = child.stdout.readline()
            if not line:
                yield f"its process ended with status {child.wait()}"
                return
            yield json.loads(line)
        yield f"no answer within {limit:.0f} s"
    finally:
        with suppress(ProcessLookupError):  # with the processes that it started, such as compilers
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def main() -> None:
    """In a child: a line of JSON for each row. All else that is printed goes to stderr."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task, jobs, device = pickle.load(sys.stdin.buffer)
    run = load_attribute(task)
    for job in jobs:
        for row in run(job):
            print(json.dumps(row), file=lines, flush=True)
        print("null", file=lines, flush=True)
        if not works(device):
            break  # the next job gets a process of its own
    os._exit(0)  # TensorRT may wait for something when Python ends


if __name__ == "__main__":
    main()
