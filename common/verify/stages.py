"""Compares a model on another backend with PyTorch: layer by layer, stage by stage, and the audio.

PyTorch runs the sentence; each stage of the other backend gets PyTorch's inputs: errors do not add up.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.arrays import Array, to_numpy
from common.audio.contract import MelContract, require_same_contract
from common.config.deployment import Bucket, Deployment
from common.engines import Engine, WrappedEngine
from common.engines.backends import make_engine
from common.engines.layer_outputs import match, nearest_layers, with_layers
from common.engines.torch_engine import TorchEngine, build_network
from common.errors import InputError
from common.export.examples import examples_of
from common.export.to_onnx import EXPORTER_VERSION, export_stage, source_stages
from common.files import cache_folder, config_hash, write_bytes
from common.registry import get_model
from common.runner import TextToSpeech
from common.speech import Controls
from common.stages import Stage, plan_of
from common.stages.choose import KERNELS, KINDS, choose_stages, pads_masked
from common.synthesis.driver import Driver
from common.synthesis.loading import make_driver
from common.synthesis.stage_engines import StageEngines
from common.verify.compare import (
    FEEDBACK,
    MEL_TOLERANCES,
    TOLERANCES,
    Comparison,
    Speech,
    for_json,
    shared_frames,
)
from common.weights.voices import ModelSource

CALLS = 40  # of a stage that are compared; the decoder's steps are many
# What sees every pair of tensors, such as what prints them.
Watch = Callable[[Comparison, np.ndarray, np.ndarray], None]


@dataclass
class Setup:
    """The backend and deployment that one model is compared on, and the results."""

    source: ModelSource  # the other side's
    backend: str
    device: str
    deployment: Deployment
    patterns: Sequence[str] = ()
    asked: bool = False  # whether a user gave the patterns: one that means nothing is an error then
    threads: int | None = None
    calls: int = CALLS
    watch: Watch | None = None
    comparisons: dict[tuple[str, str], Comparison] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)  # the patterns for which a layer has run

    @property
    def precision(self) -> str:
        return "fp16" if self.deployment.use_fp16 else "fp32"

    def report(self) -> dict[str, Any]:
        tolerance = TOLERANCES[self.backend][self.precision]
        how = {"backend": self.backend, "precision": self.precision, "device": self.device}
        return {"model": self.source.model, **how, "tolerance": tolerance, "layers": list(self.patterns)}

    def tolerance(self, stage: Stage) -> float:
        on_kernel = stage.name in self.deployment.kernels
        by_precision = TOLERANCES[KERNELS]["fp16"] if on_kernel else TOLERANCES[self.backend][self.precision]
        return by_precision * (FEEDBACK if stage.feeds_back else 1)

    def engine(self, stage: Stage, bucket: Bucket | None) -> Engine:
        """The engine used for synthesis, built if missing."""
        if stage.name in self.deployment.kernels:
            return make_engine(stage, self.source, KERNELS, self.device, self.threads)
        return self._make(stage, self.source, self.deployment, bucket)

    def layered_engine(self, stage: Stage) -> Engine:
        """An engine that also returns the layers' outputs; its graph is kept in the cache."""
        source = replace(self.source, graphs={stage.name: layered_graph(stage, self.source.config)})
        plain = replace(self.deployment, trt_file_path="", trt_file_path_list=())
        return self._make(stage, source, plain, None)

    def _make(self, stage: Stage, source: ModelSource, how: Deployment, bucket: Bucket | None) -> Engine:
        if self.backend == "trt":
            from common.engines.tensorrt.api import load_tensorrt
            from common.engines.tensorrt.build import build_stage
            from common.engines.tensorrt.engine_file import engine_file

            trt = load_tensorrt()
            file = engine_file(stage, source, how, trt, bucket)
            build_stage(file, source, trt, how.trt_force_build, how.trt_max_ws_size)
            how = replace(how, trt_force_build=False)
        return make_engine(stage, source, self.backend, self.device, self.threads, how, bucket)


def layered_graph(stage: Stage, config: object) -> Path:
    """The graph of a stage with the outputs of its layers, exported if it is not in the cache."""
    words = [stage.full_name, config_hash(config), EXPORTER_VERSION, *stage.layers]
    key = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
    path = cache_folder() / "verify" / f"{stage.full_name}.{key}.onnx"
    if not (path.is_file() and path.with_suffix(".json").is_file()):
        graph, weights = export_stage(stage, config)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path.with_suffix(".json"), json.dumps({"weights": weights}).encode())
        write_bytes(path, graph)
    return path


class ComparedEngine(WrappedEngine):
    """A stage on PyTorch whose outputs are compared with the other side's, on the same inputs.

    The layers' outputs come from a second engine, because an engine cannot fuse across its outputs.
    """

    def __init__(self, stage: Stage, source: ModelSource, setup: Setup, bucket: Bucket | None):
        self._reference = TorchEngine(stage, source, setup.device, setup.threads)
        super().__init__(self._reference)
        self._source, self._setup, self._bucket = source, setup, bucket
        self._pairs: list[tuple[Engine, Engine, bool]] | None = None
        self._calls = 0

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        self._calls += 1
        if self._calls <= self._setup.calls:
            # Moved to where rounding does not decide how long something lasts.
            steady = examples_of(self.stage.model).steady_inputs
            self._compare(steady(self.stage, self._reference, inputs))
        return self._reference(**inputs)

    def _compare(self, inputs: dict[str, Array]) -> None:
        if self._pairs is None:
            self._pairs = list(self._make_pairs(inputs))
        for reference, other, layers in self._pairs:
            wanted, got = reference(**inputs), other(**inputs)
            names = reference.stage.layers if layers else [t.name for t in self.stage.outputs]
            for name in names:
                self._add(name, layers, to_numpy(wanted[name]), to_numpy(got[name]))

    def _add(self, name: str, layer: bool, wanted: np.ndarray, got: np.ndarray) -> None:
        key = self.stage.full_name, name
        tolerance = self._setup.tolerance(self.stage) if wanted.dtype.kind == "f" else 0.0
        comparison = self._setup.comparisons.setdefault(key, Comparison(*key, layer, tolerance))
        comparison.add(wanted, got)
        if self._setup.watch:
            self._setup.watch(comparison, wanted, got)

    def _make_pairs(self, inputs: dict[str, Array]) -> Iterator[tuple[Engine, Engine, bool]]:
        given = {name: torch.as_tensor(array, device=self.device) for name, array in inputs.items()}
        network = self._reference.network
        layered = with_layers(self.stage, network, self._setup.patterns, given)
        if layered.layers and self.stage.name not in self._setup.deployment.kernels:  # nothing inside is seen
            for pattern, names in match(network, self._setup.patterns).items():
                if {name.partition("#")[0] for name in layered.layers} & set(names):
                    self._setup.ran.add(pattern)
            reference = TorchEngine(layered, self._source, self.device, self._setup.threads)
            yield reference, self._setup.layered_engine(layered), True
        yield self._reference, self._setup.engine(self.stage, self._bucket), False


class ComparedEngines(StageEngines):
    """A model's engines, each of them compared."""

    def __init__(self, setup: Setup, source: ModelSource, decoder: str | None):
        deployment = replace(setup.deployment, engine_memory_limit=None)
        buckets = deployment.buckets(get_model(source.model).kind)
        masked = pads_masked(source, deployment)
        stages = choose_stages(source, decoder, bool(buckets), masked, setup.backend, deployment.kernels)
        super().__init__(stages, source, "torch", setup.device, setup.threads, deployment=deployment)
        self._setup = setup

    def _make(self, stage: Stage, bucket: Bucket | None = None) -> ComparedEngine:
        return ComparedEngine(stage, self._source, self._setup, bucket)


def share_layers(setups: Mapping[str, Setup]) -> None:
    """Each model keeps the patterns that match its layers; an InputError for one that matches none at all."""
    patterns = next(iter(setups.values())).patterns
    networks = {kind: build_network(source_stages(s.source)[0], s.source) for kind, s in setups.items()}
    found = {kind: match(network, patterns) for kind, network in networks.items()}
    for pattern in patterns:
        if not any(hits[pattern] for hits in found.values()):
            near = {setups[k].source.model: nearest_layers(net, pattern) for k, net in networks.items()}
            near = "; ".join(f"{model} has {', '.join(names)}" for model, names in near.items())
            raise InputError(f"--layers {pattern!r} means no layer: {near}")
    for kind, hits in found.items():
        setups[kind].patterns = tuple(pattern for pattern in patterns if hits[pattern])


def perturb(source: ModelSource, name: str) -> ModelSource:
    """The source with the largest value of one weight negated: an error that a comparison must find."""
    changed = source.state[name].copy()
    place = np.abs(changed).argmax()
    changed.flat[place] = -changed.flat[place]
    state = {**source.state, name: changed}
    return replace(source, given_state=state, networks=type(source.networks)())


def perturb_one(setups: Mapping[str, Setup], name: str) -> None:
    """The same on the other side of the first model that has this weight."""
    for setup in setups.values():
        if name in setup.source.state:
            setup.source = perturb(setup.source, name)
            return
    names = [name for setup in setups.values() for name in setup.source.state]
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    raise InputError(f"--perturb {name}: no model here has this weight; {', '.join(near) or 'see --layers'}")


@dataclass(eq=False)
class Verification:
    """The results, in the order of execution."""

    text: str
    setups: list[Setup]
    speech: Speech
    contract: MelContract

    @property
    def comparisons(self) -> list[Comparison]:
        return [one for setup in self.setups for one in setup.comparisons.values()]

    @property
    def first_wrong(self) -> Comparison | None:
        return next((one for one in self.comparisons if not one.ok), None)

    @property
    def ok(self) -> bool:
        return self.first_wrong is None and self.speech.report(self.contract)["ok"]

    def report(self) -> dict[str, Any]:
        first = self.first_wrong
        return {
            "text": self.text,
            "models": [setup.report() for setup in self.setups],
            "tensors": [one.row() for one in self.comparisons],
            "speech": for_json(self.speech.report(self.contract)),
            "first_wrong": first and first.full_name,
            "ok": self.ok,
        }


def verify(
    text: str,
    sources: Mapping[str, ModelSource],
    setups: Mapping[str, Setup],
    decoder: str | None = None,
    controls: Controls | None = None,
) -> Verification:
    """Speaks `text` by both sides. `sources` are PyTorch's, by kind; `setups` the other side of some of them.

    A model without one runs on PyTorch on both sides.
    """
    first, second = (sources[kind] for kind in KINDS)
    require_same_contract(first.mel, second.mel, (first.model, second.model))
    device = next(iter(setups.values())).device
    assert first.frontend  # every acoustic model's source has one
    frontend = first.frontend.build()
    with exact_products():
        references: dict[str, Driver] = {}
        others: dict[str, Driver] = {}
        for kind, source in sources.items():
            form = decoder if kind == "acoustic" else None
            setup = setups.get(kind)
            if setup is None:
                references[kind] = others[kind] = make_driver(source, "torch", device)
                continue
            engines, driver_class = ComparedEngines(setup, source, form), get_model(source.model).driver_class
            stepwise = stepwise_form(setup, source, engines) if kind == "acoustic" else None
            if stepwise:  # each step from PyTorch's state, layer by layer, before the whole loop
                driver = driver_class(source, ComparedEngines(setup, source, stepwise))
                for utterance in frontend(text).utterances:
                    driver.synthesise([utterance.ids], controls)
            references[kind] = driver_class(source, engines)
        rate = first.mel.sampling_rate
        wanted = TextToSpeech(frontend, **references, sampling_rate=rate).speak(text, controls)
        for kind, setup in setups.items():
            for pattern in setup.patterns if setup.asked else ():
                if pattern not in setup.ran:
                    raise InputError(f"--layers {pattern!r}: no such layer runs in the stages that speak")
            form = decoder if kind == "acoustic" else None
            deployment = replace(setup.deployment, trt_force_build=False)
            how = (setup.backend, setup.device, setup.threads, form, None, deployment)
            others[kind] = make_driver(setup.source, *how)
        got = TextToSpeech(frontend, **others, sampling_rate=rate).speak(text, controls)
    ordered = [setups[kind] for kind in KINDS if kind in setups]
    autoregressive = any(stage.feeds_back for setup in ordered for stage in source_stages(setup.source))
    tolerance = max(MEL_TOLERANCES[setup.backend][setup.precision] for setup in ordered)
    reach, other, symbols = shared_frames(wanted, got)
    speech = Speech(wanted, got, tolerance, not autoregressive, reach, other, symbols)
    return Verification(text, ordered, speech, first.mel)


def stepwise_form(setup: Setup, source: ModelSource, engines: ComparedEngines) -> str | None:
    """The form that runs single steps, where one of the engines is a loop of all steps, and not a kernel."""
    loops = {stage.name for stage in source_stages(source) if stage.graph}
    if loops.isdisjoint(engines) or not loops.isdisjoint(setup.deployment.kernels):
        return None
    return next(form for form, names in plan_of(source.model).forms.items() if loops.isdisjoint(names))


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """PyTorch's products in float32 on a GPU too: the reference must not round to TF32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
