"""Ears: a folder with ear.yaml is a voice of one model, a recogniser, which is found and loaded alike."""

from __future__ import annotations

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
    Voice,
    find_folder,
    folders_in,
    found_as,
    homes_of,
    load_voice,
    read_model,
)

EAR_FILE = "ear.yaml"
LANGUAGE_FILE = "language_model.npz"  # which an ear may have beside it
NO_EAR = "none"  # the name that asks for none, where an ear that is there would be taken


@dataclass(frozen=True, kw_only=True)
class EarFile(ModelSection):
    """The keys of ear.yaml: those of its model as in voice.yaml, and what is known of the ear."""

    name: str
    model: str
    description: str = ""
    language: str = ""
    licence: str = ""


def list_ears() -> list[str]:
    return list(folders_in(homes_of("ears"), EAR_FILE))


def no_ear() -> str:
    return f"there is no ear in {' or '.join(map(str, homes_of('ears')))}"


def load_ear(name_or_path: str | Path | None = None) -> Voice:
    """An ear by its name or its folder's path; without either, the first there is.

    What is wrong in its ear.yaml is an InputError with file and line.
    """
    if name_or_path is None and not list_ears():
        raise InputError(
            f"{no_ear()}: give one with --ear FOLDER, or a published file of a recogniser with "
            "--checkpoint FILE"
        )
    folder = find_folder("an ear", name_or_path, homes_of("ears"), EAR_FILE)
    entries = read_yaml(folder / EAR_FILE)
    require_known(entries, [f.name for f in fields(EarFile)])
    file = build(EarFile, entries, folder / EAR_FILE)
    try:
        get_model(file.model, "recogniser")
    except InputError as error:
        raise InputError(f"{entries['model'].place}: {error}") from None
    section = {f.name: entries[f.name].value for f in fields(ModelSection) if f.name in entries}
    source = read_model(file.model, replace(entries["model"], value=section), folder)
    words = ("--ear", found_as(folder, "ears", EAR_FILE))
    language = folder / LANGUAGE_FILE
    source = replace(source, words=words, language_model=language if language.is_file() else None)
    models = {file.model: source}
    return Voice(file.name, folder, models, file.description, file.language, file.licence)


def find_ear(name: str | None) -> Voice | None:
    """The ear of this name or folder, None by the name "none"; without a name the first there is, if any."""
    return None if name == NO_EAR or (name is None and not list_ears()) else load_ear(name)


def stored_source(model: str, voice: str | Path | None, ear: str | Path | None) -> ModelSource:
    """The weights of a model by its name: of a recogniser the ear's, of others the voice's."""
    hears = get_model(model).kind == "recogniser"
    return (load_ear(ear) if hears else load_voice(voice)).source(model)


def read_recogniser(ear: str | Path | None, checkpoints: Sequence[str]) -> ModelSource:
    """The recogniser of published or trained weights, one at most, or else of an ear."""
    if not checkpoints:
        return load_ear(ear).only
    if ear is not None:
        raise InputError("--ear and --checkpoint exclude each other: leave one of them out")
    if len(checkpoints) > 1:
        raise InputError(f"{len(checkpoints)} checkpoints for one recogniser: give one")
    from melforge.common.weights.published import parse_checkpoint, read_checkpoint

    word, path = parse_checkpoint(checkpoints[0])
    return read_checkpoint(path, word or "recogniser")
