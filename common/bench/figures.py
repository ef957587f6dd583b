"""Figures of cases: every row, the machine, and how much the stages computed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from common.bench.cases import Case
from common.bench.children import run_cases, start_child
from common.bench.speaking import cold_process
from common.bench.subjects import config_of
from common.bench.work import work_of

BYTES = {"fp16": 2}  # of a weight, where it is not 4
MACHINE_LIMIT = 180.0  # seconds


def measure(
    cases: Sequence[Case],
    command: str,
    limit: float,
    budget: float | None = None,
    show: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """What the reports show; `show` is called with each row. With `--warm-up` cold processes come behind one
    that warms up too, and find what it left in files.
    """
    # First of all, while this process is small: a new process counts the memory of the one it came from.
    cold = [cold_row(case) for case in cases if case.streams]
    device = next((case.clock_device for case in cases if case.device != "cpu"), "cpu")
    machine = next(start_child("machine", device, MACHINE_LIMIT))
    if "ended" in machine:
        raise ValueError(f"this machine's peaks cannot be measured: {machine['ended']}")
    rows = run_cases(cases, limit, budget, show)
    add_work(rows, cases)
    streams = [
        {"name": row["name"], "backend": row["backend"], **row.pop("stream")}
        for row in rows
        if "stream" in row
    ]
    return {"command": command, "machine": machine, "rows": rows, "streams": streams, "cold": cold}


def cold_row(case: Case) -> dict[str, Any]:
    row = {"name": case.target.name, "backend": case.backend}
    try:
        return row | cold_process(case, case.runs, case.warm_up)
    except ValueError as error:
        return row | {"failed": str(error)}


def add_work(rows: Sequence[dict[str, Any]], cases: Sequence[Case]) -> None:
    """The operations and bytes of each stage's calls, where PyTorch is there to count them."""
    if importlib.util.find_spec("torch") is None:
        return
    configs = {}
    for case in cases:
        for model in () if case.peer else case.models.values():
            if (case.weights, model) not in configs:
                configs[case.weights, model] = config_of(case, model)
    for row in rows:
        for stage in row.get("stages", ()):
            model, _, name = stage["stage"].partition(".")
            sizes = tuple(sorted(stage["sizes"].items()))
            work = work_of(model, configs[row["weights"], model], name, sizes)
            if work:
                weight = BYTES.get(row["precision"], 4)
                stage["flops"] = work["flops"] * stage["calls"]
                stage["bytes"] = (work["weights"] * weight + work["values"] * 4) * stage["calls"]
