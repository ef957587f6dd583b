"""Launches kernels that Triton has compiled without Triton's own launch.

That one works out anew what a kernel is compiled for, and checks and encodes tensor descriptors: it takes
several times as long. It remains where Triton is of another version than TESTED, or a kernel is unlike ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch

TESTED = "3.6."  # what a launcher takes is no interface of Triton's, and has changed before


class Tiles(NamedTuple):
    """A tensor that a GPU copies by blocks of one size."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def descriptor(self) -> Any:
        """As Triton takes it, and checks it."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor(self.base, list(self.shape), list(self.strides), list(self.block))


class Ready(NamedTuple):
    """A compiled and loaded kernel."""

    launch: Callable[..., None]  # of the C module that Triton made for it
    stream_of: Callable[[int], int]
    before: tuple  # what `launch` takes between the stream and the arguments
    behind: tuple  # in place of the constants
    encode: Callable[..., Any]
    encodings: Sequence[tuple]  # of its tensor descriptors, the last first

    def __call__(self, device: int, grid: tuple[int, ...], arguments: list) -> None:
        """On the current stream of the current device; addresses stand for tensors, and Tiles for
        descriptors. It changes the list.
        """
        for place, *kind, block in self.encodings:
            base, shape, strides, _ = arguments[place]
            encoded = self.encode(base.data_ptr(), *kind, block, shape, strides, 0)
            arguments[place : place + 1] = encoded, *shape, *strides
        x, y, z = (*grid, 1, 1)[:3]
        self.launch(x, y, z, self.stream_of(device), *self.before, *arguments, *self.behind)


def ready(compiled: Any, arguments: Sequence[object]) -> Ready | None:
    """Of what Triton compiled for such arguments; None: Triton must launch it."""
    import triton
    from triton.compiler import CompiledKernel

    known = triton.__version__.startswith(TESTED) and isinstance(compiled, CompiledKernel)
    if not known or compiled.function is None:  # another thread is loading it
        return None
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST, CudaLauncher
    from triton.runtime.driver import driver

    run, driving = compiled.run, cast(Any, driver.active)
    places = [place for place, one in enumerate(arguments) if isinstance(one, Tiles)]
    described = compiled.metadata.tensordesc_meta or []
    if not isinstance(run, CudaLauncher) or run.global_scratch_size or run.profile_scratch_size:
        return None
    if len(described) != len(places) or any(one["fp4_padded"] for one in described):
        return None
    types = [TMA_DTYPE_DEVICE_TO_HOST[one["elem_type"]] for one in described]
    encodings = [
        (place, one["swizzle"], one["elem_size"], kind, one["block_size"])
        for place, one, kind in zip(places, described, types, strict=True)
    ]
    launch, scratch, hooks = run.launch, (None, None), (None, None, None)
    how = compiled.function, run.launch_cooperative_grid, run.launch_pdl
    if described:  # around the module's own function is what encodes them
        launch = inspect.getclosurevars(launch).nonlocals["launcher"]
    return Ready(
        launch,
        driving.get_current_stream,
        (*how, *scratch, compiled.packed_metadata, *hooks),
        (None,) * (len(compiled.src.signature) - len(arguments)),
        driving.utils.fill_tma_descriptor,
        encodings[::-1],
    )
