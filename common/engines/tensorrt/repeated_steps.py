"""Several steps of an autoregressive stage as one CUDA graph."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from common.arrays import Array
from common.engines.cuda_graphs import record
from common.engines.tensorrt.context import ALIGNMENT, TrtContext
from common.stages import Dim, Stage


class RepeatedSteps:
    """Several steps of a stage whose outputs `next_x` are the next step's inputs `x`, as one CUDA graph.

    Every step writes rows of its own, which the next step reads without a copy. The first step reads the last
    rows, so that a launch of the graph goes on where the one before ended.
    """

    def __init__(self, context: TrtContext, fixed: Mapping[str, Tensor], noise: str, steps: int):
        self._context, self._noise, self._steps = context, noise, steps
        self.fixed = {name: tensor.clone() for name, tensor in fixed.items()}
        self._rows: dict[str, Tensor] = {}
        self._replay: Callable[[], None] | None = None  # of their graph

    def prepare(
        self, shapes: Mapping[str, tuple[int, ...]], noise: tuple[int, ...], stream: torch.cuda.Stream
    ) -> None:
        """Allocates rows for outputs of these shapes; keeps a graph of the steps if it gives what they do."""
        loaded = self._context.loaded
        self._rows = {
            n: aligned_rows(self._steps, s, loaded.outputs[n], loaded.device) for n, s in shapes.items()
        }
        self._rows[self._noise] = aligned_rows(self._steps, noise, torch.float32, loaded.device)
        self._rows[self._noise].uniform_()
        self._run(stream)  # what a first run sets up cannot be captured
        self._reset(None)
        self._run(stream)
        plain = {name: self._rows[name].clone() for name in shapes}
        stream.synchronize()
        try:
            replay, _ = record(lambda: self._run(stream), stream)
        except (RuntimeError, ValueError) as error:
            warnings.warn(f"{loaded.name}: no CUDA graph of its steps: {error}", stacklevel=2)
            return
        # Plain runs of TensorRT for RTX are not in order, as the graph is: there it need only repeat itself.
        for _ in range(2 if loaded.trt.portable else 1):
            self._reset(None)
            replay()
            if all(torch.equal(plain[name], self._rows[name]) for name in shapes):
                self._replay = replay
                return
            plain = {name: self._rows[name].clone() for name in shapes}
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
        return self._rows[name][:count].clone(memory_format=torch.contiguous_format)


def aligned_rows(count: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros [count, *shape] whose rows begin at addresses that TensorRT takes."""
    size = math.prod(shape)
    padded = -(-size * dtype.itemsize // ALIGNMENT) * ALIGNMENT // dtype.itemsize
    rows = torch.zeros(count, padded, dtype=dtype, device=device)[:, :size]
    return rows.unflatten(1, shape)


def batch_shape(stage: Stage, output: str, inputs: Mapping[str, Tensor]) -> tuple[int, ...]:
    """An output's shape, from the sizes that the inputs' dimensions have."""
    sizes = {
        dim.name: size
        for tensor in stage.inputs
        if tensor.name in inputs
        for dim, size in zip(tensor.dims, inputs[tensor.name].shape, strict=True)
        if isinstance(dim, Dim)
    }
    dims = next(tensor.dims for tensor in stage.outputs if tensor.name == output)
    return tuple(dim if isinstance(dim, int) else sizes[dim.name] for dim in dims)
