"""Runs cases in child processes: one that hangs or crashes ends no other, and each has memory of its own."""

from __future__ import annotations

import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from common.bench.cases import Case

ROOT = Path(__file__).resolve().parents[2]
NO_LIMIT = 10**9
LONGEST_IMPORT = 120.0  # seconds, of a user's module


def run_cases(
    cases: Sequence[Case], limit: float, budget: float | None, show: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """A row for each batch size and text length of each case, in order.

    A row may take `limit` seconds, loading included; after `budget` seconds no further one begins. Cases on
    the CPU get a process each, so that their memory is their own; those on a GPU share one, since starting
    takes long there.
    """
    until = time.time() + (budget or NO_LIMIT)
    rows = []
    for group in groups(cases):
        for row in run_group(group, limit, until):
            show(row)
            rows.append(row)
    return rows


def groups(cases: Sequence[Case]) -> list[list[Case]]:
    made: list[list[Case]] = []
    for case in cases:
        if case.device != "cpu" and made and made[-1][0].device != "cpu":
            made[-1].append(case)
        else:
            made.append([case])
    return made


def run_group(cases: Sequence[Case], limit: float, until: float) -> Iterator[dict[str, Any]]:
    """Cases in one process; where it ends early, in another one from the next case on."""
    todo = list(cases)
    while todo:
        first, done = todo[0], 0  # done: rows of the case that runs
        for row in start_child("cases", (todo, until), limit):
            if "ended" in row and not done and todo[0] is not first:
                break  # between two cases
            if "ended" in row:
                left = list(todo[0].rows())[done:]
                yield from (label | {"failed": row["ended"]} for label in left)
                todo, done = todo[1:], 0
                break
            yield row
            done += 1
            if done == len(list(todo[0].rows())):
                todo, done = todo[1:], 0


def require_peer(path: str) -> None:
    """A ValueError where a user's function is not there; looked for where it will be called."""
    for said in start_child("peer", path, LONGEST_IMPORT):
        raise ValueError(said.get("wrong") or f"--peer {path}: {said['ended']}")


def start_child(task: str, given: Any, limit: float) -> Iterator[dict[str, Any]]:
    """What a child says; at last {"ended": why} where it did not come to its end."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryFile() as file:
        pickle.dump((task, given), file)
        file.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-m", "common.bench.children"],
            stdin=file,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,
        )
    try:
        yield from _listen(child, limit)
    finally:
        with suppress(ProcessLookupError):  # with the processes that it started, such as compilers
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def _listen(child: subprocess.Popen, limit: float) -> Iterator[dict[str, Any]]:
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ)
    while True:
        if not selector.select(timeout=limit):
            yield {"ended": f"no answer within {limit:.0f} s"}
            return
        line = child.stdout.readline()
        if not line:
            break
        yield json.loads(line)
    if child.wait():
        yield {"ended": f"its process ended with status {child.returncode}"}


def main() -> None:
    """What a child does: a line of JSON for each row. All else that is printed goes to stderr."""
    rows = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task, given = pickle.load(sys.stdin.buffer)
    for row in TASKS[task](given):
        rows.write(json.dumps(row) + "\n")
        rows.flush()
    os._exit(0)  # TensorRT may wait for something when Python ends


def _cases(given: tuple[Sequence[Case], float]) -> Iterator[dict[str, Any]]:
    from common.bench.clocks import works
    from common.bench.measure import measure_case

    cases, until = given
    for case in cases:
        yield from measure_case(case, late=lambda: time.time() > until)
        if not works(case.clock_device):
            return  # what comes next gets a process of its own


def _machine(device: str) -> Iterator[dict[str, Any]]:
    from common.bench.machine import describe_machine

    yield describe_machine(device)


def _peer(path: str) -> Iterator[dict[str, Any]]:
    from common.bench.subjects import load_peer

    try:
        load_peer(path)
    except ValueError as error:
        yield {"wrong": str(error)}


TASKS = {"cases": _cases, "machine": _machine, "peer": _peer}

if __name__ == "__main__":
    main()
