"""Checks of the kernels' tensors, which must come before a launch: a kernel gets addresses only."""

from collections.abc import Collection

import torch
from torch import Tensor


def require(
    name: str, tensor: Tensor, shape: tuple[int | None, ...], dtypes: Collection[str], device: torch.device
) -> None:
    """A ValueError unless the tensor is contiguous on that GPU, with this type and shape (None: any)."""
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
