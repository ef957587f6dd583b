"""Engines: a stage made runnable on one backend, named tensors in and named tensors out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from common.arrays import Array
from common.config.deployment import Bucket, Deployment
from common.errors import InputError, unknown
from common.registry import get_model, load_attribute
from common.stages import Stage
from common.stages.choose import BACKENDS, KERNELS

if TYPE_CHECKING:
    from common.weights.voices import ModelSource


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
        raise InputError(unknown("backend", backend, BACKENDS))
    more = (deployment, bucket) if backend == "trt" else ()
    return load_attribute(BACKENDS[backend])(stage, source, device, threads, *more)


def hear_padding(*engines: Engine) -> bool:
    """Whether one of them hears what lengths are filled up with: kernels of ours say that they don't."""
    return any(getattr(engine, "hears_padding", True) for engine in engines)
