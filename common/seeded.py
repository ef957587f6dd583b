"""Graphs of a network's stages, exported when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from common.audio import write_bytes
from common.stages import Stage


class ExportedGraphs(Mapping[str, Path]):
    """Graphs of a network's stages in a folder; one that is missing is exported when it is asked for."""

    def __init__(self, stages: Mapping[str, Stage], config: Any, folder: Path):
        self._stages, self._config, self._folder = stages, config, folder

    def __getitem__(self, name: str) -> Path:
        stage = self._stages[name]
        graph = self._folder / f"{name}.onnx"
        note = graph.with_suffix(".json")
        if not graph.is_file() or not note.is_file():
            from common.export import export_stage

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
