"""Runs the checks of a GPU, each in a worker process, several at a time; and keeps their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common.bench.table import Row
from common.bench.worker import run_jobs
from common.registry import load_attribute

Job = dict[
    str, Any
]  # a check's arguments; its row has those of KEYS, with what was found, or why it "failed"

# What a worker does with a job.
STEPS = {
    "verify": "common.verify.gpu.models:check",
    "sentences": "common.verify.gpu.pairs:check_sentences",
    "example": "common.verify.gpu.pairs:check_example",
    "pairs": "common.verify.gpu.pairs:check_pair",
    "mix": "common.verify.gpu.pairs:check_pair",
    "stages": "common.verify.gpu.stages:check",
}
TIMED = ("pairs", "mix", "stages")  # these measure time: one check runs after the other
# What a row is about.
KEYS = ("origin", "model", "stage", "fixed", "acoustic", "vocoder", "backend", "precision", "example")


def run_checks(step: str, jobs: Sequence[Job], limit: float, parallel: int = 1) -> list[Row]:
    """A row for each job, in order. `limit` is what one may take, in seconds."""

    def run(group: Sequence[Job]) -> list[Row]:
        rows: dict[int, Row] = {}
        for number, row in run_jobs(
            "common.verify.gpu.checks:check", [(step, job) for job in group], limit, "cuda"
        ):
            if number not in rows:
                rows[number] = group[number] | {"failed": row["ended"]} if "ended" in row else row
                print(line_of(step, rows[number]), flush=True)
        return list(rows.values())

    with ThreadPoolExecutor(parallel) as pool:
        done = list(pool.map(run, [jobs[i::parallel] for i in range(parallel)]))
    return [done[i % parallel][i // parallel] for i in range(len(jobs))]


def check(given: tuple[str, Job]) -> Iterator[Row]:
    """What a worker does; PyTorch's float32 is all of it."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    step, job = given
    try:
        yield {key: job[key] for key in KEYS if key in job} | load_attribute(STEPS[step])(**job)
    except Exception as error:
        yield job | {"failed": f"{type(error).__name__}: {str(error)[:400]}"}


def line_of(step: str, row: Row) -> str:
    """A row in short, for those who wait."""
    words = [step, *(str(value) for value in row.values() if isinstance(value, str) and len(value) < 40)]
    if "failed" in row:
        return f"{' '.join(words)}: FAILED: {row['failed']}"
    numbers = (f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float))
    return f"{' '.join(words)}: {', '.join(numbers)}"


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes the rows, in the place of those about the same that are there."""
    there = json.loads(path.read_text()) if path.is_file() else []
    kept = {tuple(row.get(key) for key in KEYS): row for row in [*there, *rows]}
    path.write_text(json.dumps(list(kept.values()), indent=1))
