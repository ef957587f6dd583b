"""Writes a voice folder: weights in half precision, graphs that were checked against PyTorch, voice.yaml."""

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from common.audio.contract import require_same_contract
from common.errors import InputError, unknown
from common.export.to_onnx import Check, export_source, save_weights, source_stages
from common.registry import get_model, load_attribute
from common.speech import Controls
from common.weights.voices import VOICE_FILE, FrontendSpec, ModelSource


def write_voice(
    folder: Path,
    sources: Sequence[ModelSource],
    frontend: FrontendSpec | None = None,
    about: Mapping[str, str] | None = None,
) -> list[Check]:
    """Makes `folder` a voice of these models; its other files stay. Nothing is written unless all is well."""
    first, *others = sources
    for other in others:
        require_same_contract(first.mel, other.mel, (first.model, other.model))
    frontend = frontend or next((source.frontend for source in sources if source.frontend), None)
    if frontend is None:
        raise InputError("a voice needs an acoustic model, or --frontend")
    check_symbols(frontend, sources)
    folder.parent.mkdir(parents=True, exist_ok=True)
    checks: list[Check] = []
    with tempfile.TemporaryDirectory(prefix=".voice-", dir=folder.parent) as name:
        draft = Path(name)
        entries = {}
        for source in sources:
            weights = draft / source.model / "weights.safetensors"
            save_weights(weights, halve(source))
            kept = dataclasses.replace(source, weights=weights, graphs={}, given_state=None, networks={})
            exported, made = export_source(kept, weights.parent)
            checks += made
            entries[source.model] = {
                "config": dataclasses.asdict(source.config),
                "weights": weights.relative_to(draft).as_posix(),
                "graphs": {
                    name: graph.relative_to(draft).as_posix() for name, graph in exported.graphs.items()
                },
                **({"extra": extra} if (extra := set_by_voice(source)) else {}),
            }
        content = {
            "name": folder.name,
            **(about or {}),
            "frontend": {"name": frontend.name, **frontend.options},
            "mel": dataclasses.asdict(first.mel),
            "models": entries,
        }
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
        (draft / VOICE_FILE).write_text(text, encoding="utf-8")
        for source in sources:
            shutil.rmtree(folder / source.model, ignore_errors=True)
            (folder / source.model).parent.mkdir(exist_ok=True)
            (draft / source.model).rename(folder / source.model)
        (draft / VOICE_FILE).replace(folder / VOICE_FILE)
    return checks


def with_setting(sources: Sequence[ModelSource], setting: str, text: str) -> list[ModelSource]:
    """The sources with a model's control set for the voice: `text` is a value, or "model=value"."""
    word, equals, number = text.rpartition("=")
    takers = [s.model for s in sources if setting in get_model(s.model).controls]
    if not takers:
        models = ", ".join(source.model for source in sources)
        raise InputError(f"{setting} {text!r}: none of {models} has this setting")
    if equals and word not in takers:
        raise InputError(f"{setting} {text!r}: {unknown('model with this setting', word, takers)}")
    try:
        value = float(number)
    except ValueError:
        raise InputError(f"{setting} {text!r}: {number!r} is not a number") from None
    Controls(**{setting: value})  # refuses what is out of range
    chosen = [word] if equals else takers
    return [
        dataclasses.replace(s, settings=dataclasses.replace(s.settings, **{setting: value}))
        if s.model in chosen
        else s
        for s in sources
    ]


def set_by_voice(source: ModelSource) -> dict[str, Any]:
    """The settings that are not the model's defaults."""
    values, fields = dataclasses.asdict(source.settings), dataclasses.fields(source.settings)
    return {field.name: values[field.name] for field in fields if values[field.name] != field.default}


def check_symbols(frontend: FrontendSpec, sources: Sequence[ModelSource]) -> None:
    symbols = len(frontend.build().symbols)
    for source in sources:
        known = getattr(source.config, "n_symbols", symbols)
        if known < symbols:
            raise InputError(
                f"{source.weights} knows {known} symbols, the frontend {frontend.name!r} has {symbols}: "
                "it was trained with another frontend"
            )


def halve(source: ModelSource) -> dict[str, np.ndarray]:
    """Parameters in half precision. Buffers are constants, such as angular frequencies, that would suffer."""
    network = load_attribute(source_stages(source)[0].network)(source.config)
    if hasattr(network, "remove_weight_norm"):  # stored weights are folded, and have their constants
        network.remove_weight_norm()
    buffers = {name for name, _ in network.named_buffers()}
    unused = get_model(source.model).training_only
    halved = {}
    for name, value in source.state.items():
        if name.startswith(unused):
            continue
        narrow = name not in buffers and value.dtype.kind == "f"
        halved[name] = value.astype(np.float16) if narrow else value
        if narrow and not np.isfinite(halved[name]).all():
            raise InputError(f"{source.weights}: {name} has values beyond half precision")
    return halved
