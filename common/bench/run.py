"""Measures workloads: rows by worker processes, cold processes, and what the stages compute."""

import contextlib
import gc
import importlib.util
import itertools
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

from melforge.common.bench.machine import (
    ROOT,
    RSS_UNIT,
    child_environment,
    held_bytes,
    peak_bytes,
    reset_peak,
)
from melforge.common.bench.models import SENTENCES, LoadedModels, Measured, Peer, config_of
from melforge.common.bench.profiling import write_profile
from melforge.common.bench.table import Row
from melforge.common.bench.texts import Speaker, measure_texts
from melforge.common.bench.timer import StageTimer, summary, timed
from melforge.common.bench.worker import run_jobs
from melforge.common.bench.workload import ONNX_OPTIONS, Workload
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech

WARM_UPS, LONGEST_WARM_UP = 3, 3.0  # further runs after the first one, and the seconds that they may take
LONGEST_RUNS = 3.0  # seconds that runs may take, beyond the fewest
STAGE_RUNS = 3  # with the stages' timer on
FIRST_RUNS = 10  # of the first audio
MACHINE_LIMIT = 180.0  # seconds
PARAGRAPH = " ".join(SENTENCES[1:])


def measure(
    workloads: Sequence[Workload],
    command: str,
    limit: float,
    budget: float | None = None,
    show: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """What the reports show; `show` is called with each row, which may have a report of the warm-up.

    With `--warm-up` a process that warms up comes before the cold ones, which find the files that it left.
    """
    # First of all, while this process is small: a new process counts the memory of the one it came from.
    cold = [cold_row(workload) for workload in workloads if workload.streams]
    device = next((workload.clock_device for workload in workloads if workload.device != "cpu"), "cpu")
    _, machine = next(run_jobs("melforge.common.bench.machine:describe", [device], MACHINE_LIMIT))
    if "ended" in machine:
        raise InputError(f"this machine's peaks cannot be measured: {machine['ended']}")
    rows = run_workloads(workloads, limit, budget, show)
    add_flops(rows, workloads)
    streamed = [row for row in rows if "stream" in row]
    streams = [{key: row[key] for key in ("name", "backend")} | row.pop("stream") for row in streamed]
    return {"command": command, "machine": machine, "rows": rows, "streams": streams, "cold": cold}


def run_workloads(
    workloads: Sequence[Workload], limit: float, budget: float | None, show: Callable[[Row], None]
) -> list[Row]:
    """A row for each batch size and text length of each workload, in order.

    A row may take `limit` seconds, loading included; after `budget` seconds no further one begins.
    """
    until = time.time() + budget if budget else float("inf")
    rows = []
    for group in groups(workloads):
        jobs = [(workload, until) for workload in group]
        missing = [list(workload.rows()) for workload in group]
        for number, row in run_jobs(
            "melforge.common.bench.run:measure_workload", jobs, limit, group[0].clock_device
        ):
            labels = missing[number]
            found = [label | {"failed": row["ended"]} for label in labels] if "ended" in row else [row]
            del labels[: len(found)]
            for one in found:
                show(one)
                one.pop("warm_up", None)
            rows += found
    return rows


def groups(workloads: Sequence[Workload]) -> list[list[Workload]]:
    """On the CPU, and with texts, a process for each, whose memory and first call are measured; on a GPU one
    for all in succession.
    """

    def key(one: tuple[int, Workload]) -> int:
        number, workload = one
        return number if workload.device == "cpu" or workload.texts else -1

    return [[workload for _, workload in run] for _, run in itertools.groupby(enumerate(workloads), key)]


def add_flops(rows: Sequence[Row], workloads: Sequence[Workload]) -> None:
    """The operations and bytes of each stage's calls, where PyTorch is there to count them."""
    if importlib.util.find_spec("torch") is None:
        return
    from melforge.common.bench.flops import count_flops

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
                weight = 2 if row["precision"] == "fp16" else 4  # bytes
                stage["flops"] = counted["flops"] * stage["calls"]
                stage["bytes"] = (counted["weights"] * weight + counted["values"] * 4) * stage["calls"]


def measure_workload(job: tuple[Workload, float]) -> Iterator[Row]:
    """In a worker: a row for each batch size and text length, with "failed": why where it fails.

    No row begins after the job's time, as `time.time()` has it. The first row has the warm-up's as "warm_up".
    """
    workload, until = job
    device, labels = workload.clock_device, list(workload.rows())
    loaded: Any = None
    load_s, held = 0.0, 0
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
                    held = 0 if device == "cpu" else held_bytes(device)
                    made: Any = Peer(workload) if workload.peer else LoadedModels(workload)
                    if workload.warm_up:
                        label["warm_up"] = [warmed.row for warmed in made.tts.warm_up(*workload.batches)]
                    loaded, load_s = made, time.perf_counter() - begun
                    del made
                if workload.texts:
                    reset_peak(device)
                    speaker = Speaker(workload, loaded.tts, label["batch"])
                    run, timer = speaker.profiled, loaded.timer
                    found = measure_texts(workload, speaker) | {"held_bytes": held_bytes(device) - held}
                else:
                    measured = loaded.measured(label["batch"], label["symbols"])
                    run, timer = measured.run, measured.timer
                    found = measure_row(workload, measured, label["batch"])
                found["memory_bytes"] = peak_bytes(device, loaded.engines)
                if workload.profile:
                    found["profile"] = profile(run, timer, device, workload.profile, label)
                if workload.streams and label["batch"] == 1:
                    found["stream"] = stream(loaded.tts, workload.runs)
                yield label | {"load_s": load_s, **found, "notes": take_notes(caught)}
            except Exception as error:
                failed = {"failed": reason(error), "notes": take_notes(caught)}
                yield from ([label | failed] if loaded else [other | failed for other in labels])
                if not loaded:
                    break
        del loaded
    gc.collect()


def profile(run: Callable[[], Any], timer: StageTimer | None, device: str, folder: Path, label: Row) -> str:
    """Where the profile is, or why there is none: what was measured before counts all the same."""
    try:
        return f"profile: {write_profile(run, timer, device, folder, label)}"
    except Exception as error:
        return f"no profile: {reason(error)}"


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


def measure_row(workload: Workload, measured: Measured, batch: int) -> Row:
    """One batch size and text length."""
    device, runs = workload.clock_device, workload.runs
    (first_s,) = timed(measured.run, 1, device)
    timed(measured.run, WARM_UPS - 1, device, longest=LONGEST_WARM_UP, least=0)
    reset_peak(device)  # in the first call cuDNN tries kernels with as much memory as there is
    output = measured.run()
    seconds = timed(measured.run, runs, device, longest=LONGEST_RUNS)
    latency, samples = summary(seconds), sum(output.samples)
    audio_s = samples / batch / measured.sampling_rate if output.samples else None
    row: Row = {
        # The first call compiles or captures.
        **{"runs": len(seconds), "first_s": first_s, "latency": latency},
        "samples_per_s": samples / latency["mean"] if output.samples else None,
        "frames": sum(output.frames) / batch if output.frames else None,
        "audio_s": audio_s,
        "rtf": audio_s and audio_s / latency["mean"],
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
    """The runtimes' settings of a workload; on a GPU a stream too: the default one cannot be captured."""
    device = workload.clock_device
    if workload.modes.get("torch") == "compile":
        importlib.import_module("torch")._dynamo.reset()
    with onnx_option(workload.modes.get("onnx")):
        if device == "cpu":
            yield
            return
        torch = importlib.import_module("torch")
        if not torch.cuda.is_available():
            raise InputError(f"device {device}: PyTorch sees no GPU here")
        torch.cuda.init()  # before which there are no statistics to reset
        torch.cuda.empty_cache()
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

    engine.session_options = session_options
    try:
        yield
    finally:
        engine.session_options = plain


def stream(tts: TextToSpeech, runs: int) -> dict[str, float]:
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
    row: Row = {"name": workload.target.name, "backend": workload.backend}
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
    parts = {f"load {name}": value for name, value in report["load"].items()}
    parts |= {name: timings[f"{name}_s"] for name in ("text", "acoustic", "vocoder", "join", "write")}
    parts = {"Python, imports, exit": seconds - sum(parts.values()), **parts}
    return row | {"seconds": seconds, "parts": parts, "peak_bytes": peak}


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
