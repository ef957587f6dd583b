"""Measures workloads: every row, the machine, and how much the stages computed."""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from common.bench.end_to_end import cold_process
from common.bench.models import config_of
from common.bench.rows import Row
from common.bench.worker import run_jobs
from common.bench.workload import Workload
from common.errors import InputError

BYTES = {"fp16": 2}  # of a weight, where it is not 4
MACHINE_LIMIT = 180.0  # seconds
NO_LIMIT = 10**9


def measure(
    workloads: Sequence[Workload],
    command: str,
    limit: float,
    budget: float | None = None,
    show: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """What the reports show; `show` is called with each row, which may have what warming up took beside it.

    With `--warm-up` cold processes come behind one that warms up too, and find what it left in files.
    """
    # First of all, while this process is small: a new process counts the memory of the one it came from.
    cold = [cold_row(workload) for workload in workloads if workload.streams]
    device = next((workload.clock_device for workload in workloads if workload.device != "cpu"), "cpu")
    _, machine = next(run_jobs("common.bench.machine:describe", [device], MACHINE_LIMIT))
    if "ended" in machine:
        raise InputError(f"this machine's peaks cannot be measured: {machine['ended']}")
    rows = run_workloads(workloads, limit, budget, show)
    add_flops(rows, workloads)
    streams = [
        {"name": row["name"], "backend": row["backend"], **row.pop("stream")}
        for row in rows
        if "stream" in row
    ]
    return {"command": command, "machine": machine, "rows": rows, "streams": streams, "cold": cold}


def run_workloads(
    workloads: Sequence[Workload], limit: float, budget: float | None, show: Callable[[Row], None]
) -> list[Row]:
    """A row for each batch size and text length of each workload, in order.

    A row may take `limit` seconds, loading included; after `budget` seconds no further one begins.
    """
    until = time.time() + (budget or NO_LIMIT)
    rows = []
    for group in groups(workloads):
        jobs = [(workload, until) for workload in group]
        missing = [list(workload.rows()) for workload in group]
        for number, row in run_jobs("common.bench.measure:measure", jobs, limit, group[0].clock_device):
            labels = missing[number]
            found = [label | {"failed": row["ended"]} for label in labels] if "ended" in row else [row]
            del labels[: len(found)]
            for one in found:
                show(one)
                one.pop("warm_up", None)
            rows += found
    return rows


def groups(workloads: Sequence[Workload]) -> list[list[Workload]]:
    """Those on the CPU get a process each, so that their memory is their own; those on a GPU that follow each
    other share one, since starting takes long there.
    """
    runs = itertools.groupby(enumerate(workloads), lambda one: one[0] if one[1].device == "cpu" else -1)
    return [[workload for _, workload in run] for _, run in runs]


def cold_row(workload: Workload) -> Row:
    row = {"name": workload.target.name, "backend": workload.backend}
    try:
        return row | cold_process(workload, workload.runs, workload.warm_up)
    except ValueError as error:
        return row | {"failed": str(error)}


def add_flops(rows: Sequence[Row], workloads: Sequence[Workload]) -> None:
    """The operations and bytes of each stage's calls, where PyTorch is there to count them."""
    if importlib.util.find_spec("torch") is None:
        return
    from common.bench.flops import count_flops

    configs = {}
    for workload in workloads:
        for model in () if workload.peer else workload.target.models.values():
            if (workload.weights, model) not in configs:
                configs[workload.weights, model] = config_of(workload, model)
    for row in rows:
        for stage in row.get("stages", ()):
            model, _, name = stage["stage"].partition(".")
            sizes = tuple(sorted(stage["sizes"].items()))
            counted = count_flops(model, configs[row["weights"], model], name, sizes)
            if counted:
                weight = BYTES.get(row["precision"], 4)
                stage["flops"] = counted["flops"] * stage["calls"]
                stage["bytes"] = (counted["weights"] * weight + counted["values"] * 4) * stage["calls"]
