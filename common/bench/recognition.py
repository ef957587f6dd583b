"""Speed of a recogniser: audio on the host to labels on the host, by length, batch, backend and precision."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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
Row = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """What is measured, and how often; a measurement of one row ends after `longest` seconds."""

    backends: Sequence[str]
    precisions: Sequence[str]  # fp32, or fp16 on trt and on torch with a GPU; fp16 alone on cuda
    seconds: Sequence[float]  # of audio
    batches: Sequence[int]
    device: str = "auto"
    threads: int | None = None
    runs: int = 100
    longest: float = 20.0


def measure(source: ModelSource, how: Measurement) -> Iterator[Row]:
    """A row for each backend, precision, length and batch: seconds of a call, what it does in a second."""
    for word in how.backends:
        if word not in BACKENDS:
            raise InputError(unknown("backend", word, BACKENDS))
        backend, mode = BACKENDS[word]
        device = pick_device(backend) if how.device == "auto" else how.device
        for precision in how.precisions:
            half = precision == "fp16"
            if (half and (backend == "onnx" or device == "cpu")) or (backend == KERNELS and not half):
                continue
            for seconds in how.seconds:
                yield from _measure_length(source, how, (word, backend, mode), device, half, seconds)


def _measure_length(
    source: ModelSource,
    how: Measurement,
    run_by: tuple[str, str, str | None],
    device: str,
    half: bool,
    seconds: float,
) -> Iterator[Row]:
    word, backend, mode = run_by
    samples = round(seconds * source.config.sampling_rate)
    deployment = Deployment()
    if backend == "trt":
        frames = source.config.padded_frames(samples)
        deployment = Deployment(
            batch_size=max(how.batches),
            precision="fp16" if half else "fp32",
            trt_cuda_graph=mode == "graph",
            trt_max_output_seq_len=frames,
        )
        from melforge.common.bench.models import build_engines

        build_engines(source, deployment, form_of(source))
    timer = StageTimer()
    watch = functools.partial(_watched, timer, mode if backend == "torch" else None, half)
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
        taken = timed(call, how.runs, device, warm_up=WARM_UP, longest=how.longest)
        found = summary(taken)
        apart = functools.partial(_hear_apart, recogniser, audios)
        apart()  # each stage's own graph is captured
        stages = timer.measure(apart, STAGE_RUNS, device)["stages"]
        yield {
            "model": source.model,
            "backend": word,
            "precision": "fp16" if half else "fp32",
            "device": device,
            "seconds": seconds,
            "batch": batch,
            "runs": len(taken),
            **found,
            "recordings_per_second": batch / found["mean"],
            "times_real_time": batch * seconds / found["mean"],
            "stages": {one["stage"]: one["seconds"] for one in stages},
        }


def _hear_apart(recogniser: Recogniser, audios: Sequence[np.ndarray]) -> None:
    """Stage by stage, where a call would have all of them in one CUDA graph."""
    features = recogniser.extract(audios)
    recogniser.decode(recogniser.encode(features), features.outputs)


def _watched(timer: StageTimer, mode: str | None, half: bool, engine: Engine) -> Engine:
    if engine.backend == "torch" and (mode or half):
        from melforge.common.bench.torch_modes import in_mode

        engine = in_mode(engine, mode, half)
    return WatchedEngine(engine, timer)
