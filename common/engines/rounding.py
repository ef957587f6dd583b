"""What a precision costs: PyTorch in float32 that rounds where an engine of that precision rounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

# Functions whose factors are rounded, by name: what runs on tensor cores.
PRODUCTS = frozenset(
    {"conv1d", "conv_transpose1d", "linear", "matmul", "__matmul__", "bmm", "einsum", "lstm", "lstm_cell"}
    | {"scaled_dot_product_attention"}
)
LARGEST_HALF = 65504.0
MANTISSA = 23  # stored bits of a float32


@dataclass(frozen=True)
class Precision:
    """How an engine rounds, and what every layer is allowed beside that."""

    bits: int  # stored mantissa bits of the factors of products
    half: bool  # whether tensors between the layers are in half precision too
    floor: float  # relative


# ONNX Runtime sums in another order than PyTorch. A sum of n terms then differs by about sqrt(n) roundings;
# 20 bits are 8. TensorRT multiplies in TF32. Kernels are all of float32, or all of half precision, or between
# them: half precision has as many bits as TF32 where its products' factors are rounded to it.
PRECISIONS = {
    ("onnx", "fp32"): Precision(20, False, 1e-5),
    ("onnx", "exact"): Precision(20, False, 1e-5),
    ("trt", "exact"): Precision(18, False, 3e-5),
    ("trt", "fp32"): Precision(10, False, 1e-3),
    ("trt", "fp16"): Precision(10, True, 1e-3),
    ("cuda", "fp32"): Precision(20, False, 1e-5),
    ("cuda", "half products"): Precision(10, False, 5e-4),
    ("cuda", "fp16"): Precision(10, True, 1e-3),
}


def to_half(x: Tensor) -> Tensor:
    """x as half precision holds it; what is too large for it stays."""
    return torch.where(x.abs() < LARGEST_HALF, x.half().float(), x)


def to_bits(x: Tensor, bits: int) -> Tensor:
    """A finite x with so many stored bits of mantissa, rounded half up in magnitude."""
    unit = 1 << (MANTISSA - bits)
    return ((x.view(torch.int32) + unit // 2) & -unit).view(torch.float32)


class Rounding(TorchFunctionMode):
    """While it is entered, the factors of products are rounded, and in half precision every new tensor.

    In half precision, what is computed with weights that `float32_layers` name has TF32 factors, and stays in
    float32 (engines/tensorrt/half.py).
    """

    def __init__(self, precision: Precision, network: nn.Module, float32_layers: tuple[str, ...]):
        super().__init__()
        self.precision = precision
        self._kept: set[int] = set()
        if precision.half:
            named = network.state_dict(keep_vars=True).items()
            patterns = [p for pattern in float32_layers for p in (pattern, f"{pattern}.*")]
            self._kept = {
                x.data_ptr() for name, x in named if any(fnmatchcase(name, pattern) for pattern in patterns)
            }

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named: dict[str, Any] = dict(kwargs or {})
        given: list[Tensor] = []
        tree_map(lambda x: given.append(x) if isinstance(x, Tensor) else None, (args, named))
        name = getattr(func, "__name__", "")
        kept = any(x.data_ptr() in self._kept for x in given if x.is_floating_point())
        if name in PRODUCTS:
            half = self.precision.half and not kept
            args = tree_map(lambda x: self._round(x, half), args)
            named = {key: tree_map(lambda x: self._round(x, half), value) for key, value in named.items()}
        if name == "__get__" or kept:
            return func(*args, **named)
        if name == "scaled_dot_product_attention" and self.precision.half:
            return self._attention(*args)
        made = func(*args, **named)
        if self.precision.half:
            own = {x.untyped_storage().data_ptr() for x in given}
            # Views and results in place share their memory with an argument.
            tree_map(lambda x: self._round_new(x, own), made)
        return made

    def _round(self, x: Any, half: bool) -> Any:
        if not isinstance(x, Tensor) or x.dtype != torch.float32:
            return x
        return to_half(x) if half else to_bits(x, self.precision.bits)

    def _round_new(self, x: Any, own: set[int]) -> None:
        if isinstance(x, Tensor) and x.dtype == torch.float32 and x.untyped_storage().data_ptr() not in own:
            x.copy_(to_half(x))

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *_: Any) -> Tensor:
        """Scores are a tensor of their own in an engine, and large ones are rounded by more."""
        scores = to_half(to_half(q @ k.transpose(2, 3)) / q.shape[3] ** 0.5 + bias)
        return to_half(to_half(scores.softmax(3)) @ v)
