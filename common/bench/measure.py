"""Rows of measurements: what a worker does with a workload."""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common.bench.end_to_end import stream
from common.bench.machine import peak_bytes, reset_peak
from common.bench.models import LoadedModels, Measured
from common.bench.onnx_options import with_option
from common.bench.peer import Peer
from common.bench.rows import Row
from common.bench.timer import summary, timed
from common.bench.workload import Workload
from common.errors import InputError

WARM_UPS, LONGEST_WARM_UP = 3, 3.0  # further runs after the first one, and the seconds that they may take
LONGEST_RUNS = 3.0  # seconds that runs may take, beyond the fewest
STAGE_RUNS = 3  # with the stages' timer on
FIRST_RUNS = 10  # of the first audio

ROOT = Path(__file__).resolve().parents[2]
TOO_LATE = "left out: the time for all rows was over"


def measure(job: tuple[Workload, float]) -> Iterator[Row]:
    """The rows of a workload, none of which begins after a time (as `time.time()` has it)."""
    workload, until = job
    return measure_workload(workload, lambda: time.time() > until)


def measure_workload(workload: Workload, late: Callable[[], bool] = lambda: False) -> Iterator[Row]:
    """A row for each batch size and text length; one that fails says why.

    Where it warms up, the first one has what that took as "warm_up".
    """
    device, labels = workload.clock_device, list(workload.rows())
    with contextlib.ExitStack() as stack:
        begun = time.perf_counter()
        said = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("default")
        try:
            if late():
                raise InputError(TOO_LATE)
            stack.enter_context(surroundings(workload))
            reset_peak(device)
            loaded: Any = Peer(workload) if workload.peer else LoadedModels(workload)
            if workload.warm_up:
                labels[0]["warm_up"] = [warmed.row for warmed in loaded.tts.warm_up()]
        except Exception as error:
            yield from (label | {"failed": reason(error)} for label in labels)
            return
        load_s = time.perf_counter() - begun
        for label in labels:
            try:
                if late():
                    raise InputError(TOO_LATE)
                measured = loaded.measured(label["batch"], label["symbols"])
                reset_peak(device)
                found = measure_row(workload, measured, label["batch"])
                found["memory_bytes"] = peak_bytes(device, loaded.engines)
                if workload.streams and label["batch"] == 1:
                    found["stream"] = stream(loaded.tts, workload.runs)
                yield label | {"load_s": load_s, **found, "notes": take_notes(said)}
            except Exception as error:
                yield label | {"failed": reason(error), "notes": take_notes(said)}
        del loaded
    gc.collect()


def take_notes(said: list[warnings.WarningMessage]) -> list[str]:
    """What our own code warned of since the last time, such as an engine that runs without a graph."""
    ours = [str(one.message) for one in said if Path(one.filename).is_relative_to(ROOT)]
    said.clear()
    return list(dict.fromkeys(ours))


def measure_row(workload: Workload, measured: Measured, batch: int) -> Row:
    """One batch size and text length."""
    device, runs = workload.clock_device, workload.runs
    (first_s,) = timed(measured.run, 1, device)
    timed(measured.run, WARM_UPS - 1, device, longest=LONGEST_WARM_UP, least=0)
    output = measured.run()
    seconds = timed(measured.run, runs, device, longest=LONGEST_RUNS)
    latency = summary(seconds)
    audio_s = sum(output.samples) / batch / measured.sampling_rate
    row: Row = {
        "runs": len(seconds),
        "first_s": first_s,  # of all calls: what is compiled or captured is, here
        "latency": latency,
        "samples_per_s": sum(output.samples) / latency["mean"] if output.samples else None,
        "frames": sum(output.frames) / batch if output.frames else None,
        "audio_s": audio_s if output.samples else None,
        "rtf": audio_s / latency["mean"] if output.samples else None,
    }
    if measured.timer:
        few = min(STAGE_RUNS, max(1, int(LONGEST_RUNS / latency["mean"])))
        row |= measured.timer.measure(measured.run, few, device)
    if measured.first_audio:
        firsts = timed(measured.first_audio, min(FIRST_RUNS, runs), device, warm_up=2, longest=LONGEST_RUNS)
        row["first_audio"] = summary(firsts)
    return row


@contextlib.contextmanager
def surroundings(workload: Workload) -> Iterator[None]:
    """What is set for a whole process while a workload is measured."""
    device, option = workload.clock_device, workload.modes.get("onnx")
    if workload.modes.get("torch") == "compile":
        importlib.import_module("torch")._dynamo.reset()
    with with_option(option) if option else contextlib.nullcontext():
        if device == "cpu":
            yield
        else:
            with on_gpu(device, workload.precision == "tf32"):
                yield


@contextlib.contextmanager
def on_gpu(device: str, tf32: bool) -> Iterator[None]:
    """Precision, and a stream: on the default one nothing can be captured, and TensorRT waits."""
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise InputError(f"device {device}: PyTorch sees no GPU here")
    torch.cuda.init()  # before which there are no statistics to reset
    torch.cuda.empty_cache()
    torch.backends.cudnn.benchmark = True
    for part in (torch.backends.cuda.matmul, torch.backends.cudnn):
        part.allow_tf32 = tf32
    with torch.cuda.stream(torch.cuda.Stream(device)):
        yield


def reason(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, InputError | FileNotFoundError) else f"{type(error).__name__}: {text}"
