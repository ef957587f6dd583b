"""Published checkpoints, and the weights that a training run wrote, as `ModelSource`s."""

import json
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from melforge.common.audio.contract import MelContract
from melforge.common.config.typed import build_section, typed_options
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError, require_torch, unknown, with_article
from melforge.common.registry import KIND_WORDS, MODELS, ModelSpec, names
from melforge.common.text.frontends import frontend_class
from melforge.common.weights.voices import (
    FrontendSpec,
    ModelSource,
    build_settings,
    read_header,
    read_weights,
)

FRONTEND_OPTIONS = {  # what a FastPitch file states of its text chain -> our frontend's option
    "symbol_set": "symbol_set",
    "text_cleaners": "cleaners",
    "p_arpabet": "p_arpabet",
    "prepend_space_to_text": "prepend_space",
    "append_space_to_text": "append_space",
}
PITCH = ("pitch_mean", "pitch_std")
OF_SPEAKERS = ("speakers", "pitch_means", "pitch_deviations")  # in a training run's info


def parse_checkpoint(value: str | Path) -> tuple[str | None, Path]:
    """`acoustic=FILE` or another kind, a model's `name=FILE`, or FILE alone -> (the word or None, path)."""
    value = str(value)
    word, equals, path = value.partition("=")
    if not equals or "/" in word or Path(value).exists():
        return None, Path(value)
    if word not in (*KIND_WORDS, *MODELS):
        raise InputError(unknown("checkpoint kind", word, (*KIND_WORDS, *MODELS)))
    return word, Path(path)


def read_checkpoints(texts: Iterable[str], wanted: Collection[str] = ()) -> list[ModelSource]:
    """The sources that `--checkpoint` names, in `parse_checkpoint`'s words.

    An InputError where one is of none of the `wanted` models, if any are named.
    """
    sources = [read_checkpoint(path, word) for word, path in map(parse_checkpoint, texts)]
    for source in sources:
        if wanted and source.model not in wanted:
            named = " or ".join(wanted)
            raise InputError(f"checkpoint {source.weights} is a {source.model}, not a {named}")
    return sources


def read_checkpoint(path: Path, kind: str | None = None) -> ModelSource:
    """A file as a source; `kind` (a model's name, or a kind of models) is recognised where it is None."""
    if path.is_dir():
        raise InputError(f"checkpoint {path} is a folder: give the file in it")
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} not found")
    if path.suffix == ".safetensors":
        found, metadata = read_header(path)
        model = _recognise(path, set(found), kind)
        source = _read_trained(path, model, found, metadata)
    else:
        require_torch(f"the published checkpoint {path}")
        from melforge.common.weights.checkpoint import PREFIX, read_pt

        content = read_pt(path)
        states = [content, *(value for value in content.values() if isinstance(value, Mapping))]
        model = _recognise(path, {PREFIX.sub("", str(name)) for state in states for name in state}, kind)
        source = _read_published(path, model, content)
    return replace(source, words=("--checkpoint", f"{model.kind}={path}"))


def _recognise(path: Path, found: Set[str], kind: str | None) -> ModelSpec:
    """The model whose weights have the names `found`; an InputError where it is not of this kind."""
    model = next((one for one in MODELS.values() if not found.isdisjoint(one.marks)), None)
    if model is None:
        raise InputError(
            f"checkpoint {path} is of none of the models known here ({', '.join(names())}); "
            f"it holds {', '.join(sorted(found)[:4]) or 'nothing'}"
        )
    if kind not in (None, model.name, model.kind):
        asked = with_article(KIND_WORDS.get(kind, kind))
        raise InputError(f"checkpoint {path} is a {model.name} ({KIND_WORDS[model.kind]}), not {asked}")
    return model


def _read_published(path: Path, model: ModelSpec, content: Mapping[str, Any]) -> ModelSource:
    checkpoint = model.module("checkpoint").load_checkpoint(path, content=content)
    info, where = checkpoint.info, f"checkpoint {path}"
    if (mel := info.get("mel")) is None:
        stated = {f.name: info[f.name] for f in fields(MelContract) if info.get(f.name) is not None}
        stated.setdefault("n_mel_channels", checkpoint.config.n_mel_channels)
        mel = build_section(MelContract, stated, where)
    pitch = {key: info[key] for key in PITCH if key in info}
    frontend = None
    if model.kind == "acoustic":
        options = {to: Entry(info[key], where) for key, to in FRONTEND_OPTIONS.items() if key in info}
        frontend = FrontendSpec(model.name, typed_options(frontend_class(model.name), options))
    return ModelSource(
        model=model.name,
        config=checkpoint.config,
        weights=path,
        mel=mel,
        frontend=frontend,
        settings=build_settings(model.name, pitch, where),
        given_state=checkpoint.numpy_state(),
        config_file=info.get("config_file"),
    )


def _read_trained(
    path: Path, model: ModelSpec, found: Collection[str], metadata: Mapping[str, str]
) -> ModelSource:
    """What a recipe wrote: safetensors with the config and the mel contract as JSON in its metadata.

    Of the weights `found` in it only those that are settings are read.
    """
    if "config" not in metadata:
        raise InputError(f"checkpoint {path} holds no config: give the weights.safetensors of a training run")
    info = _json(metadata.get("info", "{}"), path)
    values = read_weights(path, [key for key in PITCH if key in found])
    settings: dict[str, Any] = {key: float(value.ravel()[0]) for key, value in values.items()}
    settings |= {key: info[key] for key in OF_SPEAKERS if info.get(key)}
    return ModelSource(
        model=model.name,
        config=build_section(model.config_class, _json(metadata["config"], path), f"{path}: config"),
        weights=path,
        mel=build_section(MelContract, info.get("mel", {}), f"{path}: mel"),
        frontend=FrontendSpec(**info.get("frontend", {"name": "english"}))
        if model.kind == "acoustic"
        else None,
        settings=build_settings(model.name, settings, str(path)),
    )


def _json(text: str, path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"checkpoint {path}: its metadata is no JSON of an object ({error})") from None
