"""FastSpeech's `repeat` and `add_pos_enc` as CUDA kernels, in every way that they are launched.

As operations of a network, `FastSpeech(config, KERNELS)`, for inference only: they have no gradients. Bound
to tensors at fixed addresses, as between two engines. And on addresses, as TensorRT plugins (registry.py).

Axes: B batch, N steps in, T steps out, C channels, P positions of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from melforge.fastspeech.operations import Operations
from melforge.trt_plugins.kernel import ROWS, Launch, widest_word

NUMBER_BYTES = {"float32": 4, "float16": 2, "int32": 4}


class Input(NamedTuple):
    axes: str
    types: tuple[str, ...] = ()  # empty: the first input's type


# What a kernel is launched with beside addresses: its entry point, blocks, and numbers.
Choice = tuple[str, int, tuple[int, ...]]


@dataclass(frozen=True)
class KernelOperation:
    """A kernel of several inputs, with one output of the first input's type."""

    name: str  # of its plugin
    source: Path
    inputs: Mapping[str, Input]
    output: str  # its axes
    # Of the first input's type, the axes' sizes, and the addresses of inputs and output.
    choose: Callable[[str, Mapping[str, int], Sequence[int]], Choice]

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The output, allocated here, on PyTorch's current stream."""
        tensors = [tensor.contiguous() for tensor in inputs]
        out = tensors[0].new_empty(self.output_shape(tensor.shape for tensor in tensors))
        self.bind(*tensors, out)(torch.cuda.current_stream(out.device).cuda_stream)
        return out

    def output_shape(self, shapes: Any) -> list[Any]:
        """The output's dimensions from the inputs': numbers or expressions."""
        sizes = self._sizes(shapes)
        return [sizes[axis] for axis in self.output]

    def launch(
        self, device: int, dtype: str, shapes: Any, addresses: Sequence[int], keep: tuple = ()
    ) -> Launch:
        """The launch for inputs of these shapes; `addresses` are those of the inputs and the output."""
        entry, blocks, numbers = self.choose(dtype, self._sizes(shapes), addresses)
        return Launch(self.source, entry, device, blocks, (*addresses, *numbers), keep)

    def bind(self, *tensors: Tensor) -> Launch:
        """Inputs and output -> the launch that fills the output. A ValueError where a tensor does not fit."""
        first, *_ = tensors
        dtype, sizes = dtype_name(first), {}
        for (name, (axes, types)), tensor in zip(
            (*self.inputs.items(), ("out", Input(self.output))), tensors, strict=True
        ):
            require(name, tensor, tuple(map(sizes.get, axes)), types or (dtype,), first.device)
            sizes |= zip(axes, tensor.shape, strict=True)
        shapes = [tensor.shape for tensor in tensors[:-1]]
        addresses = [tensor.data_ptr() for tensor in tensors]
        return self.launch(first.device.index, dtype, shapes, addresses, keep=tensors)

    def _sizes(self, shapes: Any) -> dict[str, Any]:
        """The axes' sizes; of an axis of several inputs the first one's."""
        sizes: dict[str, Any] = {}
        for (axes, _), shape in zip(self.inputs.values(), shapes, strict=True):
            for index, axis in enumerate(axes):
                sizes.setdefault(axis, shape[index])
        return sizes


def require(
    name: str, tensor: Tensor, shape: tuple[int | None, ...], dtypes: Sequence[str], device: torch.device
) -> None:
    """A ValueError unless the tensor is contiguous on that GPU, with this type and shape (None: any).

    It comes before a launch: a kernel gets addresses only.
    """
    dtype = dtype_name(tensor)
    if dtype not in dtypes:
        raise ValueError(f"{name} is {dtype}; the kernel takes {', '.join(dtypes)}")
    sizes = tuple(tensor.shape)
    if len(sizes) != len(shape) or any(
        want not in (None, size) for want, size in zip(shape, sizes, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} is {list(sizes)}; it must be [{wanted}]")
    if tensor.device != device or device.type != "cuda":
        raise ValueError(f"{name} is on {tensor.device}; x is on {device}, and the kernel runs on a GPU")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} wants a gradient, and the kernel has none: train with DECOMPOSED")


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def choose_repeat(dtype: str, sizes: Mapping[str, int], addresses: Sequence[int]) -> Choice:
    """Words as wide as rows and addresses allow: the kernel only copies."""
    if not sizes["N"]:
        raise ValueError("repeat needs at least one step")
    row_bytes = sizes["C"] * NUMBER_BYTES[dtype]
    word = widest_word((16, 8, 4, 2), row_bytes, addresses[0], addresses[-1])
    # The frames of a block belong to one item.
    blocks = sizes["B"] * -(-sizes["T"] // ROWS) if sizes["C"] else 0
    return f"repeat_{word}", blocks, (sizes["N"], sizes["T"], row_bytes // word)


def choose_add_pos_enc(dtype: str, sizes: Mapping[str, int], addresses: Sequence[int]) -> Choice:
    """Words of 16 bytes where rows and addresses allow it, else single numbers."""
    frames, positions, number_bytes = sizes["T"], sizes["P"], NUMBER_BYTES[dtype]
    if positions <= frames:
        raise ValueError(
            f"the table encodes positions up to {positions - 1}, and x has {frames}: "
            f"it needs {frames + 1} rows"
        )
    row_bytes = sizes["C"] * number_bytes
    x, _, table, out = addresses
    word = widest_word((16, number_bytes), row_bytes, x, table, out)
    rows = sizes["B"] * frames if sizes["C"] else 0
    kind = {"float32": "float", "float16": "half"}[dtype]
    return f"add_pos_enc_{kind}_{word}", -(-rows // ROWS), (rows, frames, row_bytes // word)


# As `melforge.fastspeech.operations.repeat`; negative counts are clipped to 0.
REPEAT = KernelOperation(
    name="Repeat",
    source=Path(__file__).with_name("repeat.cu"),
    inputs={
        "x": Input("BNC", tuple(NUMBER_BYTES)),
        "counts": Input("BN", ("int64",)),
        "frames": Input("T", ("int64",)),
    },
    output="BTC",
    choose=choose_repeat,
)
# As `melforge.fastspeech.operations.add_pos_enc`, for x and table of one type.
ADD_POS_ENC = KernelOperation(
    name="AddPosEnc",
    source=Path(__file__).with_name("add_pos_enc.cu"),
    inputs={
        "x": Input("BTC", ("float32", "float16")),
        "lengths": Input("B", ("int64",)),
        "table": Input("PC"),
    },
    output="BTC",
    choose=choose_add_pos_enc,
)
KERNELS = Operations(REPEAT, ADD_POS_ENC)
