"""Every stage's TensorRT engine against PyTorch on this machine's GPU: how near, how large, how fast.

Networks of the published sizes have seeded random weights: speed and rounding don't depend on what they say.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from common.arrays import Array
from common.bench.models import example_inputs
from common.bench.random_weights import random_source
from common.bench.table import Column, Row, columns_of
from common.bench.timer import timed
from common.config.deployment import Bucket, Deployment
from common.engines import Engine, make_engine
from common.engines.buckets import bucket_roots, fix
from common.engines.tensorrt.api import load_tensorrt
from common.engines.tensorrt.build import build_stage
from common.engines.tensorrt.engine_file import engine_file
from common.registry import get_model
from common.stages import stages_of
from common.weights.voices import ModelSource, load_voice

RUNS, LONGEST_RUNS = 50, 1.0  # timed runs of a shape, and the seconds that they may take


def stage_jobs(
    models: Sequence[str], origins: Sequence[str], precisions: Sequence[str], fixed: bool
) -> list[Row]:
    """A job for each stage in each precision; with `fixed`, engines for one length as well."""
    voice = load_voice().models
    configs = {
        (origin, model): voice[model].config if origin == "voice" else get_model(model).config_class()
        for origin in origins
        for model in models
        if origin != "voice" or model in voice
    }
    return [
        {"origin": origin, "model": model, "stage": stage.name, "precision": precision, "fixed": form}
        for (origin, model), config in configs.items()
        for stage in stages_of(model, config)
        for form in ((False, True) if fixed and bucket_roots(stage) else (False,))
        for precision in precisions
    ]


@functools.cache
def source_of(origin: str, model: str) -> ModelSource:
    return load_voice().models[model] if origin == "voice" else random_source(model)


def check(origin: str, model: str, stage: str, precision: str, fixed: bool, device: str = "cuda") -> Row:
    """One stage: built, run, compared with PyTorch and timed."""
    trt, source = load_tensorrt(), source_of(origin, model)
    declared = next(s for s in stages_of(source.model, source.config) if s.name == stage)
    deployment = Deployment(batch_size=1, use_fp16=precision == "fp16")
    if fixed:
        typical = {d.of or d.name: d.typical // d.times for d in declared.dynamic_dims.values()}
        declared = fix(declared, Bucket(typical.get("text", 0), typical.get("mel", 0)))
    start = time.perf_counter()
    file = engine_file(declared, source, deployment, trt)
    made = build_stage(file, source, trt, False, deployment.trt_max_ws_size)
    row: Row = {"build": time.perf_counter() - start if made else None}
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
        graphed = replace(deployment, trt_cuda_graph=True)
        engine = make_engine(declared, source, "trt", device, None, graphed)
        engine(**inputs)
        row["graph_ms"] = mean_ms(engine, inputs, device) if any(engine._graphs.values()) else None
    return row


def compare(got: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> Row:
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


def mean_ms(engine: Engine, inputs: Mapping[str, Array], device: str) -> float:
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


COLUMNS: tuple[Column, ...] = (
    ("stage", lambda row: f"{row['model']}.{row['stage']}{' (fixed)' if row['fixed'] else ''}"),
    *columns_of(
        "weights: origin",
        "precision: precision",
        "lengths: lengths",
        "error: error .1e",
        "of: scale .2g",
        "build s: build .1f",
        "MB: bytes MB.1",
        "context s: context .2f",
        "first s: first .2f",
        "again s: again .3f",
        "ms: ms .3f",
        "graph ms: graph_ms .3f",
        "torch ms: torch_ms .3f",
    ),
)
