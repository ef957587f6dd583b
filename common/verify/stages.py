"""Compares a model's stages on another backend with PyTorch, layer by layer, while PyTorch runs.

Each stage of the other backend gets PyTorch's inputs, and PyTorch computes each layer from the other side's
outputs of the layers before it: an error is found where it is made.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from melforge.common.arrays import Array, to_numpy
from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines import Engine, WrappedEngine
from melforge.common.engines.backends import make_engine
from melforge.common.engines.layer_outputs import (
    layer_names,
    match,
    method_of,
    nearest_layers,
    shown,
    with_layers,
    with_outputs_of,
)
from melforge.common.engines.rounding import PRECISIONS, Precision, Rounding
from melforge.common.engines.torch_engine import TorchEngine, build_network
from melforge.common.errors import InputError, close_matches, counted
from melforge.common.export.examples import examples_of
from melforge.common.export.to_onnx import source_stages
from melforge.common.registry import get_model
from melforge.common.stages import Dim, Stage, TensorSpec
from melforge.common.stages.choose import KERNELS, choose_stages, pads_masked
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.verify.compare import Comparison
from melforge.common.verify.graphs import layered_graph
from melforge.common.weights.voices import ModelSource

CALLS = 40  # of a stage that are compared; the decoder's steps are many
ROUNDING = 3e-6  # by which PyTorch's own outputs may differ, relative
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
    tell: Callable[[str], object] = lambda text: None  # is called with what begins now
    loops: Mapping[str, Stage] = field(default_factory=dict)  # whose bodies are compared as these stages
    perturbed: str = ""  # the weight that was changed on the other side
    changed: set[str] = field(default_factory=set)  # the stages whose outputs that changes
    comparisons: dict[tuple[str, str], Comparison] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)  # the patterns for which a layer has run
    unseen: list[str] = field(default_factory=list)  # layers that the graphs in use do not have as tensors

    @property
    def precision(self) -> str:
        return "fp16" if self.backend == KERNELS else self.deployment.precision

    def report(self) -> dict[str, Any]:
        how = {"backend": self.backend, "precision": self.precision, "device": self.device}
        floor = PRECISIONS[self.backend, self.precision].floor
        return {"model": self.source.model, **how, "floor": floor, "layers": list(self.patterns)}

    def rounds(self, stage: Stage) -> Precision:
        """How the other side's engine of a stage rounds."""
        if stage.name in self.deployment.kernels:
            return PRECISIONS[KERNELS, "fp16"]  # until their engine says it
        if stage.exact:
            return PRECISIONS[self.backend, "exact"]
        return PRECISIONS[self.backend, "fp32" if "*" in stage.float32_layers else self.precision]

    def engine(self, stage: Stage, bucket: Bucket | None) -> Engine:
        """The engine used for synthesis."""
        if stage.name in self.deployment.kernels:
            return make_engine(stage, self.source, KERNELS, self.device, self.threads)
        if stage.name in self.loops:
            return self.layered_engine(stage)
        return self._make(stage, self.source, self.deployment, bucket)

    def layered_engine(self, stage: Stage) -> Engine:
        """An engine that also returns the outputs of those layers that its graph has. No command builds it
        ahead, so that it is built whatever the deployment says.
        """
        plain = replace(self.deployment, trt_file_path="", trt_file_path_list=(), no_build=False)
        layered, graph = layered_graph(stage, self.source, self.loops.get(stage.name))
        return self._make(layered, replace(self.source, graphs={stage.name: graph}), plain, None)

    def _make(self, stage: Stage, source: ModelSource, how: Deployment, bucket: Bucket | None) -> Engine:
        return make_engine(stage, source, self.backend, self.device, self.threads, how, bucket)


def seen(layers: Iterable[str]) -> set[str]:
    """The modules, or their methods, that these layers are of."""
    return {name.partition("#")[0].removesuffix("<") for name in layers}


def last_length(tensor: TensorSpec) -> int:
    """The last axis of a tensor that has a length of its own; 0, the batch's, where none has."""
    return max(axis for axis, dim in enumerate(tensor.dims) if isinstance(dim, Dim))


class ComparedEngine(WrappedEngine):
    """A stage on PyTorch that is compared with the other side's, on the same inputs.

    The layers' outputs come from a second engine, because an engine cannot fuse across its outputs. Kernels
    show them where they are launched one by one, before a CUDA graph of them is made.
    """

    def __init__(self, stage: Stage, source: ModelSource, setup: Setup, bucket: Bucket | None):
        self.reference = TorchEngine(stage, source, setup.device, setup.threads)
        super().__init__(self.reference)
        self.text_step = stage.rtx_text_step if setup.backend == "trt" else 1
        self._setup, self._bucket = setup, bucket
        self._rounds = setup.rounds(stage)
        self._engines: list[Engine] = []
        self._calls = 0

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        self._calls += 1
        if self._calls <= self._setup.calls:
            # Moved to where rounding does not decide how long something lasts.
            steady = examples_of(self.stage.model).steady_inputs
            self._compare(steady(self.stage, self.reference, inputs))
        return self.reference(**inputs)

    def _compare(self, inputs: dict[str, Array]) -> None:
        tensors = {name: torch.as_tensor(array, device=self.device) for name, array in inputs.items()}
        for stage, made in self._made(inputs, tensors):
            exact = self._run(stage, tensors)
            rounded = self._run(stage, tensors, exact, rounds=True)
            got = {name: torch.as_tensor(array, device=self.device) for name, array in made.items()}
            # Kernels' tensors are longer by padding.
            got |= {name: got[name][tuple(map(slice, exact[name].shape))] for name in stage.layers}
            wanted = self._run(stage, tensors, got) if stage.layers else {**exact}  # each is cut by itself
            if "lengths" in tensors and self._on_kernels:
                self._end(stage, tensors, (wanted, got, rounded, exact))
            for name in stage.layers or made:
                one = name.partition("#")[0] if stage.graph else name  # a loop's steps together
                self._add(
                    one, bool(stage.layers), *(to_numpy(x[name]) for x in (wanted, got, rounded, exact))
                )
            if stage.layers and self._on_kernels and not stage.graph:
                for name in (tensor.name for tensor in self.stage.outputs):
                    values = (to_numpy(x[name]) for x in (wanted, got, rounded, exact))
                    self._add(f"{name} of these layers", True, *values)
        if self._setup.perturbed and self.stage.name not in self._setup.changed:
            changed = TorchEngine(self.stage, self._setup.source, self.device, self._setup.threads)(**inputs)
            for name, value in changed.items():
                change = Comparison(self.stage.full_name, name, False, ROUNDING)
                change.add(to_numpy(exact[name]), to_numpy(value))
                if not change.ok:
                    self._setup.changed.add(self.stage.name)

    def _end(
        self, stage: Stage, inputs: Mapping[str, torch.Tensor], sides: Iterable[dict[str, torch.Tensor]]
    ) -> None:
        """Cuts layers (B, C, steps), and outputs, at the longest item's end: behind it the network masks what
        goes into a layer, and kernels what comes out.
        """
        first = self.stage.inputs[0]
        longest, whole = int(inputs["lengths"].max()), inputs[first.name].shape[last_length(first)]
        if longest >= whole:
            return
        for tensor in stage.outputs:
            axis = -1 if tensor.name in stage.layers else last_length(tensor)
            for values in sides if axis else ():
                steps = values[tensor.name].shape[axis]
                values[tensor.name] = values[tensor.name].narrow(axis, 0, -(-longest * steps // whole))

    def _run(
        self,
        stage: Stage,
        inputs: Mapping[str, torch.Tensor],
        given: Mapping[str, torch.Tensor] | None = None,
        rounds: bool = False,
    ) -> dict[str, torch.Tensor]:
        """PyTorch's outputs and layers, each computed from the `given` outputs of the layers before it."""
        network = self.reference.network
        rounding = Rounding(self._rounds, network, stage.float32_layers)
        with torch.inference_mode(), rounding if rounds else contextlib.nullcontext():
            outputs = method_of(network, stage, given)(**inputs)
        return dict(zip((tensor.name for tensor in stage.outputs), outputs, strict=True))

    def _add(
        self,
        name: str,
        layer: bool,
        wanted: np.ndarray,
        got: np.ndarray,
        rounded: np.ndarray,
        exact: np.ndarray,
    ) -> None:
        key = self.stage.full_name, name
        floor = self._rounds.floor if wanted.dtype.kind == "f" else 0.0
        comparison = self._setup.comparisons.setdefault(key, Comparison(*key, layer, floor))
        # Where rounding decides how long something lasts, it may change everything.
        rounded = rounded if rounded.shape == exact.shape else np.zeros_like(exact)
        comparison.add(wanted, got, (rounded, exact) if floor else None)
        if self._setup.watch:
            self._setup.watch(comparison, wanted, got)

    @property
    def _on_kernels(self) -> bool:
        return self.stage.name in self._setup.deployment.kernels

    def _made(
        self, inputs: Mapping[str, Array], tensors: dict[str, torch.Tensor]
    ) -> Iterator[tuple[Stage, Mapping[str, Array]]]:
        """The stage with its layers, and all that the other side makes of them, then what it gives."""
        if not self._on_kernels:
            self._engines = self._engines or list(self._make_engines(tensors))
            for engine in self._engines:
                yield engine.stage, engine(**inputs)
            return
        setup, network = self._setup, self.reference.network
        setup.tell(f"{self.stage.full_name}: kernels")
        engine = setup.engine(self.stage, None)  # a new one: what it has run once replays as a CUDA graph
        self._rounds = PRECISIONS[KERNELS, engine.precision]
        with shown(setup.calls) as inside:
            made = engine(**inputs)
        found = match(network, setup.patterns)
        setup.ran.update(pattern for pattern, names in found.items() if seen(inside) & {*names})
        known = {name for names in found.values() for name in names}
        names = {name.partition("#")[0] for name in inside if seen([name]) <= known}
        layered = with_outputs_of(self.stage, network, names, tensors)
        layers = tuple(name for name in layered.layers if name in inside)
        outputs = (*self.stage.outputs, *(t for t in layered.outputs if t.name in layers))
        if layers:
            yield replace(layered, layers=layers, outputs=outputs), {**inside, **made}
        if not (layers and self.stage.feeds_back):  # free-running, rounding may change it all
            yield self.stage, made

    def _make_engines(self, inputs: dict[str, torch.Tensor]) -> Iterator[Engine]:
        setup, network = self._setup, self.reference.network
        setup.tell(f"{self.stage.full_name}: layers")
        layered = with_layers(self.stage, network, setup.patterns, inputs)
        if layered.layers:
            engine = setup.layered_engine(layered)
            unseen = (name for name in layered.layers if name not in engine.stage.layers)
            setup.unseen.extend(f"{self.stage.name}: {name}" for name in unseen)
            ran = seen(engine.stage.layers)
            setup.ran.update(p for p, names in match(network, setup.patterns).items() if ran & {*names})
            if engine.stage.layers:
                yield engine
        setup.tell(f"{self.stage.full_name}: outputs")
        yield setup.engine(self.stage, self._bucket)


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
            near = "; ".join(
                f"{setups[kind].source.model} has {counted(len(layer_names(network)), 'layer')}, such as "
                f"{', '.join(nearest_layers(network, pattern))}"
                for kind, network in networks.items()
            )
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
            setup.source, setup.perturbed = perturb(setup.source, name), name
            return
    names = [name for setup in setups.values() for name in setup.source.state]
    near = close_matches(name, names, 0.4, most=3)
    raise InputError(f"--perturb {name}: no model here has this weight; {', '.join(near) or 'see --layers'}")


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """PyTorch's products in float32 on a GPU too: the reference must not round to TF32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
