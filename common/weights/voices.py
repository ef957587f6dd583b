"""Voices: a folder with voice.yaml becomes a `ModelSource` for each of its models, which engines run."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import yaml

from common.audio.contract import MelContract
from common.errors import InputError, unknown
from common.registry import get_model, names
from common.text import Frontend, get_frontend

VOICE_FILE = "voice.yaml"
DEFAULT_FOLDER = Path(__file__).resolve().parents[2] / "voices"


@dataclass(frozen=True)
class FrontendSpec:
    """A text frontend by its name and constructor options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> Frontend:
        try:
            return get_frontend(self.name, **self.options)
        except TypeError as error:  # an option that this frontend does not have
            raise InputError(f"text frontend {self.name!r}: {error}") from None


@dataclass(frozen=True, eq=False)
class ModelSource:
    """One model that can be run: sizes, weights, graphs, and what the models beside it must agree with."""

    model: str
    config: Any
    weights: Path
    mel: MelContract
    graphs: Mapping[str, Path] = field(default_factory=dict)  # stage name -> ONNX without weights
    frontend: FrontendSpec | None = None  # acoustic models only
    extra: Mapping[str, Any] = field(default_factory=dict)  # what the driver wants, such as pitch_mean
    given_state: Mapping[str, np.ndarray] | None = None  # where `weights` is in a published layout

    words: tuple[str, ...] = ()  # that ask for it on a command line

    # What this source's engines share: torch's network, a graph's session. It goes with the last of them.
    networks: MutableMapping = field(default_factory=WeakValueDictionary)

    @cached_property
    def state(self) -> Mapping[str, np.ndarray]:
        """The weights under the network's own names, in float32. Read once for all engines of this source."""
        return self.given_state if self.given_state is not None else read_weights(self.weights)


@dataclass(frozen=True)
class Voice:
    """What voice.yaml says."""

    name: str
    folder: Path
    models: Mapping[str, ModelSource]
    description: str = ""
    language: str = ""
    licence: str = ""

    def source(self, model: str) -> ModelSource:
        if model not in self.models:
            raise InputError(f"voice {self.name!r} has no {model}; it has {', '.join(self.models)}")
        return self.models[model]

    def models_of(self, kind: str) -> list[str]:
        return [name for name in self.models if get_model(name).kind == kind]


def voices_folder() -> Path:
    return Path(os.environ.get("MELFORGE_VOICES") or DEFAULT_FOLDER)


def list_voices() -> list[str]:
    folder = voices_folder()
    return sorted(path.parent.name for path in folder.glob(f"*/{VOICE_FILE}"))


def load_voice(name_or_path: str | Path | None = None) -> Voice:
    """A voice by its name or its folder's path; without either, the first there is."""
    available = list_voices()
    if name_or_path is None:
        if not available:
            raise InputError(f"there is no voice in {voices_folder()}; give one with --voice FOLDER")
        name_or_path = available[0]
    if str(name_or_path) in available:
        return read_voice(voices_folder() / name_or_path)
    path = Path(name_or_path)
    if (path / VOICE_FILE).is_file():
        return read_voice(path)
    if path.name == VOICE_FILE and path.is_file():
        return read_voice(path.parent)
    if path.is_dir():
        raise InputError(f"{path} is not a voice: it has no {VOICE_FILE}")
    if len(path.parts) > 1:
        raise FileNotFoundError(f"voice folder {path} not found")
    raise InputError(unknown("voice", str(name_or_path), available))


def read_voice(folder: Path) -> Voice:
    file = folder / VOICE_FILE
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from None
    known = ("name", "description", "language", "licence", "frontend", "mel", "models")
    _check_keys(content, known, file, needed=("name", "frontend", "mel", "models"))
    mel = build(MelContract, content["mel"], f"{file}: mel")
    spec = dict(_mapping(content["frontend"], f"{file}: frontend"))
    if "name" not in spec:
        raise InputError(f"{file}: frontend has no name")
    frontend = FrontendSpec(spec.pop("name"), spec)
    models = {
        model: _read_model(model, entry, folder, file, mel, frontend)
        for model, entry in _mapping(content["models"], f"{file}: models").items()
    }
    about = {key: str(content.get(key, "")) for key in ("description", "language", "licence")}
    return Voice(str(content["name"]), folder, models, **about)


def _read_model(
    name: str, entry: Any, folder: Path, file: Path, mel: MelContract, frontend: FrontendSpec
) -> ModelSource:
    where = f"{file}: models.{name}"
    if name not in names():
        raise InputError(f"{file}: {unknown('model', name, names())}")
    model = get_model(name)
    _check_keys(entry, ("config", "weights", "graphs", "extra"), where, needed=("config", "weights"))
    return ModelSource(
        model=name,
        config=build(model.config_class, entry["config"], f"{where}.config"),
        weights=folder / entry["weights"],
        mel=mel,
        graphs={stage: folder / graph for stage, graph in (entry.get("graphs") or {}).items()},
        frontend=frontend if model.kind == "acoustic" else None,
        extra=entry.get("extra") or {},
        words=("--voice", folder.name if folder.parent == voices_folder() else str(folder)),
    )


def _mapping(content: Any, where: str | Path) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise InputError(f"{where} must be a mapping of keys to values")
    return content


def _check_keys(
    content: Any, known: tuple[str, ...], where: str | Path, needed: tuple[str, ...] = ()
) -> None:
    for key in _mapping(content, where):
        if key not in known:
            raise InputError(f"{where}: {unknown('key', key, known)}")
    missing = [key for key in needed if key not in content]
    if missing:
        raise InputError(f"{where}: {', '.join(missing)} is missing")


def build(cls: type, content: Any, where: str) -> Any:
    """A dataclass from a mapping, lists as tuples; an unknown key is an error with the nearest one."""
    _check_keys(content, tuple(f.name for f in fields(cls)), where)
    try:
        return cls(**{key: _tuples(value) for key, value in content.items()})
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from None


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """A safetensors file in float32; missing, damaged and not-a-number weights are ValueErrors."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"weights {path} are missing")
    state = {}
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                state[name] = file.get_tensor(name)
    except (SafetensorError, OSError, TypeError) as error:
        raise InputError(
            f"weights {path} are no whole safetensors file ({path.stat().st_size} bytes): {error}"
        ) from None
    for name, value in state.items():
        if value.dtype.kind == "f":
            if not np.isfinite(value).all():
                raise InputError(f"weights {path}: {name} holds NaN or infinite values; the file is damaged")
            state[name] = np.ascontiguousarray(value, dtype=np.float32)
    return state


def read_metadata(path: Path) -> dict[str, str]:
    """What stands in a safetensors file beside its weights."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} not found")
    try:
        with safe_open(path, framework="np") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"checkpoint {path} is no whole safetensors file ({path.stat().st_size} bytes): {error}"
        ) from None
