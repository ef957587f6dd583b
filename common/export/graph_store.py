"""Where exported graphs are kept and found again."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from common.engines.torch_engine import build_network
from common.export.to_onnx import (
    EXPORTER_VERSION,
    Check,
    export_source,
    export_stage,
    save_weights,
    source_stages,
)
from common.files import config_hash, exports_folder, sha256_of, write_bytes
from common.stages import Stage
from common.weights.voices import ModelSource


def find_cached(source: ModelSource) -> ModelSource | None:
    """A source with its graphs in the cache, where all of them are there."""
    kept, files = _in_cache(source)
    return kept if all(file.is_file() for file in files) else None


def _in_cache(source: ModelSource) -> tuple[ModelSource, list[Path]]:
    """The source as it lies in the cache, and its files there."""
    made_of = (sha256_of(source.weights)[:20], config_hash(source.config))
    folder = exports_folder() / "-".join((source.model, *made_of, str(EXPORTER_VERSION)))
    weights = folder / "weights.safetensors"
    graphs = {stage.name: folder / f"{stage.name}.onnx" for stage in source_stages(source)}
    kept = dataclasses.replace(source, weights=weights, graphs=graphs, given_state=None)
    return kept, [weights, *graphs.values(), *(graph.with_suffix(".json") for graph in graphs.values())]


def cached_source(source: ModelSource) -> tuple[ModelSource, list[Check]]:
    """A source with graphs in the cache, exported if they are not there yet (then with the checks made)."""
    if cached := find_cached(source):
        return cached, []
    kept, _ = _in_cache(source)
    weights, folder = kept.weights, kept.weights.parent
    for stage in {stage.network: stage for stage in source_stages(source)}.values():
        build_network(stage, source)  # weights that don't fit the config are refused before the long export
    save_weights(weights, source.state)
    try:
        return export_source(kept, folder)
    except Exception:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def with_graphs(source: ModelSource, stages: Iterable[Stage]) -> ModelSource:
    """The source with a graph of each of these stages. What it lacks comes from the cache, and is exported to
    it if need be: a voice need not have the graphs of every form.
    """
    if all(stage.name in source.graphs for stage in stages):
        return source
    kept, _ = cached_source(source)
    if not source.graphs:
        return kept
    return dataclasses.replace(source, graphs={**kept.graphs, **source.graphs})


class ExportedGraphs(Mapping[str, Path]):
    """Graphs of a network's stages in a folder; one that is missing is exported when it is asked for."""

    def __init__(self, stages: Mapping[str, Stage], config: Any, folder: Path):
        self._stages, self._config, self._folder = stages, config, folder

    def __getitem__(self, name: str) -> Path:
        stage = self._stages[name]
        graph = self._folder / f"{name}.onnx"
        note = graph.with_suffix(".json")
        if not graph.is_file() or not note.is_file():
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
