"""What files and `--set` say of the models that a command runs.

The engines' keys count as they stand (`Deployment`). A network's own sizes belong to its weights: what a file
says of them is checked and gives way, and only an explicit `--set` changes them.
"""

from __future__ import annotations

import argparse
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from melforge.common.audio.contract import MelContract
from melforge.common.config.deployment import Deployment
from melforge.common.config.hparams import backend_texts, line, shown
from melforge.common.config.typed import build, require_known, typed_entry
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError
from melforge.common.registry import get_model
from melforge.common.stages.choose import KERNELS, KINDS, parse_backends

DEFAULT = "default"
# Options of commands that each model has too: an option is for all models that run, unless `--set MODEL.key=`
# says another value for one.
OF_EACH = ("backend", "batch_size", "precision")


@dataclass
class Layer:
    """The entries of a file or of the command line: for one model, or without one for all that run."""

    where: str
    model: str | None
    entries: Mapping[str, Entry]
    explicit: bool  # on the command line


@dataclass
class ModelSettings:
    """What files and options set for one model; of two entries for a key the later one has won."""

    files: dict[str, Entry] = field(default_factory=dict)
    explicit: dict[str, Entry] = field(default_factory=dict)
    deployment: Deployment = field(default_factory=Deployment)
    overrides: dict[str, Any] = field(default_factory=dict)  # of its config or mel contract

    def entry(self, key: str) -> Entry:
        return self.explicit.get(key) or self.files.get(key) or Entry(None, DEFAULT)


def network_classes(model: str) -> list[type]:
    return [get_model(model).config_class, MelContract]


def hints_of(model: str) -> dict[str, Any]:
    return {n: hint for cls in network_classes(model) for n, hint in typing.get_type_hints(cls).items()}


def keys_of(model: str) -> set[str]:
    """The keys that say something of a model."""
    return field_names([Deployment, *network_classes(model)])


def field_names(classes: Iterable[type]) -> set[str]:
    return {f.name for cls in classes for f in fields(cls)}


def usual_choice(args: argparse.Namespace, kinds: Sequence[str]) -> list[str]:
    """The names of the models that the usual options choose."""
    from melforge.common.synthesis.loading import choose_sources
    from melforge.common.weights.voices import models_in

    wanted = {kind: getattr(args, kind, None) for kind in KINDS}
    if not args.checkpoint:
        first = {kind: name for name in models_in(args.voice)[::-1] if (kind := get_model(name).kind)}
        wanted = {kind: name or first.get(kind) for kind, name in wanted.items()}
    if all(wanted[kind] for kind in kinds):
        return [get_model(str(wanted[kind]), kind).name for kind in kinds]
    sources = choose_sources(wanted, args.voice, args.checkpoint)
    return [sources[kind].model for kind in kinds]


def resolve(layers: list[Layer], chosen: list[str], options: Iterable[str]) -> dict[str, ModelSettings]:
    """The settings of the models that run; `options` are the command's own keys."""
    models = {model: ModelSettings() for model in chosen}
    options = set(options)
    # On the command line what is said of one model counts before what is said of all.
    for one in sorted(layers, key=lambda layer: bool(layer.explicit and layer.model)):
        if one.model and one.model not in models:
            raise InputError(f"{one.where}: {one.model} is none of the models here ({', '.join(models)})")
        takers = [one.model] if one.model else chosen
        keys = {model: keys_of(model) for model in takers}
        scoped = one.model and one.explicit  # as `--set fastpitch.key=value`: no option of the command
        require_known(one.entries, set().union(*keys.values(), () if scoped else options))
        for key, entry in one.entries.items():
            if one.model or key not in options or key in OF_EACH:
                for model in takers:
                    if key in keys[model]:
                        (models[model].explicit if one.explicit else models[model].files)[key] = entry
    for model, settings in models.items():
        _type(model, settings)
    return models


def _type(model: str, settings: ModelSettings) -> None:
    for cls in network_classes(model):  # what gives way must still be right
        if stated := _of(settings.files, field_names([cls])):
            build(cls, stated, model)
    hints = hints_of(model)
    settings.overrides = {
        name: typed_entry(name, entry, hints[name]) for name, entry in _of(settings.explicit, hints).items()
    }
    # A key that the network has too, such as mask_padding, is the network's.
    engines = field_names([Deployment]) - hints.keys()
    stated = _of(settings.files | settings.explicit, engines)
    if (precision := stated.get("precision")) and precision.value is None:
        del stated["precision"]
    settings.deployment = build(Deployment, stated, model)
    path, files = settings.explicit.get("trt_file_path"), settings.files.get("trt_file_path_list")
    if path and path.value and files and settings.deployment.trt_multi_engine:
        raise InputError(
            f"{path.place}: {model} has an engine for each bucket, whose files {files.place} names: set "
            "trt_file_path_list, or trt_multi_engine=false for one engine"
        )


def _of(entries: Mapping[str, Entry], names: Iterable[str]) -> dict[str, Entry]:
    return {name: entries[name] for name in names if name in entries}


def choose_backend(models: Mapping[str, ModelSettings], backend: Entry) -> Entry:
    """The backend of all models, or of each ("fastpitch=trt,hifigan=onnx") where files or --set name one's.

    `precision` is for the backend trt: said of all models it counts for those that run on it, and CUDA
    kernels always compute in half precision.
    """
    own = {
        model: stated
        for model, settings in models.items()
        if (stated := settings.entry("backend")).value and stated.place != backend.place
    }
    texts = backend_texts(backend.value or "onnx")
    runs = [parse_backends(by_model(text, models), {model: model for model in models}) for text in texts]
    for run in runs:
        run.update({model: stated.value for model, stated in own.items()})
    if own:
        words = ",".join(f"{model}={word}" for model, word in runs[0].items())
        same = len(set(runs[0].values())) == 1
        backend = Entry(next(iter(runs[0].values())) if same else words, next(iter(own.values())).place)
    for model, settings in models.items():
        settings.deployment = replace(settings.deployment, backend=None)  # the answer has it
        words, precision = {run[model] for run in runs}, settings.entry("precision")
        if precision.value == "fp32" and KERNELS in words and "precision" in settings.explicit:
            raise InputError(f"{precision.place}: the backend {KERNELS} computes in fp16: leave fp32 out")
        if precision.value != "fp16" or words & {"trt", KERNELS}:
            continue
        others = [one for one in models.values() if one.entry("precision") is precision]
        if len(others) == 1 or not any("trt" in run.values() for run in runs):
            raise InputError(
                f"{precision.place}: precision fp16 is for the backend trt, but {model} runs on "
                f"{runs[0][model]}: add --backend trt, or --precision fp32"
            )
        settings.deployment = replace(settings.deployment, precision="fp32")
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
            yield line(f.name, getattr(settings.deployment, f.name), settings.entry(f.name).place)
    hints = hints_of(model)
    for name, value in stored.items():
        asked = settings.files.get(name)
        if name in settings.overrides:
            where = f"{settings.entry(name).place} ({place} says {shown(value)})"
            yield line(name, settings.overrides[name], where)
        elif asked and typed_entry(name, asked, hints[name]) != value:
            yield line(name, value, f"{place} ({asked.place}, says {shown(asked.value)})")
        else:
            yield line(name, value, place)
