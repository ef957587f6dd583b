"""Which models a repository runs: written into each config's parameters, and read by its model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.config.deployment import Deployment
from melforge.common.files import exports_folder
from melforge.common.recognition.loading import make_recogniser
from melforge.common.recognition.recogniser import Recogniser
from melforge.common.registry import get_model
from melforge.common.stages.choose import (
    KERNELS,
    KINDS,
    choose_stages,
    deployment_of,
    pads_masked,
    parse_backends,
)
from melforge.common.synthesis.driver import Driver
from melforge.common.synthesis.loading import choose_sources, make_driver, override, pick_device
from melforge.common.weights.ears import read_recogniser
from melforge.common.weights.voices import FrontendSpec, ModelSource

LAID_IN = "./"  # begins the path of a file in the folder of a model's version
TEXTS = {"acoustic", "vocoder", "voice", "ear", "backend", "decoder"}  # fields that are no JSON
FOLDERS = {"voice", "ear"}  # fields that may be laid in
COMPILED = {KERNELS, "trt"}  # backends on which a new length is captured, or compiled for


@dataclass(frozen=True)
class Choice:
    """What every repository says of its models; names and values as those of the commands."""

    checkpoints: tuple[str, ...] = ()
    backend: str = "onnx"
    threads: int | None = None
    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Every length and batch runs once before a model is ready; None: of those that speak as `warms_up`
    # says, of recognisers not.
    warm_up: bool | None = None
    # By kind, all but the weights of each model from a checkpoint, as `describe` gives it: each of
    # Triton's models reads the checkpoint of what it runs, and no other.
    described: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def deployment(self, model: str) -> Deployment:
        return deployment_of(model, self.deployments, self.backend)

    def parameters(self) -> dict[str, str]:
        """What differs from the defaults, as the strings of a config's parameters."""
        found: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value not in (None, (), {}):
                found[f.name] = value
        if self.deployments:
            plain = asdict(Deployment())
            found["deployments"] = {
                model: {name: value for name, value in asdict(how).items() if value != plain[name]}
                for model, how in self.deployments.items()
            }
        return {
            name: value if isinstance(value, str) else json.dumps(value, default=list)
            for name, value in found.items()
        }

    @classmethod
    def read(cls, parameters: Mapping[str, str], folder: Path) -> Self:
        """What `parameters` gave, of a model whose version's folder this is."""
        values: dict[str, Any] = {
            f.name: parameters[f.name] if f.name in TEXTS else _tuples(json.loads(parameters[f.name]))
            for f in fields(cls)
            if f.name in parameters
        }
        if "deployments" in values:
            values["deployments"] = {m: Deployment(**how) for m, how in values["deployments"].items()}
        for name in FOLDERS & values.keys():
            if values[name].startswith(LAID_IN):
                values[name] = str(folder / values[name])
        values["checkpoints"] = tuple(
            text.replace(f"={LAID_IN}", f"={folder}/") for text in values.get("checkpoints", ())
        )
        return cls(**values)


@dataclass(frozen=True)
class ModelChoice(Choice):
    """The models that speak, as in `TextToSpeech.load`."""

    acoustic: str | None = None
    vocoder: str | None = None
    voice: str | None = None
    decoder: str | None = None

    def stored_sources(self) -> dict[str, ModelSource]:
        """The acoustic model's and the vocoder's as they are stored; described ones have no weights."""
        if not self.described:
            return choose_sources(self._wanted(*KINDS), self.voice, self.checkpoints)
        sources = {kind: read_description(text) for kind, text in self.described.items()}
        from_voice = self._wanted(*(kind for kind in KINDS if kind not in sources))
        sources |= choose_sources(from_voice, self.voice)
        return {kind: sources[kind] for kind in KINDS}

    def sources(self) -> dict[str, ModelSource]:
        """The same with the overrides."""
        return self.overridden(self.stored_sources())

    def overridden(self, stored: Mapping[str, ModelSource]) -> dict[str, ModelSource]:
        """Stored sources with the overrides; an InputError where their mel contracts differ."""
        sources = {kind: override(one, self.overrides.get(one.model, {})) for kind, one in stored.items()}
        first, second = (sources[kind] for kind in KINDS)
        require_same_contract(first.mel, second.mel, (first.model, second.model))
        return sources

    def _wanted(self, *kinds: str) -> dict[str, str | None]:
        return {kind: getattr(self, kind) for kind in kinds}

    def backends(self, sources: Mapping[str, ModelSource]) -> dict[str, str]:
        return parse_backends(self.backend, {kind: source.model for kind, source in sources.items()})

    def driver(self, kind: str, sources: Mapping[str, ModelSource], device: str) -> Driver:
        """One of `sources`, acoustic model or vocoder, on its engines; only its weights are read."""
        laid_in = [text for text in self.checkpoints if text.startswith(f"{kind}=")]
        source = choose_sources(self._wanted(kind), self.voice, laid_in, self.overrides)[kind]
        form = self.decoder if kind == "acoustic" else None
        backend = self.backends(sources)[kind]
        how = self.deployment(source.model)
        return make_driver(source, backend, device, self.threads, form, deployment=how)

    def limits(self, sources: Mapping[str, ModelSource]) -> tuple[int, int]:
        """The longest utterance in symbols, and the texts of a batch, as the stages declare them."""
        longest, batches = [], []
        for kind, source in sources.items():
            how = self.deployment(source.model)
            buckets = how.buckets(kind)
            form = self.decoder if kind == "acoustic" else None
            backend = self.backends(sources)[kind]
            stages = choose_stages(
                source, form, bool(buckets), pads_masked(source, how), backend, how.kernels
            )
            batches += [how.batch_size or stage.batch.max for stage in stages]
            if kind == "acoustic":
                longest = [stage.dynamic_dims["text"].max for stage in stages if "text" in stage.dynamic_dims]
                longest += [bucket.text for bucket in buckets[-1:]]
        return min(longest), min(batches)


def describe(source: ModelSource) -> dict[str, Any]:
    """All of a source but its weights and graphs, for JSON."""
    return {
        "model": source.model,
        "config": asdict(source.config),
        "mel": asdict(source.mel),
        "settings": asdict(source.settings),
        "frontend": source.frontend
        and {"name": source.frontend.name, "options": dict(source.frontend.options)},
        "published": source.given_state is not None,
    }


def read_description(description: Mapping[str, Any]) -> ModelSource:
    """The source that `describe` was given, without weights."""
    model, frontend = get_model(description["model"]), description["frontend"]
    return ModelSource(
        model=model.name,
        config=model.config_class(**description["config"]),
        weights=Path(f"no weights of {model.name}"),
        mel=MelContract(**description["mel"]),
        frontend=FrontendSpec(**frontend) if frontend else None,
        settings=model.settings_class(**description["settings"]),
        given_state={} if description["published"] else None,  # it decides which stages run
    )


@dataclass(frozen=True)
class EarChoice(Choice):
    """The recogniser, as `melforge transcribe` takes it."""

    ear: str | None = None

    def stored_source(self) -> ModelSource:
        """The recogniser's as it is stored; a described one is for stages that take no weights.

        Their graphs lie beside those of the others in the cache.
        """
        if not self.described:
            return read_recogniser(self.ear, self.checkpoints)
        source = read_description(self.described["recogniser"])
        folder = exports_folder() / f"{source.model}-{self.described['recogniser']['weights_key']}"
        return replace(source, weights=folder / "weights.safetensors", given_state={})

    def overridden(self, stored: ModelSource) -> ModelSource:
        """A stored source with the overrides."""
        return override(stored, self.overrides.get(stored.model, {}))

    def recogniser(self, device: str, step: str | None = None) -> Recogniser:
        """On its engines, or one step of it on its own."""
        source = self.overridden(self.stored_source())
        how = self.deployments.get(source.model, Deployment())
        return make_recogniser(source, self.backend, device, self.threads, how, step=step)


def pick_instance_device(backends: Iterable[str], kind: str, number: str) -> str:
    """What an instance of a model runs on: the GPU that Triton gave it, where its backends can use one.

    Of several backends that differ in it, each picks for itself ("auto"): the first GPU, or the CPU.
    """
    picked = {pick_device(backend) for backend in backends} if kind == "GPU" else {"cpu"}
    if len(picked) > 1:
        return "auto"
    return "cpu" if "cpu" in picked else f"cuda:{number}"


def warms_up(asked: bool | None, backends: Iterable[str], device: str) -> bool:
    """Whether models on these backends and this device do: as asked, or where each new length costs."""
    return device != "cpu" and not COMPILED.isdisjoint(backends) if asked is None else asked


def _tuples(value: Any) -> Any:
    """Configs have tuples where JSON has lists."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value
