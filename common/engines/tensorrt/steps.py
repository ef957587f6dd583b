"""Several autoregressive steps of a TensorRT engine as one CUDA graph."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from melforge.common.arrays import Array
from melforge.common.engines.cuda_graphs import record
from melforge.common.engines.tensorrt.context import ALIGNMENT, LoadedPlan, TrtContext
from melforge.common.stages import Dim, Stage, TensorSpec

# Root mean square of an item's difference in a batch and alone, over that of the batch's values. Rounding in
# half precision costs a tenth of it.
ITEM_TOLERANCE = 2e-2


@dataclass(frozen=True)
class Repetition:
    """So many autoregressive steps of a stage at a time, each with a row of the input `noise`."""

    stage: Stage
    noise: str
    steps: int


class RepeatedSteps:
    """Several steps of a stage whose outputs `next_x` are the next step's inputs `x`, as one CUDA graph.

    Every step writes rows of its own, which the next step reads without a copy. The first step reads the last
    rows, so that a launch of the graph goes on where the one before ended.
    """

    def __init__(
        self,
        loaded: LoadedPlan,
        repetition: Repetition,
        fixed: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        stream: torch.cuda.Stream,
    ):
        stage, noise, steps = repetition.stage, repetition.noise, repetition.steps
        self._noise, self._steps = noise, steps
        self.fixed = {name: tensor.clone() for name, tensor in fixed.items()}
        sizes = sizes_of(stage, {**fixed, **state})
        shapes = {tensor.name: shape_of(tensor, sizes) for tensor in stage.outputs}
        sample = next(tensor for tensor in stage.inputs if tensor.name == noise)
        self._rows = {n: aligned_rows(steps, s, loaded.outputs[n], loaded.device) for n, s in shapes.items()}
        self._rows[noise] = aligned_rows(steps, shape_of(sample, sizes), torch.float32, loaded.device)
        self._rows[noise].uniform_()
        self._context = TrtContext(loaded, {**fixed, **state, noise: self._rows[noise][0]})
        self._replay: Callable[[], None] | None = None  # of their graph
        self._capture(list(shapes), stream)

    def _capture(self, outputs: Sequence[str], stream: torch.cuda.Stream) -> None:
        """Keeps a graph of the steps if it gives what they do."""
        loaded = self._context.loaded
        self._run(stream)  # what a first run sets up cannot be captured
        self._reset(None)
        self._run(stream)
        plain = {name: self._rows[name].clone() for name in outputs}
        stream.synchronize()
        try:
            replay, _ = record(lambda: self._run(torch.cuda.current_stream()))
        except (RuntimeError, ValueError) as error:
            warnings.warn(f"{loaded.name}: no CUDA graph of its steps: {error}", stacklevel=2)
            return
        # Plain runs of TensorRT for RTX are not in order, as the graph is: there it need only repeat itself.
        for _ in range(2 if loaded.trt.portable else 1):
            self._reset(None)
            replay()
            if all(torch.equal(plain[name], self._rows[name]) for name in outputs):
                self._replay = replay
                return
            plain = {name: self._rows[name].clone() for name in outputs}
        warnings.warn(f"{loaded.name}: a CUDA graph of its steps gives other numbers", stacklevel=2)

    def _reset(self, state: Mapping[str, Tensor] | None) -> None:
        """The state before the first step: zeros, or the one given."""
        for name, rows in self._rows.items():
            if name.startswith("next_"):
                given = (state or {}).get(name.removeprefix("next_"))
                rows[-1].zero_() if given is None else rows[-1].copy_(given)

    def start(self, fixed: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        for name, tensor in fixed.items():
            self.fixed[name].copy_(tensor)
        self._reset(state)

    def run(self, noise: Array, stream: torch.cuda.Stream) -> None:
        given = torch.as_tensor(noise)
        if not given.is_cuda:
            given = given.pin_memory()
        self._rows[self._noise][: len(given)].copy_(given, non_blocking=True)
        if self._replay is None:
            self._run(stream)
        else:
            self._replay()

    def _run(self, stream: torch.cuda.Stream) -> None:
        states = [name.removeprefix("next_") for name in self._rows if name.startswith("next_")]
        for step in range(self._steps):
            before = {name: self._rows[f"next_{name}"][step - 1] for name in states}
            inputs = {**self.fixed, **before, self._noise: self._rows[self._noise][step]}
            outputs = {name: self._rows[name][step] for name in self._context.loaded.outputs}
            self._context.bind(inputs, outputs)
            self._context.run(stream)

    def rows(self, name: str, count: int) -> Tensor:
        """Of an output or the noise, [count, ...]: those of the first steps."""
        return self._rows[name][:count].clone(memory_format=torch.contiguous_format)

    @property
    def state(self) -> dict[str, Tensor]:
        """Behind the last step."""
        names = (name for name in self._rows if name.startswith("next_"))
        return {name.removeprefix("next_"): self._rows[name][-1].clone() for name in names}


class ItemByItem:
    """The steps of a batch, one item after the other, on the steps of a single one."""

    def __init__(self, single: RepeatedSteps, repetition: Repetition):
        self._single, self._stage = single, repetition.stage
        self._noise, self._steps = repetition.noise, repetition.steps
        self._fixed: list[dict[str, Tensor]] = []
        self._states: list[dict[str, Tensor]] = []
        self._rows: dict[str, Tensor] = {}

    def start(self, fixed: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        batch = sizes_of(self._stage, fixed)[self._stage.batch.name]
        self._fixed = [item_of(self._stage, fixed, item) for item in range(batch)]
        self._states = [item_of(self._stage, state, item) for item in range(batch)]

    def run(self, noise: Array, stream: torch.cuda.Stream) -> None:
        given = torch.as_tensor(noise)
        axis = 1 + batch_axes(self._stage)[self._noise]
        names = [tensor.name for tensor in self._stage.outputs]
        rows: dict[str, list[Tensor]] = {name: [] for name in names}
        for item, fixed in enumerate(self._fixed):
            self._single.start(fixed, self._states[item])
            self._single.run(given.narrow(axis, item, 1), stream)
            self._states[item] = self._single.state
            for name in names:
                rows[name].append(self._single.rows(name, self._steps))
        self._rows = {name: torch.cat(parts, 1) for name, parts in rows.items()}

    def rows(self, name: str, count: int) -> Tensor:
        return self._rows[name][:count]


def make_steps(
    loaded: LoadedPlan,
    repetition: Repetition,
    fixed: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    stream: torch.cuda.Stream,
) -> RepeatedSteps | ItemByItem:
    """The steps of a batch, where each item gets what it gets alone; else a warning, and items one by one."""
    stage, steps = repetition.stage, repetition.steps
    made = RepeatedSteps(loaded, repetition, fixed, state, stream)
    if len(next(iter(state.values()))) == 1:
        return made
    zeros = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    first, start = (item_of(stage, part, 0) for part in (fixed, zeros))
    single = RepeatedSteps(loaded, repetition, first, start, stream)
    alone = ItemByItem(single, repetition)
    given = made.rows(repetition.noise, steps)
    for one in (made, alone):
        one.start(fixed, zeros)
        one.run(given, stream)
    wrong = {}
    for tensor in stage.outputs:
        batch, single = (one.rows(tensor.name, steps).double() for one in (made, alone))
        errors = (batch - single).square().transpose(0, 1).flatten(1).mean(1).sqrt()
        error = float((errors / single.square().mean().sqrt().clamp_min(1e-6)).max())
        if not error <= ITEM_TOLERANCE:  # nor NaN
            wrong[tensor.name] = error
    if not wrong:
        return made
    name = max(wrong, key=lambda name: wrong[name])
    warnings.warn(
        f"{loaded.name}: {name} of an item differs by {wrong[name]:.0%} in a batch of {batch.shape[1]} and "
        "alone: its items run one by one, which is slower",
        stacklevel=2,
    )
    return alone


def batch_axes(stage: Stage) -> dict[str, int]:
    """The axis of the batch in each input that has one."""
    return {
        tensor.name: tensor.dims.index(stage.batch) for tensor in stage.inputs if stage.batch in tensor.dims
    }


def item_of(stage: Stage, inputs: Mapping[str, Tensor], item: int) -> dict[str, Tensor]:
    """The inputs of one item of a batch, as a batch of one."""
    axes = batch_axes(stage)
    return {n: x.narrow(axes[n], item, 1).contiguous() if n in axes else x for n, x in inputs.items()}


def aligned_rows(count: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros [count, *shape] whose rows begin at addresses that TensorRT takes."""
    size = math.prod(shape)
    padded = -(-size * dtype.itemsize // ALIGNMENT) * ALIGNMENT // dtype.itemsize
    rows = torch.zeros(count, padded, dtype=dtype, device=device)[:, :size]
    return rows.unflatten(1, shape)


def sizes_of(stage: Stage, inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """The sizes that the stage's dynamic dimensions have in these inputs."""
    return {
        dim.name: size
        for tensor in stage.inputs
        if tensor.name in inputs
        for dim, size in zip(tensor.dims, inputs[tensor.name].shape, strict=True)
        if isinstance(dim, Dim)
    }


def shape_of(tensor: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dim if isinstance(dim, int) else sizes[dim.name] for dim in tensor.dims)
