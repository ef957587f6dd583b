"""verify_trt for every model: the shipped voice's weights, and networks of the published sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common.bench.random_weights import random_source
from common.bench.rows import Row
from common.bench.table import Column, counts, value
from common.config.deployment import Deployment
from common.engines.tensorrt.engine_file import needed_stages
from common.export.to_onnx import with_graphs
from common.files import write_bytes
from common.registry import get_model
from common.speech import Controls
from common.stages import plan_of
from common.stages.choose import KINDS, pads_masked
from common.verify.report import draw
from common.weights.voices import FrontendSpec, ModelSource, load_voice

TEXT = "It just works."
FRAMES = 5  # that a symbol of a network with random weights lasts
RESULTS = ("mel", "refined", "audio")  # a model's last output
STEPS = 60  # of a decoder with random weights, which stops at any time


def verify_jobs(
    models: Sequence[str], origins: Sequence[str], precisions: Sequence[str], graphs: str, plots: str
) -> list[dict[str, Any]]:
    """A job for each model in each precision; the largest networks come first."""
    return [
        {"origin": origin, "model": model, "precision": precision, "graphs": graphs, "plots": plots}
        for origin in sorted(origins)
        for model in reversed(list(models))
        for precision in precisions
    ]


def check(
    origin: str,
    model: str,
    precision: str,
    graphs: str,
    plots: str = "",
    backend: str = "trt",
    device: str = "cuda",
) -> dict[str, Any]:
    """One model's row, with the whole report of `verify`."""
    sources = {get_model(name).kind: load_voice().source(name) for name in ("fastpitch", "hifigan")}
    kind = get_model(model).kind
    source = lasting(random_source(model, Path(graphs))) if origin == "published" else None
    sources[kind] = source or load_voice().source(model)
    deployment = Deployment(batch_size=1, use_fp16=precision == "fp16")
    deployment = replace(deployment, mask_padding=pads_masked(sources[kind], deployment))
    decoder = "steps" if model == "tacotron2" else None
    stages = needed_stages(sources[kind], deployment, decoder, backend=backend)
    setup = stages.Setup(
        source=with_graphs(sources[kind], stages),
        backend=backend,
        device=device,
        deployment=deployment,
        patterns=plan_of(model).layers,
    )
    wanders = origin == "published" and model == "tacotron2"
    controls = Controls(step_limit=STEPS, gate_threshold=1.0) if wanders else None
    ordered = {kind: sources[kind] for kind in KINDS}
    found = stages.verify(TEXT, ordered, {kind: setup}, decoder, controls)
    if plots:
        Path(plots).mkdir(parents=True, exist_ok=True)
        write_bytes(Path(plots) / f"verify-{origin}-{model}-{precision}.png", draw(found))
    return {"origin": origin, "model": model, "precision": precision, "report": found.report()}


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


def speech_of(row: Row) -> Row:
    return row["report"]["speech"]


def verdict_of(row: Row) -> str:
    return "ok" if row["report"]["ok"] else f"OUT: {row['report']['first_wrong'] or 'the sentence'}"


COLUMNS: tuple[Column, ...] = (
    ("model", value("model")),
    ("weights", value("origin")),
    ("precision", value("precision")),
    ("tensors", lambda row: str(len(row["report"]["tensors"]))),
    ("worst", lambda row: "{stage}: {name}".format(**worst_of(row))),
    ("its error", lambda row: f"{float(worst_of(row)['share']):.1e}"),
    ("tolerance", lambda row: f"{worst_of(row)['tolerance']:.0e}"),
    ("output's error", lambda row: f"{float(output_of(row)['share']):.1e}"),
    ("SNR dB", lambda row: f"{float(output_of(row)['snr_db']):.0f}"),
    ("mel", lambda row: f"{float(speech_of(row)['mel']):.1e}"),
    ("audio's mel", lambda row: f"{float(speech_of(row)['audio_mel']):.1e}"),
    ("frames", lambda row: counts(speech_of(row)["frames"])),
    ("verdict", verdict_of),
)
