"""Measures workloads, each in a process of its own, and cold processes."""

import contextlib
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from melforge.common.bench.machine import ROOT, RSS_UNIT, child_environment, peak_bytes, reset_peak, versions
from melforge.common.bench.models import SENTENCES, LoadedModels, TimedCall
from melforge.common.bench.peer import Peer
from melforge.common.bench.profiling import write_profile
from melforge.common.bench.report import Row
from melforge.common.bench.texts import measure_texts, median_call
from melforge.common.bench.timer import summary, timed
from melforge.common.bench.worker import run_job
from melforge.common.bench.workload import ONNX_OPTIONS, Workload
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech

WARM_UPS, LONGEST_WARM_UP = 3, 3.0  # further runs after the first one, and the seconds that they may take
LONGEST_RUNS = 3.0  # seconds that runs may take, beyond the fewest
STAGE_RUNS = 3  # with the stages' timer on
FIRST_RUNS = 10  # of the first audio
PARAGRAPH = " ".join(SENTENCES[1:])


def measure(
    workloads: Sequence[Workload],
    limit: float,
    budget: float | None = None,
    show: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """`machine`, `rows`, and of a voice's pairs `streams` and `cold` processes; `show` sees each row.

    With `--warm-up` a process that warms up comes before the cold ones, which find the files that it left;
    the row's "warm_up" is what that took.
    """
    # First of all, while this process is small: a new process counts the memory of the one it came from.
    cold = [cold_row(workload) for workload in workloads if workload.streams]
    rows = run_workloads(workloads, limit, budget, show)
    streamed = [row for row in rows if "stream" in row]
    streams = [{key: row[key] for key in ("name", "backend")} | row.pop("stream") for row in streamed]
    device = next((workload.clock_device for workload in workloads if workload.device != "cpu"), "cpu")
    return {"machine": versions(device), "rows": rows, "streams": streams, "cold": cold}


def run_workloads(
    workloads: Sequence[Workload], limit: float, budget: float | None, show: Callable[[Row], None]
) -> list[Row]:
    """A row for each batch size and text length of each workload, in order.

    Each workload has a process, whose memory and first call are measured. A row may take `limit` seconds,
    loading included; after `budget` seconds no further one begins.
    """
    until = time.time() + budget if budget else float("inf")
    rows = []
    for workload in workloads:
        missing = list(workload.rows())
        for row in run_job(measure_workload, workload, until, limit=limit):
            found = [label | {"failed": row["ended"]} for label in missing] if "ended" in row else [row]
            del missing[: len(found)]
            for one in found:
                show(one)
                one.pop("warm_up", None)
            rows += found
    return rows


def measure_workload(workload: Workload, until: float) -> Iterator[Row]:
    """In a child process: a row for each batch size and text length, with "failed": why where it fails.

    No row begins after `until`, as `time.time()` has it.
    """
    device, labels = workload.clock_device, list(workload.rows())
    loaded: LoadedModels | Peer | None = None
    load_s = 0.0
    with contextlib.ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("default")
        for label in labels:
            try:
                if time.time() > until:
                    raise InputError("left out: the time for all rows was over")
                if loaded is None:
                    begun = time.perf_counter()
                    stack.enter_context(surroundings(workload))
                    reset_peak(device)
                    made = Peer(workload) if workload.peer else LoadedModels(workload)
                    if workload.warm_up and isinstance(made, LoadedModels):
                        label["warm_up"] = [warmed.row for warmed in made.tts.warm_up(*workload.batches)]
                    loaded, load_s = made, time.perf_counter() - begun
                found = _measure(workload, loaded, label)
                yield label | {"load_s": load_s, **found, "notes": take_notes(caught)}
            except Exception as error:
                failed = {"failed": reason(error), "notes": take_notes(caught)}
                yield from ([label | failed] if loaded else [other | failed for other in labels])
                if not loaded:
                    break
    gc.collect()


def _measure(workload: Workload, loaded: LoadedModels | Peer, label: Row) -> Row:
    """One batch size and text length, with its memory, and what else the workload asks for."""
    device, batch = workload.clock_device, label["batch"]
    if workload.texts and isinstance(loaded, LoadedModels):
        reset_peak(device)
        call = TimedCall(median_call(loaded.tts, workload.texts, batch), timer=loaded.timer)
        row = measure_texts(loaded.tts, workload.texts, batch, device)
    else:
        call = loaded.call_of(batch, label["symbols"])
        row = measure_row(workload, call, batch)
    row["memory_bytes"] = peak_bytes(device, loaded.engines)
    if workload.profile:  # what was measured before counts where this fails
        try:
            row["profile"] = f"profile: {write_profile(call, device, workload.profile, label)}"
        except Exception as error:
            row["profile"] = f"no profile: {reason(error)}"
    if workload.streams and batch == 1 and isinstance(loaded, LoadedModels):
        row["stream"] = stream(loaded.tts, workload.runs)
    return row


def take_notes(caught: list[warnings.WarningMessage]) -> list[str]:
    """What our own code warned of since the last time, such as an engine that runs without a graph."""
    ours = [str(one.message) for one in caught if Path(one.filename).is_relative_to(ROOT)]
    caught.clear()
    return list(dict.fromkeys(ours))


def reason(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())[:300]
    plain = type(error) in (InputError, ValueError, FileNotFoundError)
    return text if plain else f"{type(error).__name__}: {text}"


def measure_row(workload: Workload, call: TimedCall, batch: int) -> Row:
    """One batch size and text length, again and again."""
    device, runs = workload.clock_device, workload.runs
    (first_s,) = timed(call.run, 1, device)  # compiles or captures
    timed(call.run, WARM_UPS - 1, device, longest=LONGEST_WARM_UP, least=0)
    reset_peak(device)  # in the first call cuDNN tries kernels with as much memory as there is
    output = call.run()
    seconds = timed(call.run, runs, device, longest=LONGEST_RUNS)
    latency, samples = summary(seconds), sum(output.samples)
    row: Row = {"runs": len(seconds), "first_s": first_s, "latency": latency}
    if output.frames:
        row["frames"] = sum(output.frames) / batch
    if samples:
        row["audio_s"] = samples / batch / call.sampling_rate
        row["samples_per_s"] = samples / latency["p50"]
        row["times_real_time"] = samples / call.sampling_rate / latency["p50"]
    if call.timer:
        few = min(STAGE_RUNS, max(1, int(LONGEST_RUNS / latency["mean"])))
        row |= call.timer.measure(call.run, few, device)
    if call.first_audio:
        firsts = timed(call.first_audio, min(FIRST_RUNS, runs), device, warm_up=2, longest=LONGEST_RUNS)
        row["first_audio"] = summary(firsts)
    return row


@contextlib.contextmanager
def surroundings(workload: Workload) -> Iterator[None]:
    """The runtimes' settings of a workload; on a GPU a stream too: the default one cannot be captured."""
    device = workload.clock_device
    with onnx_option(workload.modes.get("onnx")):
        if device == "cpu":
            yield
            return
        torch = importlib.import_module("torch")
        if not torch.cuda.is_available():
            raise InputError(f"device {device}: PyTorch sees no GPU here")
        torch.cuda.init()  # before which there are no statistics to reset
        torch.backends.cudnn.benchmark = not workload.texts  # it would try kernels for each new length
        for part in (torch.backends.cuda.matmul, torch.backends.cudnn):
            part.allow_tf32 = workload.precision == "tf32"
        with torch.cuda.stream(torch.cuda.Stream(device)):
            yield


@contextlib.contextmanager
def onnx_option(name: str | None) -> Iterator[None]:
    """ONNX Runtime's sessions that are made within have this option."""
    if name is None:
        yield
        return
    engine = importlib.import_module("melforge.common.engines.onnx_engine")
    levels = importlib.import_module("onnxruntime").GraphOptimizationLevel
    plain = engine.session_options

    def session_options(threads: int | None) -> Any:
        options = plain(threads)
        for key, value in ONNX_OPTIONS[name].items():
            if "." in key:
                options.add_session_config_entry(key, value)
            else:
                setattr(options, key, getattr(levels, value) if isinstance(value, str) else value)
        return options

    with mock.patch.object(engine, "session_options", session_options):
        yield


def stream(tts: TextToSpeech, runs: int) -> Row:
    """Time to first audio of a paragraph, and how far ahead of a player the rest stays."""
    firsts, margins, seconds = [], [], 0.0
    for _ in range(runs):
        begun, seconds, margin = time.perf_counter(), 0.0, float("inf")
        for number, chunk in enumerate(tts.stream(PARAGRAPH)):
            arrived = time.perf_counter() - begun
            if number == 0:
                firsts.append(arrived)
            else:
                margin = min(margin, firsts[-1] + seconds - arrived)
            seconds += len(chunk) / tts.sampling_rate
        margins.append(margin)
    row = {"first_audio_s": statistics.median(firsts), "slowest_first_audio_s": max(firsts)}
    return row | {"smallest_margin_s": min(margins), "audio_s": seconds}


def cold_row(workload: Workload) -> Row:
    """A new process of `melforge speak` from start to its wav file: the median of several."""
    row: Row = {"name": workload.subject.name, "backend": workload.backend}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "melforge", "speak", "--text", SENTENCES[0], "--json"]
        command += ["-o", f"{folder}/x.wav", *workload.arguments]
        try:
            if workload.warm_up:
                time_process([*command, "--warm-up"])
            results = [time_process(command) for _ in range(max(3, workload.runs // 2))]
        except ValueError as error:
            return row | {"failed": str(error)}
    seconds, peak, report = sorted(results, key=lambda result: result[0])[len(results) // 2]
    timings = report["phrases"][0]["timings"]
    parts = {f"load_{name}": value for name, value in report["load"].items()}
    parts |= {name: timings[f"{name}_s"] for name in ("text", "acoustic", "vocoder", "join", "write")}
    parts = {"Python_imports_exit": seconds - sum(parts.values()), **parts}
    return row | {"seconds": seconds, "peak_bytes": peak, "parts": parts}


def time_process(command: list[str]) -> tuple[float, int, dict[str, Any]]:
    """Seconds, peak memory in bytes, and the JSON that it printed."""
    environment = child_environment()
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment)
        try:
            # Not process.wait(): only this tells the memory of this one process.
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # SIGTERM came to this process alone
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            raise InputError(f"melforge speak failed: {errors.read().decode().strip()}")
        return seconds, usage.ru_maxrss * RSS_UNIT, json.load(out)
