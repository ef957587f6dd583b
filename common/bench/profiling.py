"""What a profiler sees of one run: kernels, copies, CUDA API calls, operators, and memory over time.

By torch.profiler: of a GPU all work, whoever launched it (CUPTI), of a CPU the operators of PyTorch.
"""

import gzip
import importlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from melforge.common.bench.picture import draw_panels
from melforge.common.bench.table import Row, columns_of, table_of
from melforge.common.bench.timer import StageTimer, wait_for
from melforge.common.errors import require_torch
from melforge.common.files import write_bytes

LONGEST_TABLE, MOST_BARS, LONGEST_NAME = 40, 12, 100  # rows, bars of a panel, letters of a name
MOST_EVENTS = 200_000  # of the memory's history
# Tables by their key: a heading, and the categories of the trace's events that they add up by name.
TABLES = {
    "kernels": ("Kernels", ("kernel",)),
    "copies": ("Copies and sets", ("gpu_memcpy", "gpu_memset")),
    "api": ("CUDA API calls", ("cuda_runtime", "cuda_driver")),
    "operators": ("PyTorch's operators on the host, without those within", ("cpu_op",)),
    "stages": ("Stages on the host", ("user_annotation",)),
    "gpu_stages": ("Stages on the GPU, from their first kernel to the last", ("gpu_user_annotation",)),
}
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
COLUMNS = columns_of("name: name", "calls: calls", "ms: seconds ms.3", "share: share .1%")
COPY_COLUMNS = (*COLUMNS, *columns_of("MB: bytes MB.3"))
RUN = "run"  # the name that a trace has for all of it
Event = dict[str, Any]  # of a Chrome trace: name, cat, and in microseconds ts and dur
Span = tuple[float, float]


def write_profile(
    run: Callable[[], object], timer: StageTimer | None, device: str, folder: Path, label: Row
) -> str:
    """Profiles one run, after others, and gives the path of its Markdown file.

    Beside it are the same as JSON, a picture, the trace and on a GPU a snapshot of PyTorch's memory.
    """
    require_torch("--profile")
    words = (label["name"], label["backend"], label["precision"], label.get("call"), label["symbols"])
    name = re.sub(r"[^\w.]+", "-", "-".join(map(str, filter(None, (*words, f"batch{label['batch']}")))))
    folder.mkdir(parents=True, exist_ok=True)
    run()
    wait_for(device)
    start = time.perf_counter()
    run()
    wait_for(device)
    seconds = time.perf_counter() - start
    trace_run(run, timer, device)  # a profiler's first run takes longer
    events = trace_run(run, timer, device)
    if device != "cpu":
        write_snapshot(run, device, folder / f"{name}-memory.pickle")
    found = {"of": label, "seconds": seconds, **summarise(events, device)}
    files = {
        ".md": as_markdown(found, f"{name}-trace.json.gz").encode(),
        ".json": (json.dumps(found, indent=1) + "\n").encode(),
        ".png": draw(found),
        "-trace.json.gz": gzip.compress(json.dumps({"traceEvents": events}).encode()),
    }
    for suffix, content in files.items():
        if content:
            write_bytes(folder / f"{name}{suffix}", content)
    return str(folder / f"{name}.md")


def trace_run(run: Callable[[], object], timer: StageTimer | None, device: str) -> list[Event]:
    """The events of one run as torch.profiler exports them, the engines' calls named by their stages."""
    profiler = importlib.import_module("torch.profiler")
    activities = [profiler.ProfilerActivity.CPU]
    if device != "cpu":
        activities.append(profiler.ProfilerActivity.CUDA)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        try:
            with profiler.profile(activities=activities, profile_memory=True) as profile:
                if timer:
                    timer.label = profiler.record_function
                with profiler.record_function(RUN):
                    run()
                    wait_for(device)
        finally:
            if timer:
                timer.label = None
        profile.export_chrome_trace(str(file))
        return json.loads(file.read_text())["traceEvents"]


def write_snapshot(run: Callable[[], object], device: str, path: Path) -> None:
    """PyTorch's record of what one run allocates, for its viewer (pytorch.org/memory_viz)."""
    memory = importlib.import_module("torch").cuda.memory
    memory._record_memory_history(max_entries=MOST_EVENTS)
    try:
        run()
        wait_for(device)
        memory._dump_snapshot(str(path))
    finally:
        memory._record_memory_history(enabled=None)


def summarise(events: Sequence[Event], device: str) -> dict[str, Any]:
    """Tables by time, the time that the GPU was busy, and the memory that PyTorch held over time."""
    timed = [event for event in events if event.get("ph") == "X"]
    whole = next(event for event in timed if (event.get("cat"), event["name"]) == ("user_annotation", RUN))
    inside = [event for event in timed if event["name"] != RUN]
    tables = {key: table_rows(inside, categories) for key, (_, categories) in TABLES.items()}
    found = {"profiled_s": whole["dur"] / 1e6, "tables": {key: rows for key, rows in tables.items() if rows}}
    if device != "cpu":
        spans = ((e["ts"], e["ts"] + e["dur"]) for e in inside if e.get("cat") in ON_GPU)
        found["gpu_busy_s"] = covered(spans) / 1e6
    wanted = 0 if device == "cpu" else 1  # c10::DeviceType
    history = [
        ((event["ts"] - whole["ts"]) / 1e6, event["args"]["Total Allocated"])
        for event in events
        if event.get("name") == "[memory]" and event["args"].get("Device Type") == wanted
    ]
    return found | {"memory": sorted(history)}


def table_rows(events: Iterable[Event], categories: Sequence[str]) -> list[Row]:
    """The events of these categories by name: calls, seconds and bytes, the longest first."""
    chosen = [event for event in events if event.get("cat") in categories]
    spent = own_times(chosen) if "cpu_op" in categories else [event["dur"] for event in chosen]
    rows: dict[str, Row] = {}
    for event, microseconds in zip(chosen, spent, strict=True):
        row = rows.setdefault(event["name"], {"name": event["name"], "calls": 0, "seconds": 0.0})
        row["calls"] += 1
        row["seconds"] += microseconds / 1e6
        if "bytes" in event.get("args", {}):
            row["bytes"] = row.get("bytes", 0) + int(event["args"]["bytes"])
    total = sum(row["seconds"] for row in rows.values())
    made = sorted(rows.values(), key=lambda row: -row["seconds"])
    return [row | {"share": row["seconds"] / total if total else None} for row in made]


def own_times(events: Sequence[Event]) -> list[float]:
    """Of each event the time that is not within another one that it called, on its thread."""
    own = [float(event["dur"]) for event in events]
    open_ones: dict[Any, list[int]] = {}
    for i in sorted(range(len(events)), key=lambda i: (events[i]["ts"], -events[i]["dur"])):
        event = events[i]
        stack = open_ones.setdefault((event.get("pid"), event.get("tid")), [])
        while stack and events[stack[-1]]["ts"] + events[stack[-1]]["dur"] <= event["ts"]:
            stack.pop()
        if stack:
            own[stack[-1]] -= event["dur"]
        stack.append(i)
    return own


def covered(spans: Iterable[Span]) -> float:
    """The time in which at least one of the spans lasts."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def as_markdown(found: dict[str, Any], trace: str) -> str:
    label = found["of"]
    lines = [f"# {label['name']}: {label['backend']} {label['precision']}, batch {label['batch']}", ""]
    lines += [f"One run took {found['seconds'] * 1e3:.2f} ms, and {found['profiled_s'] * 1e3:.2f} ms with"]
    lines += ["the profiler, which slows the host down."]
    if busy := found.get("gpu_busy_s"):
        lines += [f"The GPU was busy for {busy * 1e3:.2f} ms of these."]
    if memory := found["memory"]:
        levels = [level for _, level in memory]
        lines += [f"PyTorch's memory: {levels[0] / 1e6:.1f} MB at first, {max(levels) / 1e6:.1f} MB at most,"]
        lines += [f"{len(memory)} allocations and releases."]
    lines += [f"Trace, for ui.perfetto.dev: {trace}."]
    for key, rows in found["tables"].items():
        columns = COPY_COLUMNS if key == "copies" else COLUMNS
        shown = [row | {"name": shortened(row["name"])} for row in rows[:LONGEST_TABLE]]
        lines += ["", f"## {TABLES[key][0]}", "", *table_of(columns, shown)]
        if len(rows) > LONGEST_TABLE:
            lines += ["", f"{len(rows) - LONGEST_TABLE} more are in the JSON file."]
    return "\n".join(lines) + "\n"


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    return name if len(name) <= longest else f"{name[: longest - 3]}..."


def draw(found: dict[str, Any]) -> bytes | None:
    """A panel for each table, and one for the memory."""
    panels: dict[str, Callable[[Any], object]] = {
        TABLES[key][0]: partial(draw_bars, rows=rows[:MOST_BARS]) for key, rows in found["tables"].items()
    }
    if found["memory"]:
        panels["Memory that PyTorch holds"] = partial(draw_memory, memory=found["memory"])
    return draw_panels(panels, 3.6, 7.0)


def draw_bars(axis: Any, rows: Sequence[Row]) -> None:
    axis.barh(range(len(rows)), [row["seconds"] * 1e3 for row in rows])  # short names may be the same
    axis.set_yticks(range(len(rows)), [shortened(row["name"], 40) for row in rows])
    axis.invert_yaxis()
    axis.tick_params(axis="y", labelsize=7)
    axis.set_xlabel("ms")


def draw_memory(axis: Any, memory: Sequence[tuple[float, int]]) -> None:
    axis.step([at * 1e3 for at, _ in memory], [level / 1e6 for _, level in memory], where="post")
    axis.set(xlabel="ms", ylabel="MB", ylim=(0, None))
