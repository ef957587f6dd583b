"""The check of an engine's inputs against its stage's declaration.

A wrong tensor is a bug of the caller's code and no mistake of the user's: a ValueError, not an InputError.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.arrays import Array, dtype_name
from common.errors import unknown
from common.stages import Dim, Stage, TensorSpec


def check_inputs(stage: Stage, inputs: Mapping[str, Array]) -> None:
    """Raises a ValueError that names the first input that does not fit the stage's declaration."""
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


def describe_dims(tensor: TensorSpec) -> str:
    return f"[{', '.join(d.name if isinstance(d, Dim) else str(d) for d in tensor.dims)}]"
