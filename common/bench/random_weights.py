"""Networks of the published sizes with seeded random weights, to measure speed and rounding."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.bench.workload import GRAPHS
from melforge.common.engines.torch_engine import new_network
from melforge.common.export.to_onnx import ExportedGraphs
from melforge.common.files import config_hash
from melforge.common.registry import get_model
from melforge.common.stages import stages_of
from melforge.common.weights.voices import FrontendSpec, ModelSource

FRAMES = 5  # that a symbol lasts, where `lasting` says so
# Random weights pass noise on as it is: far louder than speech, and clipping it softly would take longer than
# making it.
QUIET = {"sigma": 0.1}


def random_source(model: str, folder: Path = GRAPHS, sizes: Mapping[str, Any] | None = None) -> ModelSource:
    """A network of the published sizes, but for those given; its graphs are kept in a folder."""
    published = get_model(model).config_class()
    config = dataclasses.replace(published, **(sizes or {}))
    name = model if config == published else f"{model}-{config_hash(config)}"
    stages = {stage.name: stage for stage in stages_of(model, config)}
    torch.manual_seed(0)
    network = new_network(next(iter(stages.values())), config)
    with torch.no_grad():
        for parameter, weight in network.named_parameters():
            if parameter.endswith(("end.weight", "end.bias")):  # zeros would leave a flow's net out
                weight.normal_(0, 0.01)
    state = {parameter: value.numpy() for parameter, value in network.state_dict().items()}
    graphs = ExportedGraphs(stages, config, folder / name)
    settings_class = get_model(model).settings_class
    known = {field.name for field in dataclasses.fields(settings_class)}
    settings = settings_class(**{name: value for name, value in QUIET.items() if name in known})
    own = ("hop_length", "n_mel_channels")
    mel = getattr(config, "mel", None) or MelContract(
        **{size: getattr(config, size) for size in own if hasattr(config, size)}
    )
    return ModelSource(model, config, Path(model), mel, graphs, settings=settings, given_state=state)


def lasting(source: ModelSource) -> ModelSource:
    """The source with durations of FRAMES frames: random weights alone predict durations of zero."""
    spec = FrontendSpec(source.model, {}) if get_model(source.model).kind == "acoustic" else None
    state = dict(source.state)
    for name, bias in state.items():
        if "duration_predictor" in name and bias.shape == (1,):  # of its last layer: log(1 + frames)
            state[name] = np.full(1, math.log(1 + FRAMES), np.float32)
    return dataclasses.replace(source, given_state=state, frontend=spec)
