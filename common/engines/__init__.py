"""Engines: a stage made runnable on one backend, named tensors in and named tensors out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from common.arrays import Array, dtype_name
from common.deployment import Bucket, Deployment
from common.registry import get_model, load_attribute, unknown
from common.stages import Dim, Stage, Tensor

if TYPE_CHECKING:
    from common.voices import ModelSource

# A backend's module is imported when it is asked for: speaking with ONNX Runtime needs no PyTorch.
BACKENDS = {
    "torch": "common.engines.torch_engine:TorchEngine",
    "onnx": "common.engines.onnx_engine:OnnxEngine",
    "trt": "common.engines.trt_engine:TrtEngine",
}
# Single stages have kernels of our own: `KERNELS` in a model's stages.py names the engines that run them.
KERNELS = "cuda"


class Engine(Protocol):
    """A runnable stage. Arrays are numpy's on the CPU and torch's on a GPU, where they stay."""

    stage: Stage
    backend: str
    device: str
    memory_bytes: int  # what it holds, such as weights in float32
    memory_owner: object  # what several engines share has one owner, and counts once

    def __call__(self, **inputs: Array) -> dict[str, Array]: ...


def make_engine(
    stage: Stage,
    source: ModelSource,
    backend: str = "onnx",
    device: str = "cpu",
    threads: int | None = None,
    deployment: Deployment | None = None,
    bucket: Bucket | None = None,
) -> Engine:
    """An engine that runs `stage` with the source's weights; `threads` counts on the CPU (default: all).

    `deployment` says how, where a backend has a choice (trt), and `bucket` which of its buckets this is.
    """
    if backend == KERNELS:
        engine = get_model(stage.model).module("stages").KERNELS[stage.name]
        return load_attribute(engine)(stage, source, device, threads)
    if backend not in BACKENDS:
        raise ValueError(unknown("backend", backend, BACKENDS))
    more = (deployment, bucket) if backend == "trt" else ()
    return load_attribute(BACKENDS[backend])(stage, source, device, threads, *more)


def hear_padding(*engines: Engine) -> bool:
    """Whether one of them hears what lengths are filled up with: kernels of ours say that they don't."""
    return any(getattr(engine, "hears_padding", True) for engine in engines)


def check_inputs(stage: Stage, inputs: Mapping[str, Array]) -> None:
    """A ValueError that names the first input that does not fit the stage's declaration."""
    declared = {tensor.name: tensor for tensor in stage.inputs}
    for name in inputs:
        if name not in declared:
            raise ValueError(f"stage {stage.full_name}: {unknown('input', name, declared)}")
    sizes: dict[str, tuple[int, str]] = {}
    for name, tensor in declared.items():
        if name not in inputs:
            raise ValueError(f"stage {stage.full_name}: input {name!r} is missing")
        _check_tensor(stage, tensor, inputs[name], sizes)
    for name, dim in stage.dynamic_dims.items():
        if dim.of and dim.of not in sizes:
            size, tensor = sizes[name]
            if size % dim.times:
                raise ValueError(
                    f"stage {stage.full_name}: input {tensor!r} has {name} = {size}, "
                    f"no multiple of {dim.times}"
                )
        elif dim.of and sizes[name][0] != sizes[dim.of][0] * dim.times:
            (size, tensor), (other, other_tensor) = sizes[name], sizes[dim.of]
            raise ValueError(
                f"stage {stage.full_name}: input {tensor!r} has {name} = {size}, but {other_tensor!r} has "
                f"{dim.of} = {other}: they don't belong together, it must be {other * dim.times}"
            )


def _check_tensor(stage: Stage, tensor: Tensor, array: Array, sizes: dict[str, tuple[int, str]]) -> None:
    where = f"stage {stage.full_name}: input {tensor.name!r}"
    if dtype_name(array) != tensor.dtype:
        raise ValueError(f"{where} is {dtype_name(array)}, declared {tensor.dtype}")
    shape = tuple(array.shape)
    if len(shape) != len(tensor.dims):
        raise ValueError(f"{where} has shape {shape}, declared {describe_dims(tensor)}")
    for size, dim in zip(shape, tensor.dims, strict=True):
        if isinstance(dim, int):
            if size != dim:
                raise ValueError(f"{where} has shape {shape}, declared {describe_dims(tensor)}")
            continue
        known, other = sizes.setdefault(dim.name, (size, tensor.name))
        if size != known:
            raise ValueError(f"{where} has {dim.name} = {size}, but {other!r} has {dim.name} = {known}")
        if not dim.min <= size <= dim.max:
            raise ValueError(f"{where} has {dim.name} = {size}, outside {dim.min} to {dim.max}")


def describe_dims(tensor: Tensor) -> str:
    return f"[{', '.join(d.name if isinstance(d, Dim) else str(d) for d in tensor.dims)}]"
