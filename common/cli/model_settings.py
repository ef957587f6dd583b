"""What files and `--set` say of the models that a command runs.

The engines' keys count as they stand (`Deployment`). A network's own sizes belong to its weights: what a file
says of them is checked and gives way, and only an explicit `--set` changes them.
"""

from __future__ import annotations

import argparse
import itertools
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from melforge.common.audio.contract import MelContract
from melforge.common.config.deployment import PRECISIONS, Deployment, on_another
from melforge.common.config.hparams import backend_texts, line, shown
from melforge.common.config.typed import build, require_known, typed_entry
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError, unknown
from melforge.common.registry import get_model
from melforge.common.stages.choose import KERNELS, parse_backends

DEFAULT = "default"
PRECISION = "precision"  # the commands' word for `use_fp16`


@dataclass
class Overlay:
    """The entries of a file or of `--set`: for one model, or without one for every model that runs."""

    where: str
    model: str | None
    entries: dict[str, Entry]
    explicit: bool  # by --set


@dataclass
class ModelSettings:
    """What files and options set for one model; of two entries for a key the later one has won."""

    files: dict[str, Entry] = field(default_factory=dict)
    explicit: dict[str, Entry] = field(default_factory=dict)
    deployment: Deployment = field(default_factory=Deployment)
    overrides: dict[str, Any] = field(default_factory=dict)  # of its config or mel contract

    def place(self, key: str) -> str:
        entry = self.explicit.get(key) or self.files.get(key)
        return entry.place if entry else DEFAULT


def network_classes(model: str) -> list[type]:
    return [get_model(model).config_class, MelContract]


def hints_of(model: str) -> dict[str, Any]:
    return {n: hint for cls in network_classes(model) for n, hint in typing.get_type_hints(cls).items()}


def keys_of(model: str) -> set[str]:
    """The keys that say something of a model."""
    return field_names([Deployment, *network_classes(model)])


def field_names(classes: Iterable[type]) -> set[str]:
    return {f.name for cls in classes for f in fields(cls)}


def resolve(overlays: list[Overlay], chosen: list[str], options: Iterable[str]) -> dict[str, ModelSettings]:
    """The settings of the models that run; `options` are the command's own keys."""
    models = {model: ModelSettings() for model in chosen}
    options = set(options)
    for one in overlays:
        if one.model and one.model not in models:
            raise InputError(f"{one.where}: {one.model} is none of the models here ({', '.join(models)})")
        takers = [one.model] if one.model else chosen
        keys = {model: keys_of(model) for model in takers}
        scoped = one.model and one.explicit  # as `--set fastpitch.key=value`: no option of the command
        require_known(one.entries, set().union(*keys.values(), () if scoped else options))
        for key, entry in one.entries.items():
            # An option of the command is no model's unless it stands in its file, but for the batch size.
            if one.model or key not in options or key == "batch_size":
                for model in takers:
                    if key in keys[model]:
                        (models[model].explicit if one.explicit else models[model].files)[key] = entry
    for model, settings in models.items():
        _type(model, settings)
    return models


def with_half(overlay: Overlay) -> Overlay:
    """What is said of the precision as `use_fp16`; for all models it stays an option of the command too."""
    entries = dict(overlay.entries)
    entry = entries.pop(PRECISION) if overlay.model and PRECISION in entries else entries.get(PRECISION)
    if entry is None or (entry.value is None and not overlay.model):
        return overlay
    if entry.value not in PRECISIONS:
        raise InputError(f"{entry.place}: {unknown(PRECISION, entry.value, PRECISIONS)}")
    half = Entry(entry.value == "fp16", entry.place)
    if entries.setdefault("use_fp16", half).value != half.value:
        raise _contradiction(entry, entries["use_fp16"])
    return replace(overlay, entries={**entries, "use_fp16": half})


def require_one_precision(overlays: Iterable[Overlay]) -> None:
    """An InputError where a command line contradicts itself: it wins over files, but not over itself."""
    explicit = [one.entries for one in overlays if one.explicit and "use_fp16" in one.entries]
    for one, other in itertools.product(explicit, explicit):
        stated = one.get(PRECISION)
        if stated and PRECISION not in other and one["use_fp16"].value != other["use_fp16"].value:
            raise _contradiction(stated, other["use_fp16"])


def _contradiction(precision: Entry, stated: Entry) -> InputError:
    word = str(stated.value).lower()
    return InputError(
        f"{precision.place} says {PRECISION} {precision.value}, but {stated.place} says use_fp16 {word}: "
        "leave one of them out"
    )


def _type(model: str, settings: ModelSettings) -> None:
    for cls in network_classes(model):  # what gives way must still be right
        build(cls, _of(settings.files, field_names([cls])), model)
    hints = hints_of(model)
    settings.overrides = {
        name: typed_entry(name, entry, hints[name]) for name, entry in _of(settings.explicit, hints).items()
    }
    # A key that the network has too, such as mask_padding, is the network's.
    engines = field_names([Deployment]) - hints.keys()
    settings.deployment = build(Deployment, _of(settings.files | settings.explicit, engines), model)
    path, files = settings.explicit.get("trt_file_path"), settings.files.get("trt_file_path_list")
    if path and path.value and files and settings.deployment.trt_multi_engine:
        raise InputError(
            f"{path.place}: {model} has an engine for each bucket, whose files {files.place} names: set "
            "trt_file_path_list, or trt_multi_engine=false for one engine"
        )


def _of(entries: Mapping[str, Entry], names: Iterable[str]) -> dict[str, Entry]:
    return {name: entries[name] for name in names if name in entries}


def choose_backend(models: Mapping[str, ModelSettings], backend: Entry, precision: Entry | None) -> Entry:
    """`use_trt` means the backend trt unless one is given; `use_fp16` is for engines of that one.

    `precision`, said for all models, counts for those that run on it. CUDA kernels compute in half precision.
    """
    on_trt = [model for model, settings in models.items() if settings.deployment.use_trt]
    if on_trt and backend.place == DEFAULT:
        place = models[on_trt[0]].place("use_trt")
        words = {model: "trt" if model in on_trt else backend.value or "onnx" for model in models}
        text = ",".join(f"{model}={word}" for model, word in words.items())
        backend = Entry("trt" if len(on_trt) == len(models) else text, place)
    texts = backend_texts(backend.value or "onnx")
    runs = [parse_backends(by_model(text, models), {model: model for model in models}) for text in texts]
    asked = precision is not None and precision.value is not None
    on_kernels = any(KERNELS in backends.values() for backends in runs)
    if asked and on_kernels and precision.value != "fp16":
        raise InputError(f"{precision.place}: the backend {KERNELS} computes in fp16: leave precision out")
    if asked and not on_kernels and not any("trt" in backends.values() for backends in runs):
        raise InputError(
            f"{precision.place}: precision is for the backend trt, and no model runs on it here: "
            "add --backend trt, or leave precision out"
        )
    for model, settings in models.items():
        word = next((b[model] for b in runs if b[model] == "trt"), runs[0][model])
        if word in ("trt", KERNELS) or not settings.deployment.use_fp16:
            continue
        if asked and settings.place("use_fp16") == precision.place:
            settings.deployment = on_another(settings.deployment)
        else:
            raise InputError(
                f"{models[model].place('use_fp16')}: use_fp16 is for the backend trt, but {model} runs on "
                f"{word}: add --set use_fp16=false"
            )
    return backend


def by_model(text: str, models: Iterable[str]) -> str:
    """ "acoustic=trt" as "fastpitch=trt,tacotron2=trt", where these run."""
    parts = []
    for part in text.split(","):
        word, equals, backend = part.partition("=")
        of_kind = [model for model in models if get_model(model).kind == word.strip()]
        parts += [f"{model}{equals}{backend}" for model in of_kind] or [part]
    return ",".join(parts)


def find_source(args: argparse.Namespace, model: str) -> tuple[Any, str]:
    """The model's weights as they are, and the file that states their sizes."""
    from melforge.common.weights.ears import EAR_FILE, load_ear, stored_source
    from melforge.common.weights.published import read_checkpoints
    from melforge.common.weights.voices import VOICE_FILE, load_voice

    for source in read_checkpoints(args.checkpoint):
        if source.model == model:
            return source, str(source.weights)
    voice, ear = getattr(args, "voice", None), getattr(args, "ear", None)
    source = stored_source(model, voice, ear)
    hears = get_model(model).kind == "recogniser"
    path = load_ear(ear).folder / EAR_FILE if hears else load_voice(voice).folder / VOICE_FILE
    here = path.is_absolute() and path.is_relative_to(Path.cwd())
    return source, str(path.relative_to(Path.cwd()) if here else path)


def describe(model: str, settings: ModelSettings, source: Any, place: str) -> Iterator[str]:
    """A line for each value that holds; `source` is the weights' own, stated in `place`."""
    stored = {f.name: getattr(part, f.name) for part in (source.config, source.mel) for f in fields(part)}
    for f in fields(Deployment):
        if f.name not in stored:
            yield line(f.name, getattr(settings.deployment, f.name), settings.place(f.name))
    hints = hints_of(model)
    for name, value in stored.items():
        asked = settings.files.get(name)
        if name in settings.overrides:
            where = f"{settings.place(name)} ({place} says {shown(value)})"
            yield line(name, settings.overrides[name], where)
        elif asked and typed_entry(name, asked, hints[name]) != value:
            yield line(name, value, f"{place} ({asked.place}, says {shown(asked.value)})")
        else:
            yield line(name, value, place)
