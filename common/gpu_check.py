"""Every stage's TensorRT engine against PyTorch on this machine's GPU: how near, how large, how fast.

Networks of the published sizes have seeded random weights: speed and rounding don't depend on what they say.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.arrays import to_device
from common.build import build_stage, engine_file
from common.deployment import Bucket, Deployment
from common.engines import make_engine
from common.engines.buckets import bucket_roots, fix
from common.engines.tensorrt_module import load_tensorrt
from common.registry import get_model
from common.seeded import random_source
from common.stages import Stage
from common.voices import ModelSource, load_voice

ORIGINS = ("published", "voice")
HEADINGS = (
    "stage",
    "weights",
    "precision",
    "lengths",
    "error",
    "of",
    "build s",
    "MB",
    "context s",
    "first s",
    "again s",
    "ms",
    "graph ms",
    "torch ms",
)
RUNS, LONGEST_RUNS = 50, 1.0  # timed runs of a shape, and the seconds that they may take


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One stage in one precision; with `fixed`, for one length only."""

    origin: str
    model: str
    stage: str
    precision: str
    fixed: bool


def experiments(
    models: Sequence[str], origins: Sequence[str], precisions: Sequence[str], fixed: bool
) -> list[Experiment]:
    found = []
    for origin in origins:
        for model in models:
            if origin == "voice" and model not in load_voice().models:
                continue
            for stage in stages_of(model, config_of(origin, model)):
                found += [Experiment(origin, model, stage.name, p, False) for p in precisions]
                if fixed and bucket_roots(stage):
                    found += [Experiment(origin, model, stage.name, p, True) for p in precisions]
    return found


def config_of(origin: str, model: str) -> Any:
    if origin == "voice":
        return load_voice().models[model].config
    return get_model(model).config_class()


def stages_of(model: str, config: Any) -> tuple[Stage, ...]:
    return get_model(model).module("stages").stages(config)


def run_all(todo: Sequence[Experiment], graphs: Path, out: Path, limit: float) -> list[dict[str, Any]]:
    """The experiments in processes of their own: one that hangs or crashes ends none of the others."""
    results: list[dict[str, Any]] = []
    todo = list(todo)
    while todo:
        command = [
            sys.executable,
            "-m",
            "common.gpu_check",
            json.dumps([dataclasses.astuple(e) for e in todo]),
        ]
        child = subprocess.Popen([*command, str(graphs)], stdout=subprocess.PIPE, text=True)
        done = list(_watch(child, limit))
        results += done
        todo = todo[len(done) :]
        if todo and (child.returncode or not done):
            why = (
                f"no answer within {limit:.0f} s" if child.returncode == -9 else f"status {child.returncode}"
            )
            failed = {**dataclasses.asdict(todo.pop(0)), "failed": why}
            results.append(failed)
            print(_line(failed), flush=True)
        out.write_text(json.dumps(results, indent=1))
    return results


def run_speaking(precisions: Sequence[str], out: Path) -> list[dict[str, Any]]:
    """`speak_pairs` in a process of its own."""
    command = [sys.executable, "-m", "common.gpu_check", "speak", ",".join(precisions)]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    out.write_text(json.dumps(rows, indent=1))
    return rows


def _watch(child: subprocess.Popen, limit: float) -> Iterator[dict[str, Any]]:
    import selectors

    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ)
    while True:
        if not selector.select(timeout=limit):
            child.kill()
            break
        line = child.stdout.readline()
        if not line:
            break
        if line.startswith("{"):
            row = json.loads(line)
            print(_line(row), flush=True)
            yield row
    child.wait()


def _line(row: dict[str, Any]) -> str:
    return "  ".join(row_of(row))


def row_of(row: dict[str, Any]) -> tuple[str, ...]:
    name = f"{row['model']}.{row['stage']}"
    if row["fixed"]:
        name += " (fixed)"
    if "failed" in row:
        return (name, row["origin"], row["precision"], row["failed"], *[""] * (len(HEADINGS) - 4))

    def number(key: str, digits: int) -> str:
        return "" if row.get(key) is None else f"{row[key]:.{digits}f}"

    return (
        name,
        row["origin"],
        row["precision"],
        row["lengths"],
        f"{row['error']:.1e}",
        f"{row['scale']:.2g}",
        number("build", 1),
        f"{row['bytes'] / 1e6:.1f}",
        number("context", 2),
        number("first", 2),
        number("again", 3),
        number("ms", 3),
        number("graph_ms", 3),
        number("torch_ms", 3),
    )


def measure(experiment: Experiment, source: ModelSource, device: str = "cuda") -> dict[str, Any]:
    """One experiment's row."""
    trt = load_tensorrt()
    stage = next(s for s in stages_of(source.model, source.config) if s.name == experiment.stage)
    deployment = Deployment(batch_size=1, use_fp16=experiment.precision == "fp16")
    bucket = None
    if experiment.fixed:
        typical = {d.of or d.name: d.typical // d.times for d in stage.dynamic_dims.values()}
        bucket = Bucket(typical.get("text", 0), typical.get("mel", 0))
        stage = fix(stage, bucket)
    row: dict[str, Any] = dataclasses.asdict(experiment)
    start = time.perf_counter()
    file = engine_file(stage, source, deployment, trt)
    made = build_stage(file, source, trt, False, deployment.trt_max_ws_size)
    row["build"] = time.perf_counter() - start if made else None
    note = json.loads(file.note.read_text())
    row |= {
        "bytes": note["bytes"],
        "layers": note["report"]["layers"],
        "warnings": note["report"]["warnings"],
    }
    sizes = {dim.name: dim.typical for dim in stage.dynamic_dims.values()} | {"batch": 1}
    row["lengths"] = ",".join(f"{name} {size}" for name, size in sizes.items() if name != "batch")
    examples = get_model(stage.model).module("examples")
    inputs = examples.example_inputs(stage, source.config, sizes, np.random.default_rng(0))
    inputs = {name: to_device(value, device) for name, value in inputs.items()}
    reference = make_engine(stage, source, "torch", device)
    wanted = reference(**inputs)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        start = time.perf_counter()
        engine = make_engine(stage, source, "trt", device, None, deployment)
        row["context"] = time.perf_counter() - start
        row["scratch"] = engine.loaded.scratch_bytes
        for key in ("first", "again"):
            start = time.perf_counter()
            got = engine(**inputs)
            torch.cuda.synchronize()
            row[key] = time.perf_counter() - start
        row |= compare(got, wanted)
        row["ms"] = timed(engine, inputs, stream)
        row["torch_ms"] = timed(reference, inputs, stream)
        graphed = dataclasses.replace(deployment, trt_cuda_graph=True)
        engine = make_engine(stage, source, "trt", device, None, graphed)
        engine(**inputs)
        row["graph_ms"] = timed(engine, inputs, stream) if any(engine._graphs.values()) else None
    return row


SENTENCE = (
    "Printing was the first of the arts that anybody could afford, and it has never been dear since then."
)
SPOKEN = (
    "acoustic",
    "vocoder",
    "backends",
    "precision",
    "audio s",
    "first s",
    "ms",
    "x real time",
    "torch ms",
    "copies",
    "difference",
)


def speak_pairs(precisions: Sequence[str], decoders: Sequence[str] = ("steps",)) -> Iterator[dict[str, Any]]:
    """The shipped voice's pairs on TensorRT, and on a mix of backends, against PyTorch on the same GPU."""
    from common.build import engine_files, needed_stages
    from common.runner import TextToSpeech

    voice, trt = load_voice(), load_tensorrt()
    stream = torch.cuda.Stream()
    for acoustic in voice.models_of("acoustic"):
        for vocoder in voice.models_of("vocoder"):
            reference = TextToSpeech.load(acoustic, vocoder, backend="torch", device="cuda")
            wanted = reference.speak(SENTENCE).samples
            torch_ms = best_of(lambda tts=reference: tts.speak(SENTENCE))
            for precision in precisions:
                how = Deployment(use_fp16=precision == "fp16", batch_size=1)
                deployments = {acoustic: how, vocoder: how}
                for model in deployments:
                    source = voice.source(model)
                    for file in engine_files(needed_stages(source, how), source, how, trt):
                        build_stage(file, source, trt, False, how.trt_max_ws_size)
                for backend in ("trt", "acoustic=trt,vocoder=onnx"):
                    row = {
                        "acoustic": acoustic,
                        "vocoder": vocoder,
                        "backend": backend,
                        "precision": precision,
                    }
                    try:
                        with torch.cuda.stream(stream):
                            tts = TextToSpeech.load(
                                acoustic, vocoder, backend=backend, device="cuda", deployments=deployments
                            )
                            start = time.perf_counter()
                            audio = tts.speak(SENTENCE)
                            row["first"] = time.perf_counter() - start
                            row["ms"] = best_of(lambda tts=tts: tts.speak(SENTENCE))
                            row["copies"] = copies_of(lambda tts=tts: tts.speak(SENTENCE))
                        samples = audio.samples
                        row |= {"torch_ms": torch_ms, "audio": len(samples) / audio.sampling_rate}
                        same = len(samples) == len(wanted)
                        row["difference"] = float(np.abs(samples - wanted).max()) if same else None
                        row["samples"] = [len(samples), len(wanted)]
                    except Exception as error:
                        row["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
                    yield row


def best_of(speak: Any, runs: int = 5) -> float:
    """Milliseconds of the fastest of a few calls."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        speak()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def copies_of(speak: Any) -> dict[str, int]:
    """How often a call copied between host and GPU, by direction: "DtoH" and "HtoD"."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        speak()
        torch.cuda.synchronize()
    events = {event.key: event.count for event in found.key_averages() if "Memcpy" in event.key}
    return {way: sum(count for key, count in events.items() if way in key) for way in ("DtoH", "HtoD")}


def spoken_row(row: dict[str, Any]) -> tuple[str, ...]:
    head = (row["acoustic"], row["vocoder"], row["backend"], row["precision"])
    if "failed" in row:
        return (*head, row["failed"], *[""] * (len(SPOKEN) - 5))
    difference = "other length" if row["difference"] is None else f"{row['difference']:.1e}"
    return (
        *head,
        f"{row['audio']:.2f}",
        f"{row['first']:.2f}",
        f"{row['ms']:.2f}",
        f"{row['audio'] / row['ms'] * 1000:.0f}",
        f"{row['torch_ms']:.2f}",
        " ".join(f"{way} {count}" for way, count in row["copies"].items()),
        difference,
    )


def compare(got: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The largest difference of all outputs, by the largest value of its output."""
    rows = []
    for name, reference in wanted.items():
        value, reference = got[name].double(), reference.double()
        scale = float(reference.abs().max()) if reference.numel() else 0.0
        same = value.shape == reference.shape
        error = float((value - reference).abs().max()) if same and value.numel() else float("inf")
        rows.append((error / max(scale, 1e-9), error, scale, name))
    _, error, scale, name = max(rows, key=lambda row: (row[0] == row[0], row[0]))
    each = {name: (error, scale) for _, error, scale, name in rows}
    return {"error": error, "scale": scale, "output": name, "errors": each}


def timed(engine: Any, inputs: dict[str, Any], stream: Any) -> float:
    """Milliseconds of a call, the mean of many in a row."""
    engine(**inputs)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start, runs = time.perf_counter(), 0
    begin.record(stream)
    while runs < RUNS and time.perf_counter() - start < LONGEST_RUNS:
        engine(**inputs)
        runs += 1
    end.record(stream)
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / runs


def main() -> None:
    """What a child process does: experiments from the first argument, a line of JSON for each."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if sys.argv[1] == "speak":
        for row in speak_pairs(sys.argv[2].split(",")):
            print("  ".join(spoken_row(row)), file=sys.stderr, flush=True)
            print(json.dumps(row), flush=True)
        os._exit(0)
    sources: dict[tuple[str, str], ModelSource] = {}
    for values in json.loads(sys.argv[1]):
        experiment = Experiment(*values)
        key = (experiment.origin, experiment.model)
        try:
            if key not in sources:
                voice = experiment.origin == "voice"
                sources[key] = (
                    load_voice().models[key[1]] if voice else random_source(key[1], Path(sys.argv[2]))
                )
            row = measure(experiment, sources[key])
        except Exception as error:
            row = {**dataclasses.asdict(experiment), "failed": f"{type(error).__name__}: {str(error)[:400]}"}
        print(json.dumps(row), flush=True)
    os._exit(0)  # TensorRT may wait for something when Python ends


if __name__ == "__main__":
    main()
