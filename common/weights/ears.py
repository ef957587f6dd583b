"""Ears: a folder with ear.yaml becomes the `ModelSource` of a recogniser."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from melforge.common.config.typed import build, require_known
from melforge.common.config.yaml_file import read_yaml
from melforge.common.errors import InputError
from melforge.common.registry import get_model
from melforge.common.weights.voices import (
    ModelSection,
    ModelSource,
    find_folder,
    load_voice,
    names_in,
    read_model,
)

EAR_FILE = "ear.yaml"
NO_EAR = "none"  # the name of none, where an ear that is there would be taken
DEFAULT_FOLDER = Path(__file__).resolve().parents[2] / "ears"


@dataclass(frozen=True)
class EarFile:
    """The keys of ear.yaml, the model's as in voice.yaml; paths are seen from the ear's folder."""

    name: str
    model: str
    config: dict
    weights: Path
    graphs: dict[str, Path] | None = None
    extra: dict | None = None
    description: str = ""
    language: str = ""
    licence: str = ""


@dataclass(frozen=True)
class Ear:
    """What ear.yaml says."""

    name: str
    folder: Path
    source: ModelSource
    description: str = ""
    language: str = ""
    licence: str = ""


def ears_folder() -> Path:
    return Path(os.environ.get("MELFORGE_EARS") or DEFAULT_FOLDER)


def list_ears() -> list[str]:
    return names_in(ears_folder(), EAR_FILE)


def load_ear(name_or_path: str | Path | None = None) -> Ear:
    """An ear by its name or its folder's path; without either, the first there is."""
    if name_or_path is None and not list_ears():
        raise InputError(
            f"there is no ear in {ears_folder()}: give one with --ear FOLDER, or a published file of a "
            "recogniser with --checkpoint FILE"
        )
    return read_ear(find_folder("an ear", name_or_path, ears_folder(), EAR_FILE))


def find_ear(name: str | None) -> Ear | None:
    """The ear of this name or folder, None by the name "none"; without a name the first there is, if any."""
    return None if name == NO_EAR or (name is None and not list_ears()) else load_ear(name)


def read_ear(folder: Path) -> Ear:
    """An ear's folder as its ear.yaml says. What is wrong in it is an InputError with file and line."""
    path = folder / EAR_FILE
    entries = read_yaml(path)
    require_known(entries, [f.name for f in fields(EarFile)])
    file = build(EarFile, entries, path)
    try:
        get_model(file.model, "recogniser")
    except InputError as error:
        raise InputError(f"{entries['model'].place}: {error}") from None
    section = {f.name: entries[f.name].value for f in fields(ModelSection) if f.name in entries}
    source = read_model(file.model, replace(entries["model"], value=section), folder)
    words = ("--ear", folder.name if folder.parent == ears_folder() else str(folder))
    return Ear(file.name, folder, replace(source, words=words), file.description, file.language, file.licence)


def stored_source(model: str, voice: str | Path | None, ear: str | Path | None) -> ModelSource:
    """The weights of a model by its name: of a recogniser the ear's, of others the voice's."""
    if get_model(model).kind != "recogniser":
        return load_voice(voice).source(model)
    source = load_ear(ear).source
    if source.model != model:
        raise InputError(f"the ear {ear or ''} is a {source.model}, not a {model}")
    return source


def read_recogniser(ear: str | Path | None, checkpoints: Sequence[str]) -> ModelSource:
    """The recogniser of published or trained weights, one at most, or else of an ear."""
    if not checkpoints:
        return load_ear(ear).source
    if ear is not None:
        raise InputError("--ear and --checkpoint exclude each other: leave one of them out")
    if len(checkpoints) > 1:
        raise InputError(f"{len(checkpoints)} checkpoints for one recogniser: give one")
    from melforge.common.weights.published import parse_checkpoint, read_checkpoint

    word, path = parse_checkpoint(checkpoints[0])
    return read_checkpoint(path, word or "recogniser")
