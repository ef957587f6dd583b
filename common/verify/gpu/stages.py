"""Every stage's TensorRT engine against PyTorch on this machine's GPU: how near, how large, how fast.

Networks of the published sizes have seeded random weights: speed and rounding don't depend on what they say.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from common.bench.models import example_inputs
from common.bench.random_weights import random_source
from common.bench.rows import Row
from common.bench.table import Column, value
from common.bench.timer import timed
from common.config.deployment import Bucket, Deployment
from common.engines.backends import make_engine
from common.engines.tensorrt.api import load_tensorrt
from common.engines.tensorrt.build import build_stage
from common.engines.tensorrt.engine_file import engine_file
from common.registry import get_model
from common.stages import Stage, bucket_roots, fix
from common.weights.voices import ModelSource, load_voice

RUNS, LONGEST_RUNS = 50, 1.0  # timed runs of a shape, and the seconds that they may take


def stage_jobs(
    models: Sequence[str], origins: Sequence[str], precisions: Sequence[str], fixed: bool, graphs: str
) -> list[Row]:
    """A job for each stage in each precision; with `fixed`, engines for one length as well."""
    return [
        {
            "origin": origin,
            "model": model,
            "stage": stage.name,
            "precision": precision,
            "fixed": form,
            "graphs": graphs,
        }
        for origin in origins
        for model in models
        if origin != "voice" or model in load_voice().models
        for stage in stages_of(model, config_of(origin, model))
        for form in ((False, True) if fixed and bucket_roots(stage) else (False,))
        for precision in precisions
    ]


@functools.cache
def source_of(origin: str, model: str, graphs: str) -> ModelSource:
    return load_voice().models[model] if origin == "voice" else random_source(model, Path(graphs))


def config_of(origin: str, model: str) -> Any:
    return load_voice().models[model].config if origin == "voice" else get_model(model).config_class()


def stages_of(model: str, config: Any) -> tuple[Stage, ...]:
    return get_model(model).module("stages").stages(config)


def check(
    origin: str, model: str, stage: str, precision: str, fixed: bool, graphs: str, device: str = "cuda"
) -> Row:
    """One stage's row: built, run, compared with PyTorch and timed."""
    row: Row = {"origin": origin, "model": model, "stage": stage, "precision": precision, "fixed": fixed}
    trt, source = load_tensorrt(), source_of(origin, model, graphs)
    declared = next(s for s in stages_of(source.model, source.config) if s.name == stage)
    deployment = Deployment(batch_size=1, use_fp16=precision == "fp16")
    if fixed:
        typical = {d.of or d.name: d.typical // d.times for d in declared.dynamic_dims.values()}
        declared = fix(declared, Bucket(typical.get("text", 0), typical.get("mel", 0)))
    start = time.perf_counter()
    file = engine_file(declared, source, deployment, trt)
    made = build_stage(file, source, trt, False, deployment.trt_max_ws_size)
    row["build"] = time.perf_counter() - start if made else None
    note = json.loads(file.note.read_text())
    row |= {"bytes": note["bytes"], **{key: note["report"][key] for key in ("layers", "warnings")}}
    sizes = {dim.name: dim.typical for dim in declared.dynamic_dims.values()} | {"batch": 1}
    row["lengths"] = ",".join(f"{name} {size}" for name, size in sizes.items() if name != "batch")
    inputs = example_inputs(source, declared, sizes, device)
    reference = make_engine(declared, source, "torch", device)
    wanted = reference(**inputs)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream(device)):
        start = time.perf_counter()
        engine = make_engine(declared, source, "trt", device, None, deployment)
        row["context"] = time.perf_counter() - start
        row["scratch"] = engine.loaded.scratch_bytes
        row["first"], row["again"] = timed(lambda: engine(**inputs), 2, device)
        row |= compare(engine(**inputs), wanted)
        row["ms"] = mean_ms(engine, inputs, device)
        row["torch_ms"] = mean_ms(reference, inputs, device)
        graphed = dataclasses.replace(deployment, trt_cuda_graph=True)
        engine = make_engine(declared, source, "trt", device, None, graphed)
        engine(**inputs)
        row["graph_ms"] = mean_ms(engine, inputs, device) if any(engine._graphs.values()) else None
    return row


def compare(got: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The largest difference of all outputs, by the largest value of its output."""
    errors = {}
    for name, reference in wanted.items():
        value, reference = got[name].double(), reference.double()
        scale = float(reference.abs().max()) if reference.numel() else 0.0
        same = value.shape == reference.shape
        errors[name] = float((value - reference).abs().max()) if same and value.numel() else math.inf, scale
    shares = {name: error / max(scale, 1e-9) for name, (error, scale) in errors.items()}
    worst = max(shares, key=lambda name: (not math.isnan(shares[name]), shares[name]))
    error, scale = errors[worst]
    return {"error": error, "scale": scale, "output": worst, "errors": errors}


def mean_ms(engine: Any, inputs: dict[str, Any], device: str) -> float:
    """Milliseconds of a call, the mean of many in a row."""
    runs = 0

    def calls() -> None:
        nonlocal runs
        start = time.perf_counter()
        while runs < RUNS and time.perf_counter() - start < LONGEST_RUNS:
            engine(**inputs)
            runs += 1

    engine(**inputs)
    (seconds,) = timed(calls, 1, device, events=True)
    return seconds * 1000 / runs


def stage_name(row: Row) -> str:
    return f"{row['model']}.{row['stage']}{' (fixed)' if row['fixed'] else ''}"


COLUMNS: tuple[Column, ...] = (
    ("stage", stage_name),
    ("weights", value("origin")),
    ("precision", value("precision")),
    ("lengths", value("lengths")),
    ("error", value("error", ".1e")),
    ("of", value("scale", ".2g")),
    ("build s", value("build", ".1f")),
    ("MB", value("bytes", lambda size: f"{size / 1e6:.1f}")),
    ("context s", value("context", ".2f")),
    ("first s", value("first", ".2f")),
    ("again s", value("again", ".3f")),
    ("ms", value("ms", ".3f")),
    ("graph ms", value("graph_ms", ".3f")),
    ("torch ms", value("torch_ms", ".3f")),
)
