"""verify_trt for every model: the shipped voice's weights, and networks of the published sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common.config.deployment import Deployment
from common.engines.tensorrt.engine_file import needed_stages
from common.export.graph_store import with_graphs
from common.files import write_bytes
from common.registry import get_model
from common.seeded import random_source
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
HEADINGS = (
    "model",
    "weights",
    "precision",
    "tensors",
    "worst",
    "its error",
    "tolerance",
    "output's error",
    "SNR dB",
    "mel",
    "audio's mel",
    "frames",
    "verdict",
)


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
    setup = Setup(
        source=with_graphs(sources[kind], stages),
        backend=backend,
        device=device,
        deployment=deployment,
        patterns=plan_of(model).layers,
    )
    wanders = origin == "published" and model == "tacotron2"
    controls = Controls(step_limit=STEPS, gate_threshold=1.0) if wanders else None
    ordered = {kind: sources[kind] for kind in KINDS}
    found = verify(TEXT, ordered, {kind: setup}, decoder, controls)
    if plots:
        Path(plots).mkdir(parents=True, exist_ok=True)
        write_bytes(Path(plots) / f"verify-{origin}-{model}-{precision}.png", draw(found))
    return {"origin": origin, "model": model, "precision": precision, "report": found.report()}


def lasting(source: ModelSource) -> ModelSource:
    """The network with symbols that last: random weights alone predict that they take no time."""
    spec = FrontendSpec(source.model, {}) if get_model(source.model).kind == "acoustic" else None
    state = dict(source.state)
    for name, value in state.items():
        if "duration_predictor" in name and value.shape == (
            1,
        ):  # the bias of its last layer: log(1 + frames)
            state[name] = np.full(1, math.log(1 + FRAMES), np.float32)
    return replace(source, given_state=state, frontend=spec)


def table_row(row: dict[str, Any]) -> tuple[str, ...]:
    head = (row["model"], row["origin"], row["precision"])
    if "failed" in row:
        return (*head, row["failed"], *[""] * (len(HEADINGS) - 4))
    report = row["report"]
    tensors, speech = report["tensors"], report["speech"]
    worst = max(tensors, key=lambda one: float(one["share"]) / max(one["tolerance"], 1e-12))
    last = next(one for one in reversed(tensors) if one["name"] in RESULTS and not one["layer"])
    return (
        *head,
        str(len(tensors)),
        f"{worst['stage']}: {worst['name']}",
        f"{float(worst['share']):.1e}",
        f"{worst['tolerance']:.0e}",
        f"{float(last['share']):.1e}",
        f"{float(last['snr_db']):.0f}",
        f"{float(speech['mel']):.1e}",
        f"{float(speech['audio_mel']):.1e}",
        "=".join(map(str, sorted(set(speech["frames"])))),
        "ok" if report["ok"] else f"OUT: {report['first_wrong'] or 'the sentence'}",
    )
