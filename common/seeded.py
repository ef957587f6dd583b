"""Networks of the published sizes with seeded random weights, where speed and rounding are measured.

They do as much work as trained ones: neither depends on what the weights say.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from common.audio.contract import MelContract
from common.files import config_hash, write_bytes
from common.registry import get_model, load_attribute
from common.stages import Stage
from common.weights.voices import ModelSource


class ExportedGraphs(Mapping[str, Path]):
    """Graphs of a network's stages in a folder; one that is missing is exported when it is asked for."""

    def __init__(self, stages: Mapping[str, Stage], config: Any, folder: Path):
        self._stages, self._config, self._folder = stages, config, folder

    def __getitem__(self, name: str) -> Path:
        stage = self._stages[name]
        graph = self._folder / f"{name}.onnx"
        note = graph.with_suffix(".json")
        if not graph.is_file() or not note.is_file():
            from common.export.to_onnx import export_stage

            content, weights = export_stage(stage, self._config)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes(graph, content)
            write_bytes(note, json.dumps({"weights": weights}).encode())
        return graph

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __contains__(self, name: object) -> bool:  # without exporting it
        return name in self._stages


def random_source(model: str, folder: Path, sizes: Mapping[str, Any] | None = None) -> ModelSource:
    """A network of the published sizes, but for those given; its graphs are kept in a folder."""
    published = get_model(model).config_class()
    config = dataclasses.replace(published, **(sizes or {}))
    name = model if config == published else f"{model}-{config_hash(config)}"
    stages = {stage.name: stage for stage in get_model(model).module("stages").stages(config)}
    torch.manual_seed(0)
    network = load_attribute(next(iter(stages.values())).network)(config)
    if hasattr(network, "remove_weight_norm"):
        network.remove_weight_norm()
    with torch.no_grad():
        for parameter, weight in network.named_parameters():
            if parameter.endswith(("end.weight", "end.bias")):  # zeros would leave a flow's net out
                weight.normal_(0, 0.01)
    state = {parameter: value.numpy() for parameter, value in network.state_dict().items()}
    graphs = ExportedGraphs(stages, config, folder / name)
    return ModelSource(model, config, Path(model), MelContract(), graphs, given_state=state)
