"""Rows of figures: what a child process does with its cases."""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common.bench.cases import Case
from common.bench.clocks import LONGEST_WARM_UP, WARM_UPS, Memory, summary, timed
from common.bench.onnx_options import with_option
from common.bench.speaking import stream
from common.bench.subjects import Loaded, Peer, Subject
from common.cli import options

LONGEST_RUNS = 3.0  # seconds that a figure's runs may take, beyond the fewest
CLOCK_RUNS = 3  # with the engines' clock on
FIRST_RUNS = 10  # of the first audio

ROOT = Path(__file__).resolve().parents[2]
TOO_LATE = "left out: the time for all rows was over"

Row = dict[str, Any]


def measure_case(case: Case, late: Callable[[], bool] = lambda: False) -> Iterator[Row]:
    """A row of figures for each batch size and text length; one that fails says why."""
    labels = list(case.rows())
    with contextlib.ExitStack() as stack:
        begun = time.perf_counter()
        said = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("default")
        try:
            if late():
                raise ValueError(TOO_LATE)
            stack.enter_context(surroundings(case))
            memory = Memory(case.clock_device)
            memory.reset()
            loaded = Peer(case) if case.peer else Loaded(case)
            if case.warm_up:
                options.warm_up(loaded.tts)
        except Exception as error:
            yield from (label | {"failed": reason(error)} for label in labels)
            return
        load_s = time.perf_counter() - begun
        for label in labels:
            try:
                if late():
                    raise ValueError(TOO_LATE)
                subject = loaded.subject(label["batch"], label["symbols"])
                memory.reset()
                figures = measure_row(case, subject, label["batch"])
                figures["memory_bytes"] = memory.peak_bytes(loaded.engines)
                if case.streams and label["batch"] == 1:
                    figures["stream"] = stream(loaded.tts, case.runs)
                yield label | {"load_s": load_s, **figures, "notes": take_notes(said)}
            except Exception as error:
                yield label | {"failed": reason(error), "notes": take_notes(said)}
        del loaded
    gc.collect()


def take_notes(said: list[warnings.WarningMessage]) -> list[str]:
    """What our own code warned of since the last time, such as an engine that runs without a graph."""
    ours = [str(one.message) for one in said if Path(one.filename).is_relative_to(ROOT)]
    said.clear()
    return list(dict.fromkeys(ours))


def measure_row(case: Case, subject: Subject, batch: int) -> Row:
    """The figures of one batch size and text length."""
    device = case.clock_device
    (first_s,) = timed(subject.run, 1, device, 0.0)
    timed(subject.run, WARM_UPS - 1, device, LONGEST_WARM_UP, least=0)
    made = subject.run()
    seconds = timed(subject.run, case.runs, device, LONGEST_RUNS)
    latency = summary(seconds)
    audio_s = sum(made.samples) / batch / subject.sampling_rate
    row: Row = {
        "runs": len(seconds),
        "first_s": first_s,  # of all calls: what is compiled or captured is, here
        "latency": latency,
        "samples_per_s": sum(made.samples) / latency["mean"] if made.samples else None,
        "frames": sum(made.frames) / batch if made.frames else None,
        "audio_s": audio_s if made.samples else None,
        "rtf": audio_s / latency["mean"] if made.samples else None,
    }
    if subject.clock:
        runs = min(CLOCK_RUNS, max(1, int(LONGEST_RUNS / latency["mean"])))
        row |= subject.clock.measure(subject.run, runs, device)
    if subject.first_audio:
        timed(subject.first_audio, 2, device, 0.0)
        firsts = timed(subject.first_audio, min(FIRST_RUNS, case.runs), device, LONGEST_RUNS)
        row["first_audio"] = summary(firsts)
    return row


@contextlib.contextmanager
def surroundings(case: Case) -> Iterator[None]:
    """What is set for a whole process while a case is measured."""
    device = case.clock_device
    if case.modes.get("torch") == "compile":
        importlib.import_module("torch")._dynamo.reset()
    option = case.modes.get("onnx")
    with with_option(option) if option else contextlib.nullcontext():
        if device == "cpu":
            yield
        else:
            with on_gpu(case, device):
                yield


@contextlib.contextmanager
def on_gpu(case: Case, device: str) -> Iterator[None]:
    """Precision, and a stream: on the default one nothing can be captured, and TensorRT waits."""
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise ValueError(f"device {device}: PyTorch sees no GPU here")
    torch.cuda.init()  # before which there are no statistics to reset
    torch.cuda.empty_cache()
    torch.backends.cudnn.benchmark = True
    for part in (torch.backends.cuda.matmul, torch.backends.cudnn):
        part.allow_tf32 = case.precision == "tf32"
    with torch.cuda.stream(torch.cuda.Stream(device)):
        yield


def reason(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())[:300]
    return text if type(error) in (ValueError, FileNotFoundError) else f"{type(error).__name__}: {text}"
