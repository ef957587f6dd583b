"""Engines: a stage made runnable on one backend, named tensors in and named tensors out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common.arrays import Array
from common.config.deployment import Bucket, Deployment
from common.errors import InputError, unknown
from common.registry import load_attribute
from common.stages import Stage, plan_of
from common.stages.choose import BACKENDS, KERNELS

if TYPE_CHECKING:
    from common.weights.voices import ModelSource

# Named tensors in and out, on the current stream; waits for nothing. What it reads beside its inputs stays in
# place, and its outputs are overwritten by its next call.
Run = Callable[[Mapping[str, Array]], dict[str, Array]]


@dataclass(frozen=True)
class LengthRegulator:
    """Kernels for what is computed between an encoder and a decoder, made for those engines' outputs."""

    regulating: Callable[[Run], Run]  # the encoder's run -> one that gives `repeats` and `lengths` too
    expanding: Callable[[Run], Run]  # the decoder's run -> one that takes `repeats` and `frames`


class Engine(ABC):
    """A runnable stage. Arrays are numpy's on the CPU and torch's on a GPU, where they stay.

    All abilities are declared here, so that callers never probe for them.
    """

    stage: Stage
    backend: str
    device: str
    memory_bytes: int  # of weights and what else it holds
    memory_owner: object  # what several engines share has one owner, and counts once
    attends_to_padding: bool = True  # False: steps behind the longest item's end change no output
    can_be_captured: bool = False  # in a CUDA graph, by way of `capturable`
    can_be_repeated: bool = False  # several autoregressive steps as one CUDA graph, by way of `repeated`
    buckets: tuple[Bucket, ...] = ()  # the fixed lengths that it runs at; (): lengths are dynamic
    length_regulator: LengthRegulator | None = None

    @abstractmethod
    def __call__(self, **inputs: Array) -> dict[str, Array]:
        """The stage's outputs by name. A ValueError where an input does not fit the stage's declaration."""

    def capturable(self, bucket: Bucket | None = None) -> Run:
        """A run with memory of its own, to be captured in a CUDA graph, alone or together with others.

        With buckets, for inputs that have that bucket's lengths. A TypeError where it cannot be captured.
        """
        raise TypeError(f"{self.stage.full_name} on {self.backend} cannot be captured in a CUDA graph")

    def repeated(
        self,
        fixed: Mapping[str, Array],
        state: Mapping[str, Array],
        noise: str,
        steps: int,
        kept: Sequence[str],
    ) -> Callable[[Array], dict[str, Array]]:
        """A function that makes up to `steps` autoregressive steps from where its last call ended.

        `fixed` are the inputs that stay, `state` those that the first step begins with and that every step
        replaces by its output `next_...`. The function takes rows of the input `noise`, one for each step,
        and gives the rows of the outputs `kept`. A TypeError where the engine cannot do this.
        """
        raise TypeError(f"{self.stage.full_name} on {self.backend} has no CUDA graph of several steps")

    def covering(self, text: int = 0, mel: int = 0) -> Bucket | None:
        """The smallest bucket for so many symbols and frames, 0 where a stage has none of them; else None."""
        return None

    def count_call(self, bucket: Bucket, batch: int, valid: Array) -> None:
        """Notes a call on this bucket, of which so many symbols and frames were within an item."""
        return None

    def count_miss(self, bucket: Bucket | None = None) -> None:
        """Notes that this bucket, or without one the largest, was too small."""
        return None

    def count_padding(self, bucket: Bucket, steps: int) -> None:
        """Notes that so many of the computed steps were padding, where only the caller knows it."""
        return None

    def count_anew(self) -> None:
        """Forgets the calls so far, as those of a warm-up."""
        return None

    def report(self) -> list[dict[str, Any]]:
        """A row for each bucket: its calls, misses, loads and waste."""
        return []


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
        engine = plan_of(stage.model).kernels[stage.name]
        return load_attribute(engine)(stage, source, device, threads)
    if backend not in BACKENDS:
        raise InputError(unknown("backend", backend, BACKENDS))
    more = (deployment, bucket) if backend == "trt" else ()
    return load_attribute(BACKENDS[backend])(stage, source, device, threads, *more)


def attend_to_padding(*engines: Engine) -> bool:
    """Whether the outputs of one of them depend on what lengths are padded with."""
    return any(engine.attends_to_padding for engine in engines)
