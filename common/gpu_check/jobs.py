"""Runs each check in a child process, several at a time: one that hangs or crashes ends no other."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Job = dict[str, Any]
Row = dict[str, Any]  # the job, with what was found, or with "failed" and why

# What a child does with a job. Those that measure time run one after the other.
STEPS = {
    "stages": "common.gpu_check.stages:check",
    "verify": "common.gpu_check.verification:check",
    "pairs": "common.gpu_check.speaking:check_pair",
    "sentences": "common.gpu_check.speaking:check_sentences",
    "example": "common.gpu_check.speaking:check_example",
}


def run_jobs(step: str, jobs: Sequence[Job], limit: float, parallel: int = 1) -> list[Row]:
    """A row for each job, in order. `limit` is what one may take, in seconds."""
    groups = [list(jobs[i::parallel]) for i in range(parallel)]
    with ThreadPoolExecutor(parallel) as pool:
        done = list(pool.map(lambda group: run_in_order(step, group, limit), groups))
    return [done[i % parallel][i // parallel] for i in range(len(jobs))]


def run_in_order(step: str, jobs: list[Job], limit: float) -> list[Row]:
    rows: list[Row] = []
    while len(rows) < len(jobs):
        command = [sys.executable, "-m", "common.gpu_check.jobs", step, json.dumps(jobs[len(rows) :])]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        rows += _watch(child, limit)
        if len(rows) < len(jobs) and child.returncode:
            hung = child.returncode == -9
            why = f"no answer within {limit:.0f} s" if hung else f"status {child.returncode}"
            rows.append({**jobs[len(rows)], "failed": why})
            print(line_of(step, rows[-1]), flush=True)
    return rows


def _watch(child: subprocess.Popen, limit: float) -> Iterator[Row]:
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ)
    while True:
        if not selector.select(timeout=limit):
            child.kill()
            break
        line = child.stdout.readline()
        if not line:
            break
        if line.startswith("{"):
            row = json.loads(line)
            print(line_of(row.pop("step"), row), flush=True)
            yield row
    child.wait()


def line_of(step: str, row: Row) -> str:
    """A row in short, for those who wait."""
    words = [step, *(str(value) for value in row.values() if isinstance(value, str) and len(value) < 40)]
    if "failed" in row:
        return f"{' '.join(words)}: FAILED: {row['failed']}"
    numbers = (f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float))
    return f"{' '.join(words)}: {', '.join(numbers)}"


def main() -> None:
    """What a child process does: the jobs of a step, a line of JSON for each."""
    import torch

    from common.registry import load_attribute

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    step, jobs = sys.argv[1], json.loads(sys.argv[2])
    check = load_attribute(STEPS[step])
    for job in jobs:
        try:
            row = check(**job)
        except Exception as error:
            row = {**job, "failed": f"{type(error).__name__}: {str(error)[:400]}"}
        print(json.dumps({"step": step, **row}), flush=True)
    sys.stdout.flush()
    os._exit(0)  # TensorRT may wait for something when Python ends


# What a row is about.
KEYS = ("origin", "model", "stage", "fixed", "acoustic", "vocoder", "backend", "precision", "example")


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes the rows, in the place of those about the same that are there."""

    def about(row: Row) -> tuple:
        return tuple(row.get(key) for key in KEYS)

    there = json.loads(path.read_text()) if path.is_file() else []
    kept = {about(row): row for row in [*there, *rows]}
    path.write_text(json.dumps(list(kept.values()), indent=1))


if __name__ == "__main__":
    main()
