"""Stage declarations: what a network takes and gives, written once as data.

A model package declares its stages in `stages.py`. The declaration drives the ONNX export (names, dynamic
axes, example inputs), the checks of every engine's inputs, the verify tool and TensorRT's profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from melforge.common.config.deployment import Bucket
from melforge.common.errors import InputError
from melforge.common.registry import get_model


@dataclass(frozen=True)
class Dim:
    """A dynamic dimension: its symbolic name and the range that a stage must serve.

    One that belongs to another is `times` as long as the dimension `of`, in every call. Where no input has
    that other one, it is a multiple of `times`.
    """

    name: str
    min: int
    typical: int
    max: int
    of: str = ""
    times: int = 1


@dataclass(frozen=True)
class TensorSpec:
    """A named input or output. `dims` holds an int for a fixed size and a Dim for a dynamic one."""

    name: str
    dtype: str  # numpy name: "int64", "float32"
    dims: tuple[Dim | int, ...]
    about: str = ""  # what it holds, for those who make or take it without Melforge


@dataclass(frozen=True)
class Stage:
    """One network with named tensors: one ONNX graph, one engine.

    `network` names the torch module's class as "package.module:Class"; it is imported only where a network
    must be built. `method` is the method of that class that computes this stage: it takes the inputs as
    keyword arguments under their names and returns the outputs as a tuple in the declared order.
    `graph` names the function that makes the ONNX graph where PyTorch's exporter cannot, as
    "package.module:name": it takes and returns what `melforge.common.export.to_onnx.export_stage` does.
    `small_steps` marks many small operations in a row. PyTorch on a CPU runs them on one thread: handing each
    of them to several takes longer than the operation, and far longer where another process uses a core.
    `feeds_back` says that steps take up what earlier ones made, so that rounding grows with their number.
    `float32_layers` names what stays in float32 where the stage runs in half precision: patterns of parameter
    names ("decoder.*.layer_norm"), or operators ("Exp"); "*" is all of it. See engines/tensorrt/half.py.
    `exact`: all of it is in whole float32 on TensorRT too, which rounds the factors of others' products
    (engines/tensorrt/exact.py).
    `rtx_in_order` says that TensorRT for RTX begins kernels of it before those that they need have ended
    (docs/tensorrt.md): its runs are put in order, which takes time.
    `rtx_text_step`: TensorRT for RTX gives right numbers for texts of multiples of so many symbols only
    (docs/tensorrt.md). The engine refuses others; drivers pad.
    `layers` names parts of the network whose outputs are given behind the stage's own
    (engines/layer_outputs.py).
    """

    model: str
    name: str
    network: str
    method: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    graph: str = ""
    small_steps: bool = False
    feeds_back: bool = False
    float32_layers: tuple[str, ...] = ()
    exact: bool = False
    rtx_in_order: bool = False
    rtx_text_step: int = 1
    layers: tuple[str, ...] = ()

    def masked(self) -> Stage:
        """The stage with an input `lengths`, the valid steps: padding behind them changes no output."""
        lengths = TensorSpec("lengths", "int64", (self.inputs[0].dims[0],))
        return replace(self, name=f"masked_{self.name}", inputs=(*self.inputs, lengths))

    def with_dims(self, change: Callable[[Dim], Dim]) -> Stage:
        """The stage with each dynamic dimension as `change` gives it."""

        def changed(tensor: TensorSpec) -> TensorSpec:
            dims = tuple(change(dim) if isinstance(dim, Dim) else dim for dim in tensor.dims)
            return replace(tensor, dims=dims)

        return replace(
            self, inputs=tuple(map(changed, self.inputs)), outputs=tuple(map(changed, self.outputs))
        )

    @property
    def full_name(self) -> str:
        return f"{self.model}.{self.name}"

    @property
    def batch(self) -> Dim:
        """The first dimension of the first input."""
        batch = self.inputs[0].dims[0]
        assert isinstance(batch, Dim)
        return batch

    @property
    def dynamic_dims(self) -> dict[str, Dim]:
        """Every dynamic dimension of the inputs by its name."""
        return {d.name: d for t in self.inputs for d in t.dims if isinstance(d, Dim)}


@dataclass(frozen=True)
class StagePlan:
    """What a model's stages.py declares beside the stages of a config.

    A model comes in one or several forms, each a choice of its stages; all of them compute the same.
    The strings are "module:attribute", but for `ahead`.
    """

    stages: Callable[[Any], tuple[Stage, ...]]  # of a config of the model
    forms: Mapping[str, tuple[str, ...]]  # names of stages, by form
    default: str  # the form that runs where nothing else is asked for
    on_trt: str = ""  # the form on TensorRT, where it is another
    bucketed: str = ""  # the form in buckets, where it is another
    bucketed_unmasked: str = ""  # that form where the network is to attend to padding, as published
    kernels: Mapping[str, str] = field(default_factory=dict)  # engines on CUDA kernels, by stage
    on_cuda: str = ""  # the form all of whose stages have kernels, which `--backend cuda` runs
    # Stages of no form that run in another's place in ONNX Runtime on a CPU, where there are graphs of them.
    on_cpu: Mapping[str, str] = field(default_factory=dict)
    ahead: str = ""  # the module that compiles kernels before they run (melforge.trt_plugins.ahead)
    kernels_together: bool = False  # whether the kernels of one stage bring those of all others
    # What a driver computes between stages that all run on kernels, by name: functions of a device that give
    # a kernel for it, or None where it cannot run there.
    between: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[str, ...] = ()  # of the network: patterns that verify compares inside the stages


def plan_of(model: str) -> StagePlan:
    """The plan of a model by its name."""
    return get_model(model).module("stages").PLAN


def stages_of(model: str, config: Any) -> tuple[Stage, ...]:
    """All stages of a model of these sizes."""
    return plan_of(model).stages(config)


def root(dim: Dim) -> str:
    """The dimension that this one is a multiple of, or itself."""
    return dim.of or dim.name


def bucket_roots(stage: Stage) -> set[str]:
    """Which of a bucket's two lengths the stage's inputs have."""
    return {root(dim) for dim in stage.dynamic_dims.values()} & {"text", "mel"}


def fix(stage: Stage, bucket: Bucket, up_to: bool = False) -> Stage:
    """The stage at a bucket's lengths, or at all lengths `up_to` them."""
    roots = {name for name in bucket_roots(stage) if getattr(bucket, name)}

    def change(dim: Dim) -> Dim:
        if root(dim) not in roots:
            return dim
        size = getattr(bucket, root(dim)) * dim.times
        if not dim.min <= size <= dim.max:
            raise InputError(
                f"a bucket of {getattr(bucket, root(dim))} ({root(dim)}): stage {stage.full_name} goes from "
                f"{-(-dim.min // dim.times)} to {dim.max // dim.times}"
            )
        low, typical = (min(dim.min, size), min(dim.typical, size)) if up_to else (size, size)
        return replace(dim, min=low, typical=typical, max=size)

    return stage.with_dims(change)
