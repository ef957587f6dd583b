"""verify_trt for every model: the shipped voice's weights, and networks of the published sizes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common.bench.random_weights import random_source
from common.bench.table import Column, Row, columns_of, counts
from common.bench.workload import GRAPHS
from common.config.deployment import Deployment
from common.engines.tensorrt.engine_file import needed_stages
from common.export.to_onnx import with_graphs
from common.files import write_bytes
from common.registry import get_model
from common.speech import Controls
from common.stages import plan_of
from common.stages.choose import KINDS, pads_masked
from common.verify.report import draw
from common.verify.stages import Setup, verify
from common.weights.voices import FrontendSpec, ModelSource, load_voice

TEXT = "It just works."
FRAMES = 5  # that a symbol of a network with random weights lasts
RESULTS = ("mel", "refined", "audio")  # a model's last output
STEPS = 60  # of a decoder with random weights, which stops at any time


def verify_jobs(
    models: Sequence[str], origins: Sequence[str], precisions: Sequence[str], plots: str, graphs: str
) -> list[dict[str, Any]]:
    """A job for each model in each precision; the largest networks come first."""
    return [
        {"origin": origin, "model": model, "precision": precision, "plots": plots, "graphs": graphs}
        for origin in sorted(origins)
        for model in reversed(list(models))
        for precision in precisions
    ]


def check(
    origin: str,
    model: str,
    precision: str,
    plots: str = "",
    graphs: str | Path = GRAPHS,
    backend: str = "trt",
    device: str = "cuda",
) -> Row:
    """One model: the whole report of `verify`."""
    kind, published = get_model(model).kind, origin == "published"
    source = lasting(random_source(model, Path(graphs))) if published else load_voice().source(model)
    deployment = Deployment(batch_size=1, use_fp16=precision == "fp16")
    deployment = replace(deployment, mask_padding=pads_masked(source, deployment))
    decoder = "steps" if model == "tacotron2" else None
    stages = needed_stages(source, deployment, decoder, backend=backend)
    setup = Setup(with_graphs(source, stages), backend, device, deployment, plan_of(model).layers)
    controls = Controls(step_limit=STEPS, gate_threshold=1.0) if published and decoder else None
    others = dict(zip(KINDS, ("fastpitch", "hifigan"), strict=True))
    sources = {one: source if one == kind else load_voice().source(others[one]) for one in KINDS}
    found = verify(TEXT, sources, {kind: setup}, decoder, controls)
    if plots:
        Path(plots).mkdir(parents=True, exist_ok=True)
        write_bytes(Path(plots) / f"verify-{origin}-{model}-{precision}.png", draw(found))
    return {"report": found.report()}


def lasting(source: ModelSource) -> ModelSource:
    """The network with symbols that last: random weights alone predict that they take no time."""
    spec = FrontendSpec(source.model, {}) if get_model(source.model).kind == "acoustic" else None
    state = dict(source.state)
    for name, bias in state.items():
        if "duration_predictor" in name and bias.shape == (1,):  # of its last layer: log(1 + frames)
            state[name] = np.full(1, math.log(1 + FRAMES), np.float32)
    return replace(source, given_state=state, frontend=spec)


def worst_of(row: Row) -> Row:
    """The tensor that is nearest to its tolerance."""
    return max(row["report"]["tensors"], key=lambda one: float(one["share"]) / max(one["tolerance"], 1e-12))


def output_of(row: Row) -> Row:
    tensors = reversed(row["report"]["tensors"])
    return next(one for one in tensors if one["name"] in RESULTS and not one["layer"])


def verdict_of(row: Row) -> str:
    return "ok" if row["report"]["ok"] else f"OUT: {row['report']['first_wrong'] or 'the sentence'}"


COLUMNS: tuple[Column, ...] = (
    *columns_of("model: model", "weights: origin", "precision: precision"),
    ("tensors", lambda row: str(len(row["report"]["tensors"]))),
    ("worst", lambda row: "{stage}: {name}".format(**worst_of(row))),
    ("worst error", lambda row: f"{float(worst_of(row)['share']):.1e}"),
    ("tolerance", lambda row: f"{worst_of(row)['tolerance']:.0e}"),
    ("output error", lambda row: f"{float(output_of(row)['share']):.1e}"),
    ("SNR dB", lambda row: f"{float(output_of(row)['snr_db']):.0f}"),
    ("mel", lambda row: f"{float(row['report']['speech']['mel']):.1e}"),
    ("audio mel", lambda row: f"{float(row['report']['speech']['audio_mel']):.1e}"),
    ("frames", lambda row: counts(row["report"]["speech"]["frames"])),
    ("verdict", verdict_of),
)
