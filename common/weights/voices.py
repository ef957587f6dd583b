"""Voices: a folder with voice.yaml becomes a `ModelSource` for each of its models, which engines run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from melforge.common.audio.contract import MelContract
from melforge.common.config.typed import build, build_section, require_known, typed_entry, typed_options
from melforge.common.config.yaml_file import Entry, entries_of, read_yaml
from melforge.common.errors import IN_CHECKOUT, InputError, unknown
from melforge.common.files import data_folder, what_it_is, written_whole
from melforge.common.registry import get_model, names
from melforge.common.remote import NO_ADDRESS, fetch_folder, is_address
from melforge.common.speech import Controls, control_fields
from melforge.common.stages.choose import KINDS
from melforge.common.text import Frontend
from melforge.common.text.frontends import FRONTENDS, frontend_class

VOICE_FILE = "voice.yaml"
LEXICON_FILE = "lexicon.yaml"  # which a voice may have beside it
SCALE = "#scale"  # behind the name of an int8 tensor: what each of its rows is multiplied with
WEIGHTS = "weights.safetensors"  # of a model, in the folder of a run, a voice, an ear or a cache
SHIPPED = ("hazel", "orchard", "rowan")  # the first one that is there is the default


@dataclass(frozen=True)
class FrontendSpec:
    """A text frontend by its name and constructor options, with the files of its lexicons."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    lexicons: tuple[Path, ...] = ()  # those of the first one come first

    def build(self) -> Frontend:
        frontend = frontend_class(self.name)(**self.options)
        if self.lexicons:
            from melforge.common.config.lexicon import read_lexicon

            frontend.own_words = tuple(map(read_lexicon, self.lexicons))
        return frontend


@dataclass(frozen=True, eq=False)
class ModelSource:
    """One model that can be run: sizes, weights, graphs, and what the models beside it must agree with."""

    model: str
    config: Any
    weights: Path
    mel: MelContract
    graphs: Mapping[str, Path] = field(default_factory=dict)  # stage name -> ONNX without weights
    frontend: FrontendSpec | None = None  # acoustic models only
    settings: Any = None  # an instance of the model's `settings_class`; None: its defaults
    given_state: Mapping[str, np.ndarray] | None = None  # where `weights` is in a published layout
    # What `weights` holds, where this process wrote them: they are not read again. Other `weights` have none.
    written_state: Mapping[str, np.ndarray] | None = None
    config_file: Path | None = None  # from which `config` was read, where it stands beside `weights`
    language_model: Path | None = None  # of an ear that has one
    words: tuple[str, ...] = ()  # that ask for it on a command line
    # What this source's engines share: torch's network, a graph's session. It goes with the last of them.
    networks: MutableMapping = field(default_factory=WeakValueDictionary)

    def __post_init__(self) -> None:
        if self.settings is None:
            object.__setattr__(self, "settings", get_model(self.model).settings_class())
        require_its_mel(self.model, self.config, self.mel, str(self.weights))

    @property
    def controls(self) -> frozenset[str]:
        """The names of the controls that change what it speaks: the model's, as its sizes allow."""
        return get_model(self.model).controls - getattr(self.config, "unused_controls", frozenset())

    @property
    def speakers(self) -> tuple[str, ...]:
        """The names of its speakers in the order of their ids, or these; empty where it has one voice."""
        count = getattr(self.config, "n_speakers", 1)
        return (self.settings.speakers or tuple(map(str, range(count)))) if count > 1 else ()

    @property
    def lexicons(self) -> tuple[Path, ...]:
        return self.frontend.lexicons if self.frontend else ()

    def with_lexicon(self, path: str | Path | None) -> ModelSource:
        """An acoustic model's, with this file's words before its voice's; None is for no file."""
        if path is None or self.frontend is None:
            return self
        lexicons = (Path(path), *self.frontend.lexicons)
        return replace(self, frontend=replace(self.frontend, lexicons=lexicons))

    def build_frontend(self) -> Frontend:
        """Its text frontend. A warning where it has another number of symbols than the acoustic model."""
        assert self.frontend is not None  # every acoustic model has one
        frontend = self.frontend.build()
        if self.config.n_symbols not in (len(frontend.symbols), type(self.config).n_symbols):
            warnings.warn(
                f"{self.weights} has {self.config.n_symbols} symbols, but its text frontend "
                f"{len(frontend.symbols)}: if it was trained with others, it speaks other letters than it is "
                f"given. The frontend's option symbols in {VOICE_FILE} states them (docs/voices.md)",
                stacklevel=2,
            )
        return frontend

    @cached_property
    def state(self) -> Mapping[str, np.ndarray]:
        """The weights under the network's own names, in float32. Read once for all engines of this source."""
        known = self.written_state if self.given_state is None else self.given_state
        return read_weights(self.weights) if known is None else known


@dataclass(frozen=True)
class Voice:
    """What voice.yaml says, or ear.yaml: an ear is a voice of one model."""

    name: str
    folder: Path
    models: Mapping[str, ModelSource]
    description: str = ""
    language: str = ""
    licence: str = ""

    def source(self, model: str) -> ModelSource:
        if model not in self.models:
            known = ", ".join(self.models)
            way_out = "give another voice, or weights as a checkpoint"
            raise InputError(f"voice {self.name!r} has no {model}; it has {known}: {way_out}")
        return self.models[model]

    @property
    def only(self) -> ModelSource:
        """The model of a voice that has one, as an ear's recogniser."""
        (source,) = self.models.values()
        return source

    def models_of(self, kind: str) -> list[str]:
        return [name for name in self.models if get_model(name).kind == kind]


def homes_of(kind: str) -> tuple[Path, ...]:
    """The folders of "voices" or "ears": the one that $MELFORGE_VOICES names, or that of those shipped. In an
    installed package the user's own comes behind it. New ones are made in the last.
    """
    if given := os.environ.get(f"MELFORGE_{kind.upper()}"):
        return (Path(given),)
    shipped = Path(__file__).resolve().parents[2] / kind
    if IN_CHECKOUT:
        return (shipped,)
    try:
        return shipped, data_folder() / kind
    except RuntimeError:  # a user without a home
        return (shipped,)


def place_of(kind: str, name: str) -> Path:
    """Where a voice or an ear of this name is made: in its home, or at the path that the name is. An
    InputError for an address, and for the name of a shipped one, which would be written over.
    """
    if is_address(name):
        raise InputError(f"{name} {NO_ADDRESS}")
    folder = Path(name) if "/" in name else homes_of(kind)[-1] / name
    if IN_CHECKOUT and name in SHIPPED and folder.exists():
        raise InputError(f"{name} is shipped: give another name, or {folder} to write over it")
    return folder


def list_voices() -> list[str]:
    return list(folders_in(homes_of("voices"), VOICE_FILE))


def load_voice(name_or_path: str | Path | None = None) -> Voice:
    """A voice by its name or its folder's path; without either, the first there is."""
    if name_or_path is None and not list_voices():
        homes = " or ".join(map(str, homes_of("voices")))
        raise InputError(f"there is no voice in {homes}; name the folder of one")
    return read_voice(find_folder("a voice", name_or_path, homes_of("voices"), VOICE_FILE))


def models_in(name_or_path: str | Path | None) -> list[str]:
    """The names of a voice's models, in its order, without reading what else its file says of them."""
    folder = find_folder("a voice", name_or_path, homes_of("voices"), VOICE_FILE)
    models = read_yaml(folder / VOICE_FILE).get("models")
    return [name for name in entries_of(models.value, models.place) if name in names()] if models else []


def folders_in(homes: Iterable[Path], file: str) -> dict[str, Path]:
    """The voices or ears in these folders, of each the shipped ones first and sorted by name: the folders in
    it that have such a file. Of one name the last is taken.
    """

    def order(path: Path) -> tuple[bool, str]:
        return path.parent.name not in SHIPPED, path.parent.name

    found = (path.parent for home in homes for path in sorted(home.glob(f"*/{file}"), key=order))
    return {folder.name: folder for folder in found}


def found_as(folder: Path, kind: str, file: str) -> str:
    """What commands find a voice or an ear by: its name, unless another folder is found by that."""
    return folder.name if folders_in(homes_of(kind), file).get(folder.name) == folder else str(folder)


def find_folder(what: str, name_or_path: str | Path | None, homes: Iterable[Path], file: str) -> Path:
    """The folder of a voice or an ear (`what`) by its name in `homes`, or by its path or that of its `file`.

    Without either it is the first in `homes`, which must hold one. An InputError, or a FileNotFoundError of a
    path, where there is none. One in an object store is copied into the cache.
    """
    available = folders_in(homes, file)
    name = str(next(iter(available)) if name_or_path is None else name_or_path)
    is_path = isinstance(name_or_path, Path) and (name_or_path / file).is_file()  # Path("./ann") is "ann"
    if name in available and not is_path:
        return available[name]
    path, noun = fetch_folder(name) if is_address(name) else Path(name), what.split()[1]
    folder = path.parent if path.name == file else path
    if (folder / file).is_file():
        return folder
    if path.is_dir():
        raise InputError(f"{path} is not {what}: it has no {file}")
    if path.is_file():
        raise InputError(f"{path} is a file: give the folder of {what}, with its {file}, or its name")
    if len(path.parts) > 1:
        raise FileNotFoundError(f"{noun} folder {path} not found")
    raise InputError(unknown(noun, name, available))


@dataclass(frozen=True)
class VoiceFile:
    """The keys of voice.yaml."""

    name: str
    frontend: dict
    mel: MelContract
    models: dict
    description: str = ""
    language: str = ""
    licence: str = ""


@dataclass(frozen=True)
class ModelSection:
    """The keys of one of its models; paths are seen from the voice's folder."""

    config: dict
    weights: Path
    graphs: dict[str, Path] | None = None
    extra: dict | None = None


def read_voice(folder: Path) -> Voice:
    """A voice's folder as its voice.yaml says. What is wrong in it is an InputError with file and line."""
    path = folder / VOICE_FILE
    entries = read_yaml(path)
    require_known(entries, [f.name for f in fields(VoiceFile)])
    file = build(VoiceFile, entries, path)
    frontend = _read_frontend(entries["frontend"])
    if (lexicon := folder / LEXICON_FILE).is_file():
        frontend = replace(frontend, lexicons=(lexicon,))
    models = {
        name: _model_of_voice(name, entry, folder, file.mel, frontend)
        for name, entry in entries_of(file.models, entries["models"].place).items()
    }
    return Voice(file.name, folder, models, file.description, file.language, file.licence)


def _read_frontend(section: Entry) -> FrontendSpec:
    options = entries_of(section.value, section.place)
    if (name := options.pop("name", None)) is None:
        raise InputError(f"{section.place}: frontend has no name")
    kind = typed_entry("name", name, str)
    if kind not in FRONTENDS:
        raise InputError(f"{name.place}: {unknown('text frontend', kind, FRONTENDS)}")
    # Its module takes a while to import: not for a frontend that may never run.
    return FrontendSpec(kind, typed_options(frontend_class(kind), options) if options else {})


def _model_of_voice(
    name: str, entry: Entry, folder: Path, mel: MelContract, frontend: FrontendSpec
) -> ModelSource:
    if name not in names(*KINDS):
        raise InputError(f"{entry.place}: {unknown('model', name, names(*KINDS))}")
    source = read_model(name, entry, folder, mel)
    frontend_of = frontend if get_model(name).kind == "acoustic" else None
    return replace(source, frontend=frontend_of, words=("--voice", found_as(folder, "voices", VOICE_FILE)))


def read_model(name: str, entry: Entry, folder: Path, mel: MelContract | None = None) -> ModelSource:
    """A model as a `ModelSection` of a file says, with this mel contract or its config's own."""
    where = f"{entry.place}: models.{name}"
    model = get_model(name)
    section = build_section(ModelSection, entry.value, where)
    config = build_section(model.config_class, section.config, f"{where}.config")
    contract = mel or getattr(config, "mel", MelContract())
    require_its_mel(name, config, contract, where)
    if section.graphs:
        stages = [stage.name for stage in model.module("stages").stages(config)]
        require_known(entries_of(entry.value["graphs"], where), stages)
    return ModelSource(
        model=name,
        config=config,
        weights=folder / section.weights,
        mel=contract,
        graphs={stage: folder / graph for stage, graph in (section.graphs or {}).items()},
        settings=build_settings(name, section.extra or {}, f"{where}.extra"),
    )


def require_its_mel(model: str, config: Any, mel: MelContract, where: str) -> None:
    """An InputError where a model's sizes contradict its mel contract."""
    for name in ("hop_length", "n_mel_channels"):
        if (own := getattr(config, name, None)) not in (None, getattr(mel, name)):
            raise InputError(f"{where}: {model} has {name} {own}, but its mel has {getattr(mel, name)}")


def build_settings(model: str, values: Mapping[str, Any], where: str) -> Any:
    """An instance of a model's settings; one that is a control too has the control's range."""
    settings = build_section(get_model(model).settings_class, values, where)
    controls = control_fields()
    if shared := {key: entry for key, entry in entries_of(values, where).items() if key in controls}:
        build(Controls, shared, where)
    return settings


@contextmanager
def _open_weights(path: Path) -> Iterator[Any]:
    """A safetensors file; an InputError where it is missing, or damaged as far as it is read."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"weights {path} are missing")
    # An OSError where it may not be read, which safetensors calls missing.
    if what := what_it_is(path, "safetensors"):
        raise InputError(f"weights {path} are no whole safetensors file but {what}")
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except (SafetensorError, OSError, TypeError) as error:
        size = path.stat().st_size
        raise InputError(f"weights {path} are no whole safetensors file ({size} bytes): {error}") from None


def read_header(path: Path) -> tuple[list[str], dict[str, str]]:
    """The names of a safetensors file's tensors, and its metadata; an InputError where it is not whole."""
    with _open_weights(path) as file:
        return list(file.keys()), file.metadata() or {}


def read_weights(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """A safetensors file in float32, or of it these tensors; missing, damaged or NaN ones are InputErrors."""
    with _open_weights(path) as file:
        stored = set(file.keys())
        wanted = [name for name in stored if not name.endswith(SCALE)] if names is None else names
        state = {name: file.get_tensor(name) for name in wanted}
        for name in wanted:
            if name + SCALE in stored:
                scale = file.get_tensor(name + SCALE).astype(np.float32)
                state[name] = state[name] * scale.reshape(-1, *[1] * (state[name].ndim - 1))
    for name, value in state.items():
        if value.dtype.kind == "f":
            state[name] = np.ascontiguousarray(value, dtype=np.float32)
            if not np.isfinite(np.vdot(state[name], state[name])):  # faster than asking each of its values
                what = "NaN, infinite values or such with infinite squares"
                raise InputError(f"weights {path}: {name} holds {what}; the file is damaged")
        elif value.size > 1:  # a counter is none of the weights
            raise InputError(not_floating(f"weights {path}", name, str(value.dtype)))
    return state


def save_weights(
    path: Path, state: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file; it appears only when it is whole."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    contiguous = {name: np.ascontiguousarray(value) for name, value in state.items()}
    try:
        with written_whole(path) as file:
            save_file(contiguous, file, dict(metadata) if metadata else None)
    except SafetensorError as error:  # as where the disk is full
        raise InputError(f"cannot write {path}: {error}") from None


def rewrite_weights(
    path: Path, output: Path, change: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]
) -> None:
    """Writes a safetensors file's tensors, in their own types, as `change` gives them; its metadata stay."""
    from safetensors.numpy import load_file

    _, metadata = read_header(path)
    save_weights(output, change(load_file(path)), metadata)


def replace_weights(path: Path, output: Path, learnt: Mapping[str, np.ndarray]) -> None:
    """Writes a safetensors file with these tensors in place of its own, by their names and in its types."""

    def change(state: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return state | {name: value.astype(state[name].dtype) for name, value in learnt.items()}

    rewrite_weights(path, output, change)


def not_floating(file: str, name: str, kind: str) -> str:
    """The message about a tensor that is no weight by its type: complex, whole or true-or-false numbers."""
    return (
        f"{file}: the tensor {name} is {kind}; weights are floating-point numbers: "
        "convert it, or give the file that it was made from"
    )
