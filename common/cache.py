"""What was built, and where what is built outside voices is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.voices import Voice


def cache_folder() -> Path:
    """$MELFORGE_CACHE, or the platform's folder for caches."""
    if os.environ.get("MELFORGE_CACHE"):
        return Path(os.environ["MELFORGE_CACHE"])
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "melforge"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "melforge"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "melforge"


def exports_folder() -> Path:
    """A folder for each set of weights and config: graphs, and the weights as the graphs name them."""
    return cache_folder() / "onnx"


def engines_folder() -> Path:
    """Where TensorRT's engines lie that were given no place of their own."""
    return cache_folder() / "trt"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def config_hash(config: Any) -> str:
    """A dataclass's values in twelve letters."""
    text = json.dumps(dataclasses.asdict(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclasses.dataclass(frozen=True)
class Built:
    """One file that was exported or built."""

    model: str
    part: str  # a stage, or "weights"
    kind: str  # "graph", "engine" or "weights"
    owner: str  # the voice, or "cache" and the folder there
    file: Path

    @property
    def megabytes(self) -> float:
        return self.file.stat().st_size / 1e6


def list_built(voices: Iterable[Voice]) -> list[Built]:
    """The graphs of these voices, and what lies in the cache."""
    found = [
        Built(model, stage, "graph", voice.name, graph)
        for voice in voices
        for model, source in voice.models.items()
        for stage, graph in source.graphs.items()
        if graph.is_file()
    ]
    for folder in sorted(exports_folder().glob("*-*")):
        model = folder.name.partition("-")[0]
        owner = f"cache {folder.name.removeprefix(f'{model}-')}"
        found += [Built(model, file.stem, "graph", owner, file) for file in sorted(folder.glob("*.onnx"))]
        found += [
            Built(model, "weights", "weights", owner, file) for file in folder.glob("weights.safetensors")
        ]
    for file in sorted(engines_folder().glob("*.*.trt")):  # fastpitch.encoder.fp16.752f466d2832.trt
        model, stage, *rest = file.stem.split(".")
        found.append(Built(model, stage, "engine", f"cache {'.'.join(rest)}", file))
    return found
