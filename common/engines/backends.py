"""The engines of each backend."""

from __future__ import annotations

import warnings
from typing import Any

from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines import Engine
from melforge.common.errors import InputError, unknown
from melforge.common.registry import load_attribute
from melforge.common.stages import Stage, plan_of
from melforge.common.stages.choose import BACKENDS, KERNELS
from melforge.common.weights.voices import ModelSource

# Imported when a backend is asked for: speaking with ONNX Runtime needs no PyTorch.
ENGINES = {
    "torch": "melforge.common.engines.torch_engine:TorchEngine",
    "onnx": "melforge.common.engines.onnx_engine:OnnxEngine",
    "trt": "melforge.common.engines.tensorrt.engine:TrtEngine",
}


def engine_class(backend: str) -> Any:
    """The class of a backend's engines, of any arguments."""
    if backend not in BACKENDS:
        raise InputError(unknown("backend", backend, BACKENDS))
    return load_attribute(ENGINES[backend])


def kernel_kind(stage: Stage, source: ModelSource, device: str) -> tuple[Any, str | None]:
    """The class of a stage's engines on `--backend cuda`; and where it is not on kernels of our own, why.

    A class on our own kernels says what they need by `needs`, and names another one or that on PyTorch's,
    `otherwise`.
    An InputError where neither runs.
    """
    if device == "cpu":
        raise InputError(f"device 'cpu': {stage.full_name} on {KERNELS} needs an NVIDIA GPU")
    kind = load_attribute(plan_of(stage.model).kernels[stage.name])
    if not isinstance(kind, type):  # a function of the configuration
        kind = kind(source.config)
    reason: str | None = None
    while hasattr(kind, "needs"):
        try:
            needs = kind.needs(source.config)
        except InputError as error:  # what our kernels do not know of a configuration
            lacking: str | None = str(error)
        else:
            lacking = needs.lacking(device)
        if lacking is None:
            return kind, None
        kind, reason = kind.otherwise, reason or lacking
    return kind, reason


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

    `deployment` says how, where a backend has a choice (trt, onnx), and `bucket` which of its
    buckets this is.
    """
    if backend == KERNELS:
        kind, reason = kernel_kind(stage, source, device)
        if reason:
            warnings.warn(f"{stage.full_name} runs on PyTorch's kernels: {reason}", stacklevel=2)
        return kind(stage, source, device, threads)
    more: tuple[Any, ...] = (deployment, bucket) if backend == "trt" else ()
    if backend == "onnx" and deployment:
        more = (deployment.onnx_provider,)
    return engine_class(backend)(stage, source, device, threads, *more)
