"""Engines: a stage made runnable on one backend, named tensors in and named tensors out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from melforge.common.arrays import Array, dtype_name
from melforge.common.config.deployment import Bucket
from melforge.common.engines.counts import CountedBuckets
from melforge.common.errors import unknown
from melforge.common.noise import Distribution, draw
from melforge.common.stages import Dim, Stage, TensorSpec

# Where padding is masked, symbols and frames are padded to multiples of these on a GPU: few CUDA graphs do
# for all lengths.
TEXT_STEP, MEL_STEP = 32, 64
SHORT, SHORT_STEP = 128, 16  # frames: a vocoder's kernels pad mels up to SHORT to SHORT_STEP

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Arrays = Mapping[str, Array]
# Named tensors in and out, on the current stream; waits for nothing. What it reads beside its inputs stays in
# place, and its outputs are overwritten by its next call.
Run = Callable[[Arrays], dict[str, Array]]


class Engine(ABC):
    """A runnable stage. Arrays are numpy's on the CPU and torch's on a GPU, where they stay.

    What an engine can do is declared here, so that callers never probe for it.
    """

    stage: Stage
    backend: str
    device: str
    precision: str  # on CUDA kernels: how these round, of `rounding.PRECISIONS`
    memory_bytes: int  # of weights and what else it holds
    memory_owner: object  # what several engines share has one owner, and counts once
    attends_to_padding: bool = True  # False: steps behind the longest item's end change no output
    prefers_batches: bool = False  # a padded batch takes less time than its items one by one
    prefers_pieces: bool = False  # long inputs take less memory and no more time in overlapping pieces
    can_be_shared: bool = False  # threads may run it at the same time
    can_be_captured: bool = False  # in a CUDA graph: it is a CapturableEngine
    can_be_repeated: bool = False  # several autoregressive steps as one CUDA graph, by `repeated`
    text_step: int = 1  # text length must be a multiple of this; other lengths give wrong results
    buckets: CountedBuckets | None = None  # the fixed lengths that it runs at; None: lengths are dynamic

    @abstractmethod
    def __call__(self, **inputs: Array) -> dict[str, Array]:
        """The stage's outputs by name. A ValueError where an input does not fit the stage's declaration."""

    def draw(self, distribution: Distribution, seeds: Sequence[int], first: int, count: int) -> Array:
        """Noise for its inputs, the numbers of `melforge.common.noise.draw`: on the host, or on its device.

        Float32 [B, count], a row for each seed.
        """
        return draw(distribution, seeds, first, count)


class CapturableEngine(Engine):
    """An engine that can be captured in CUDA graphs, alone or together with others."""

    can_be_captured = True

    @abstractmethod
    def capturable(self, bucket: Bucket | None = None) -> Run:
        """A run with memory of its own, to be captured; with buckets, for inputs of that bucket's lengths."""

    def repeated(
        self, fixed: Arrays, state: Arrays, noise: str, steps: int, kept: Sequence[str]
    ) -> Callable[[Array], dict[str, Array]]:
        """A function that makes up to `steps` autoregressive steps from where its last call ended.

        `fixed` are the inputs that stay, `state` those that the first step begins with and that every step
        replaces by its output `next_...`. The function takes rows of the input `noise`, one for each step,
        and gives the rows of the outputs `kept`. Only where `can_be_repeated`.
        """
        raise TypeError(f"{self.stage.full_name} on {self.backend} has no CUDA graph of several steps")


def as_capturable(engine: Engine) -> CapturableEngine:
    """The engine with its calls for CUDA graphs. A TypeError where it cannot be captured."""
    if not engine.can_be_captured:
        raise TypeError(f"{engine.stage.full_name} on {engine.backend} cannot be captured in a CUDA graph")
    return cast(CapturableEngine, engine)


def attend_to_padding(*engines: Engine) -> bool:
    """Whether the outputs of one of them depend on what lengths are padded with."""
    return any(engine.attends_to_padding for engine in engines)


# A wrapped engine inherits nothing when it runs: a default of Engine would hide what the inner one says.
Delegating = CapturableEngine if TYPE_CHECKING else object


class WrappedEngine(Delegating):
    """An engine around another one, whose abilities it has. Subclasses override what they watch or change."""

    def __init__(self, inner: Engine):
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        return self.inner(**inputs)

    def capturable(self, bucket: Bucket | None = None) -> Run:
        return as_capturable(self.inner).capturable(bucket)


def check_inputs(stage: Stage, inputs: Mapping[str, Array]) -> None:
    """A ValueError that names the first input that does not fit the stage's declaration.

    It is no InputError: a wrong tensor is a bug of the caller's code and no mistake of the user's.
    """
    declared = {tensor.name: tensor for tensor in stage.inputs}
    for name in inputs:
        if name not in declared:
            raise ValueError(f"stage {stage.full_name}: {unknown('input', name, declared)}")
    sizes: dict[str, tuple[int, str]] = {}  # of each dimension, and the input that has it
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


def _check_tensor(stage: Stage, tensor: TensorSpec, array: Array, sizes: dict[str, tuple[int, str]]) -> None:
    def wrong(what: str) -> ValueError:
        return ValueError(f"stage {stage.full_name}: input {tensor.name!r} {what}")

    if dtype_name(array) != tensor.dtype:
        raise wrong(f"is {dtype_name(array)}, declared {tensor.dtype}")
    shape = tuple(array.shape)
    if len(shape) != len(tensor.dims):
        raise wrong(f"has shape {shape}, declared {describe_dims(tensor)}")
    for size, dim in zip(shape, tensor.dims, strict=True):
        if isinstance(dim, int):
            if size != dim:
                raise wrong(f"has shape {shape}, declared {describe_dims(tensor)}")
            continue
        known, other = sizes.setdefault(dim.name, (size, tensor.name))
        if size != known:
            raise wrong(f"has {dim.name} = {size}, but {other!r} has {dim.name} = {known}")
        if not dim.min <= size <= dim.max:
            raise wrong(f"has {dim.name} = {size}, outside {dim.min} to {dim.max}")


def describe_dims(tensor: TensorSpec) -> str:
    return f"[{', '.join(d.name if isinstance(d, Dim) else str(d) for d in tensor.dims)}]"


_MISSING: Any = object()


class Recent(dict[K, V]):
    """At most `largest` values, in the order of their last use; what was unused for longest goes first.

    `largest` None: as many as there are. `let_go` is called with each value that goes.
    """

    def __init__(self, largest: int | None = None, let_go: Callable[[V], object] | None = None):
        super().__init__()
        self.largest, self._let_go = largest, let_go

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The key's value, which is then the one used last; `make` gives it where there is none."""
        value = self.pop(key, _MISSING)
        self[key] = value = make() if value is _MISSING else value
        while self.largest is not None and len(self) > self.largest:
            self.drop_oldest()
        return value

    def drop_oldest(self) -> None:
        """Lets go of the value that was unused for longest."""
        value = self.pop(next(iter(self)))
        if self._let_go:
            self._let_go(value)
