"""What a profiler sees of one run: torch.profiler's tables and trace, and PyTorch's memory on a GPU."""

import importlib
import re
from pathlib import Path

from melforge.common.bench.models import TimedCall
from melforge.common.bench.report import Row
from melforge.common.bench.timer import wait_for
from melforge.common.errors import require_torch
from melforge.common.files import write_bytes

LONGEST_TABLE = 60  # rows
MOST_EVENTS = 200_000  # of the memory's history


def write_profile(call: TimedCall, device: str, folder: Path, label: Row) -> str:
    """Profiles one run, after others, and gives the path of its table.

    Beside it are the trace, for ui.perfetto.dev, and on a GPU what PyTorch allocated, for
    pytorch.org/memory_viz. The engines' calls have their stages' names. On a GPU all work is seen, whoever
    launched it (CUPTI), on a CPU the operators of PyTorch.
    """
    require_torch("--profile")
    profiler = importlib.import_module("torch.profiler")
    words = (label["name"], label["backend"], label["precision"], label.get("call"), label["symbols"])
    name = re.sub(r"[^\w.]+", "-", "-".join(map(str, filter(None, (*words, f"batch{label['batch']}")))))
    folder.mkdir(parents=True, exist_ok=True)
    activities = [profiler.ProfilerActivity.CPU]
    if device != "cpu":
        activities.append(profiler.ProfilerActivity.CUDA)
    try:
        if call.timer:
            call.timer.label = profiler.record_function
        for _ in range(2):  # a profiler's first run takes longer
            wait_for(device)
            with profiler.profile(activities=activities, profile_memory=True) as profile:
                call.run()
                wait_for(device)
    finally:
        if call.timer:
            call.timer.label = None
    profile.export_chrome_trace(str(folder / f"{name}-trace.json.gz"))
    key = f"self_{'cpu' if device == 'cpu' else 'device'}_time_total"
    table = profile.key_averages().table(sort_by=key, row_limit=LONGEST_TABLE)
    write_bytes(folder / f"{name}.txt", table.encode())
    if device != "cpu":
        memory = importlib.import_module("torch").cuda.memory
        memory._record_memory_history(max_entries=MOST_EVENTS)
        try:
            call.run()
            wait_for(device)
            memory._dump_snapshot(str(folder / f"{name}-memory.pickle"))
        finally:
            memory._record_memory_history(enabled=None)
    return str(folder / f"{name}.txt")
