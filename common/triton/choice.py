"""Which models a repository runs: written into the configs' parameters, from which the models read it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from melforge.common.audio.contract import MelContract, require_same_contract
from melforge.common.config.deployment import Deployment
from melforge.common.files import exports_folder, weights_key
from melforge.common.recognition.loading import make_recogniser
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
from melforge.common.weights.voices import WEIGHTS, FrontendSpec, ModelSource

LAID_IN = "./"  # begins the path of a file in the folder of a model's version
HEARING = ("recogniser",)  # the kinds of a repository that hears
TEXTS = {"acoustic", "vocoder", "voice", "ear", "backend", "decoder", "lexicon"}  # fields that are no JSON
LAYABLE = {"voice", "ear", "lexicon"}  # fields that may be laid in
COMPILED = {KERNELS, "trt"}  # backends on which a new length is captured, or compiled for


@dataclass(frozen=True)
class Choice:
    """Which models a repository runs; names and values are those of the command line."""

    kinds: tuple[str, ...] = KINDS  # or HEARING
    acoustic: str | None = None
    vocoder: str | None = None
    voice: str | None = None
    ear: str | None = None
    checkpoints: tuple[str, ...] = ()
    backend: str = "onnx"
    decoder: str | None = None
    lexicon: str | None = None
    threads: int | None = None
    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Whether every length and batch runs once before a model is ready; None: for models that speak as
    # `warms_up` says, for recognisers not.
    warm_up: bool | None = None
    # Everything but the weights of models from checkpoints, by kind, as `describe` gives it: a Triton model
    # reads only the checkpoint that it runs.
    described: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def deployment(self, model: str) -> Deployment:
        return deployment_of(model, self.deployments, self.backend)

    def parameters(self) -> dict[str, str]:
        """What differs from the defaults, as parameters of a config (strings)."""
        found: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value not in (None, (), {}, KINDS):
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
    def read(cls, parameters: Mapping[str, str], folder: Path) -> Choice:
        """The choice that gave these `parameters`; `folder` is that of the model's version."""
        values: dict[str, Any] = {
            f.name: parameters[f.name] if f.name in TEXTS else _tuples(json.loads(parameters[f.name]))
            for f in fields(cls)
            if f.name in parameters
        }
        if "deployments" in values:
            values["deployments"] = {m: Deployment(**how) for m, how in values["deployments"].items()}
        for name in LAYABLE & values.keys():
            if values[name].startswith(LAID_IN):
                values[name] = str(folder / values[name])
        values["checkpoints"] = tuple(
            text.replace(f"={LAID_IN}", f"={folder}/") for text in values.get("checkpoints", ())
        )
        return cls(**values)

    def stored_sources(self) -> dict[str, ModelSource]:
        """The sources by kind, as they are stored; described ones have no weights."""
        described = {kind: read_description(text) for kind, text in self.described.items()}
        rest = [kind for kind in self.kinds if kind not in described]
        found = described | self._read(rest, [] if described else self.checkpoints)
        return {kind: found[kind] for kind in self.kinds}

    def _read(self, kinds: Sequence[str], checkpoints: Sequence[str]) -> dict[str, ModelSource]:
        """From these checkpoints, else from the voice or the ear."""
        if "recogniser" in kinds:
            return {"recogniser": read_recogniser(self.ear, checkpoints)}
        return choose_sources({kind: getattr(self, kind) for kind in kinds}, self.voice, checkpoints)

    def sources(self) -> dict[str, ModelSource]:
        """The sources by kind, with the overrides."""
        return self.overridden(self.stored_sources())

    def overridden(self, stored: Mapping[str, ModelSource]) -> dict[str, ModelSource]:
        """Stored sources with the overrides; an InputError where their mel contracts differ."""
        sources = {
            kind: override(one, self.overrides.get(one.model, {})).with_lexicon(self.lexicon)
            for kind, one in stored.items()
        }
        first, *others = sources.values()
        for other in others:
            require_same_contract(first.mel, other.mel, (first.model, other.model))
        return sources

    def backends(self, sources: Mapping[str, ModelSource]) -> dict[str, str]:
        return parse_backends(self.backend, {kind: source.model for kind, source in sources.items()})

    def driver(
        self, kind: str, sources: Mapping[str, ModelSource], device: str, step: str | None = None
    ) -> Driver:
        """One of `sources` on its engines, or a recogniser's `step` alone; only its weights are read."""
        laid_in = [text for text in self.checkpoints if text.startswith(f"{kind}=")]
        if laid_in or kind not in self.described:
            source = self._read([kind], laid_in)[kind]
        else:  # a step that takes no weights
            source = read_description(self.described[kind])
        source = override(source, self.overrides.get(source.model, {}))
        if kind == "recogniser":
            how = self.deployments.get(source.model, Deployment())
            return make_recogniser(source, self.backend, device, self.threads, how, step=step)
        form = self.decoder if kind == "acoustic" else None
        how = self.deployment(source.model)
        backend = self.backends(sources)[kind]
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
    """All of a source but its weights and graphs, for JSON. Of a recogniser also how its graphs are found."""
    frontend = source.frontend
    described = {
        "model": source.model,
        "config": asdict(source.config),
        "mel": asdict(source.mel),
        "settings": asdict(source.settings),
        "frontend": frontend and {"name": frontend.name, "options": dict(frontend.options)},
        "published": source.given_state is not None,
    }
    if get_model(source.model).kind == "recogniser":
        described["weights_key"] = weights_key(source.weights)
    return described


def read_description(description: Mapping[str, Any]) -> ModelSource:
    """The source that `describe` was given, without weights.

    The graphs that a recogniser's steps without weights need lie beside those of the others in the cache.
    """
    model, frontend = get_model(description["model"]), description["frontend"]
    key = description.get("weights_key")
    nowhere = Path(f"no weights of {model.name}")
    return ModelSource(
        model=model.name,
        config=model.config_class(**description["config"]),
        weights=exports_folder() / f"{model.name}-{key}" / WEIGHTS if key else nowhere,
        mel=MelContract(**description["mel"]),
        frontend=FrontendSpec(**frontend) if frontend else None,
        settings=model.settings_class(**description["settings"]),
        given_state={} if key or description["published"] else None,  # it decides which stages run
    )


def pick_instance_device(backends: Iterable[str], kind: str, number: str) -> str:
    """The device of a model's instance: the GPU that Triton assigned to it, if its backends can use one.

    If several backends differ in that, each picks its own ("auto"): the first GPU, or the CPU.
    """
    picked = {pick_device(backend) for backend in backends} if kind == "GPU" else {"cpu"}
    if len(picked) > 1:
        return "auto"
    return "cpu" if "cpu" in picked else f"cuda:{number}"


def warms_up(asked: bool | None, backends: Iterable[str], device: str) -> bool:
    """Whether models on these backends and this device warm up: as asked, else where a new length is slow."""
    return device != "cpu" and not COMPILED.isdisjoint(backends) if asked is None else asked


def _tuples(value: Any) -> Any:
    """Configs have tuples where JSON has lists."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value
