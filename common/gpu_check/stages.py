"""Every stage's TensorRT engine against PyTorch on this machine's GPU: how near, how large, how fast.

Networks of the published sizes have seeded random weights: speed and rounding don't depend on what they say.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.arrays import to_device
from common.config.deployment import Bucket, Deployment
from common.engines import make_engine
from common.engines.buckets import bucket_roots, fix
from common.engines.tensorrt.api import load_tensorrt
from common.engines.tensorrt.build import build_stage
from common.engines.tensorrt.engine_file import engine_file
from common.registry import get_model
from common.seeded import random_source
from common.stages import Stage
from common.weights.voices import ModelSource, load_voice

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


def stage_jobs(
    models: Sequence[str], origins: Sequence[str], precisions: Sequence[str], fixed: bool, graphs: str
) -> list[dict[str, Any]]:
    """A job for each stage in each precision; with `fixed`, engines for one length as well."""
    found = []
    for origin in origins:
        for model in models:
            if origin == "voice" and model not in load_voice().models:
                continue
            for stage in stages_of(model, config_of(origin, model)):
                forms = (False, True) if fixed and bucket_roots(stage) else (False,)
                found += [
                    {
                        "origin": origin,
                        "model": model,
                        "stage": stage.name,
                        "precision": precision,
                        "fixed": form,
                        "graphs": graphs,
                    }
                    for form in forms
                    for precision in precisions
                ]
    return found


@functools.cache
def source_of(origin: str, model: str, graphs: str) -> ModelSource:
    return load_voice().models[model] if origin == "voice" else random_source(model, Path(graphs))


def config_of(origin: str, model: str) -> Any:
    if origin == "voice":
        return load_voice().models[model].config
    return get_model(model).config_class()


def stages_of(model: str, config: Any) -> tuple[Stage, ...]:
    return get_model(model).module("stages").stages(config)


def table_row(row: dict[str, Any]) -> tuple[str, ...]:
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


def check(
    origin: str, model: str, stage: str, precision: str, fixed: bool, graphs: str, device: str = "cuda"
) -> dict[str, Any]:
    """One stage's row: built, run, compared with PyTorch and timed."""
    row: dict[str, Any] = {
        "origin": origin,
        "model": model,
        "stage": stage,
        "precision": precision,
        "fixed": fixed,
    }
    trt, source = load_tensorrt(), source_of(origin, model, graphs)
    stage = next(s for s in stages_of(source.model, source.config) if s.name == stage)
    deployment = Deployment(batch_size=1, use_fp16=precision == "fp16")
    bucket = None
    if fixed:
        typical = {d.of or d.name: d.typical // d.times for d in stage.dynamic_dims.values()}
        bucket = Bucket(typical.get("text", 0), typical.get("mel", 0))
        stage = fix(stage, bucket)
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
