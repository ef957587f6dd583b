"""Speed of a recogniser: audio on the host to labels on the host, by length, batch, backend and precision."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from melforge.common.bench.machine import versions
from melforge.common.bench.models import build_engines, run_as
from melforge.common.bench.report import Columns, Report, ResultTable, Row, by, latency_panel, ms
from melforge.common.bench.timer import StageTimer, WatchedEngine, summary, timed
from melforge.common.config.deployment import Deployment
from melforge.common.engines import Engine
from melforge.common.errors import InputError, unknown
from melforge.common.recognition.loading import form_of, make_recogniser
from melforge.common.recognition.recogniser import Recogniser
from melforge.common.stages.choose import KERNELS
from melforge.common.synthesis.loading import pick_device
from melforge.common.weights.voices import ModelSource

# How a backend is run: its name, and the mode of its stages.
BACKENDS = {
    **{"onnx": ("onnx", None), "torch": ("torch", None), "trt": ("trt", None)},
    **{"torch-graph": ("torch", "graph"), "torch-compile": ("torch", "compile")},
    # cuDNN tries its algorithms for each shape: how NVIDIA's inference program runs with --cudnn_benchmark.
    **{"torch-tuned": ("torch", "tuned"), "trt-graph": ("trt", "graph"), "cuda": (KERNELS, None)},
}
WARM_UP = 3  # runs before those that are timed
STAGE_RUNS = 5  # more, for the time of each stage
COLUMNS: Columns = {
    "backend": "backend",
    "precision": "precision",
    "audio s": "seconds g",
    "batch": "batch",
    "runs": "runs",
    "50 % ms": "latency.p50 ms",
    "95 % ms": "latency.p95 ms",
    "99 % ms": "latency.p99 ms",
    "recordings/s": "recordings_per_second .1f",
    "x real time": "times_real_time .0f",
}


@dataclass(frozen=True)
class RecogniserWorkload:
    """What is measured, and how often; a row ends after `longest` seconds."""

    backends: Sequence[str]
    precisions: Sequence[str]  # fp32, or fp16 on trt and on torch with a GPU; fp16 alone on cuda
    seconds: Sequence[float]  # of audio
    batches: Sequence[int]
    device: str = "auto"
    threads: int | None = None
    runs: int = 100
    longest: float = 20.0


def measure(source: ModelSource, how: RecogniserWorkload) -> Iterator[Row]:
    """A row for each backend, precision, length and batch: seconds of a call, what it does in a second."""
    for word in how.backends:
        if word not in BACKENDS:
            raise InputError(unknown("backend", word, BACKENDS))
    for word, precision, seconds in itertools.product(how.backends, how.precisions, how.seconds):
        backend, mode = BACKENDS[word]
        device = pick_device(backend) if how.device == "auto" else how.device
        half = precision == "fp16"
        if (half and (backend == "onnx" or device == "cpu")) or (backend == KERNELS and not half):
            continue
        row = {"model": source.model, "backend": word, "precision": precision, "device": device}
        for found in _measure_length(source, how, (backend, mode), device, half, seconds):
            yield row | found


def _measure_length(
    source: ModelSource,
    how: RecogniserWorkload,
    run_by: tuple[str, str | None],
    device: str,
    half: bool,
    seconds: float,
) -> Iterator[Row]:
    backend, mode = run_by
    samples = round(seconds * source.config.sampling_rate)
    deployment, timer = Deployment(), StageTimer()
    if backend == "trt":
        deployment = Deployment(
            batch_size=max(how.batches),
            precision="fp16" if half else "fp32",
            trt_cuda_graph=mode == "graph",
            trt_max_output_seq_len=source.config.padded_frames(samples),
        )
        build_engines(source, deployment, form_of(source))

    def watch(engine: Engine) -> Engine:
        return WatchedEngine(run_as(engine, mode, half), timer)

    fresh = replace(source, networks=type(source.networks)())  # a precision is its networks' own
    recogniser = make_recogniser(fresh, backend, device, how.threads, deployment, watch)
    longest = recogniser.longest_samples
    if not 1 <= samples <= longest:
        rate = source.config.sampling_rate
        raise InputError(f"--seconds {seconds:g}: the recogniser takes up to {longest / rate:g} s at a time")
    rng = np.random.default_rng(0)
    for batch in how.batches:
        if batch > recogniser.largest_batch:
            continue
        audios = list((0.1 * rng.standard_normal((batch, samples))).astype(np.float32))
        call = functools.partial(recogniser.hear, audios)
        latency = timed(call, how.runs, device, warm_up=WARM_UP, longest=how.longest)
        found = summary(latency)
        apart = functools.partial(_hear_apart, recogniser, audios)
        apart()  # each stage's own graph is captured
        stages = timer.measure(apart, STAGE_RUNS, device)["stages"]
        yield {
            "seconds": seconds,
            "batch": batch,
            "runs": len(latency),
            "latency": found,
            "recordings_per_second": batch / found["p50"],
            "times_real_time": batch * seconds / found["p50"],
            "stages": {one["stage"]: one["seconds"] for one in stages},
        }


def _hear_apart(recogniser: Recogniser, audios: Sequence[np.ndarray]) -> None:
    """Stage by stage, where a call would have all of them in one CUDA graph."""
    features = recogniser.extract(audios)
    recogniser.decode(recogniser.encode(features), features.outputs)


def line(row: Row) -> str:
    """A row in short, to show progress."""
    what = f"{label_of(row)}, {row['seconds']:g} s, batch {row['batch']}"
    return f"{what}: {ms(row['latency']['p50'])} ms, {row['times_real_time']:.0f} times real time"


def report_of(rows: Sequence[Row], command: str, device: str) -> Report:
    panels = []
    for seconds, some in by(rows, lambda row: f"{row['seconds']:g} s").items():
        panels += latency_panel(seconds, ("batch size", "batch"), some, "latency", label_of, {"p50": ""})
    tables = [ResultTable(model, COLUMNS, some) for model, some in by(rows, lambda row: row["model"]).items()]
    return Report(command, "", versions(device), {"rows": list(rows)}, tables, panels)


def label_of(row: Row) -> str:
    return f"{row['backend']} {row['precision']}"
