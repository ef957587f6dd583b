"""Loads what Triton compiled and launches it, both by the GPU's driver.

For Triton's own launch a C compiler makes a module of each signature, which takes longer than the kernels do,
and each launch works out anew what a kernel is compiled for. It remains for kernels that want more than ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
import sys
import threading
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

import torch

from melforge.common.cuda_streams import bindings, checked
from melforge.common.engines.limits import device_limits
from melforge.trt_plugins.kernel import allow_shared

POINTER, DESCRIPTOR, CONSTANT = "pointer", "descriptor", "constexpr"  # beside Triton's names of numbers
# How a parameter lies in a slot of 8 bytes.
SLOTS = {"i1": "b7x", "i8": "b7x", "i16": "h6x", "i32": "i4x", "i64": "q", "u1": "B7x", "u8": "B7x"}
SLOTS |= {"u16": "H6x", "u32": "I4x", "u64": "Q", "fp16": "e6x", "fp32": "f4x", "fp64": "d", POINTER: "Q"}
DESCRIPTOR_BYTES = 128
# CUtensorMapDataType, CUtensorMapL2promotion and CUresult, as cuda.h has them.
KINDS = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
PROMOTE_128_BYTES = 2
INVALID_CONTEXT = 201
MOST_SHARED = 48 << 10  # bytes, unless a kernel is allowed more
WARP = 32


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


@functools.cache
def encode_tiled() -> Any:
    """The driver's function: `cuda.bindings` takes objects of its own for each number."""
    library = ctypes.PyDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    return library.cuTensorMapEncodeTiled


class Descriptor:
    """A tensor descriptor in a launch's memory, of Tiles of one kind."""

    def __init__(self, address: int, made: dict[str, Any], tiles: Tiles):
        block, self._bytes, self._described = made["block_size"][::-1], made["elem_size"], None
        axes, number, where = len(block), ctypes.c_uint, ctypes.c_void_p
        self._memory = ctypes.create_string_buffer(8 * (2 * axes - 1))
        self._pack, start = struct.Struct(f"={2 * axes - 1}Q").pack_into, ctypes.addressof(self._memory)
        self._what = where(address), number(KINDS[tiles.base.dtype]), number(axes)
        sizes, steps = where(start), where(start + 8 * axes)
        elements = (number * axes)(*[1] * axes)
        how = 0, made["swizzle"], PROMOTE_128_BYTES, 0  # not interleaved; zeros beyond the edges
        self._how = sizes, steps, (number * axes)(*block), elements, *map(number, how)
        self._encode = encode_tiled()

    def describe(self, tiles: Tiles) -> None:
        base, shape, strides, _ = tiles
        wanted = base.data_ptr(), shape, strides
        if wanted != self._described:
            self._described = None
            self._pack(self._memory, 0, *shape[::-1], *[step * self._bytes for step in strides[-2::-1]])
            check(self._encode(*self._what, ctypes.c_void_p(wanted[0]), *self._how))
            self._described = wanted


class Ready:
    """A compiled and loaded kernel: call it to launch it."""

    def __init__(self, function: int, compiled: Any, arguments: Sequence[object]):
        made, signature = compiled.metadata, signature_of(compiled)
        types = flat_types(signature)
        count = types.count(DESCRIPTOR)
        memory = ctypes.create_string_buffer(DESCRIPTOR_BYTES * (count + 1) + 8 * len(types) + 8)
        start = -(-ctypes.addressof(memory) // DESCRIPTOR_BYTES) * DESCRIPTOR_BYTES
        end = slots = start + DESCRIPTOR_BYTES * count
        addresses, numbers, layout = [], [], ""
        for place, name in enumerate(types):
            if name == DESCRIPTOR:
                addresses.append(start)
                start += DESCRIPTOR_BYTES
            elif name != CONSTANT:
                addresses.append(end)
                numbers.append(place)
                layout, end = layout + SLOTS[name], end + 8
        addresses += [end, end]  # 0: memory of its own, which no kernel of ours has
        start = slots - DESCRIPTOR_BYTES * count
        tiles = [(place, one) for place, one in enumerate(arguments) if isinstance(one, Tiles)]
        descriptors = {
            place: Descriptor(start + DESCRIPTOR_BYTES * at, how, one)
            for at, ((place, one), how) in enumerate(zip(tiles, _described(made), strict=True))
        }
        nested = {place: None for place, name in enumerate(signature) if isinstance(name, tuple)}
        self._wide = sorted({**descriptors, **nested}.items(), reverse=True)  # the last first: places move
        self._memory, self._turn, self._slots = memory, threading.Lock(), slots - ctypes.addressof(memory)
        self._pack, self._numbers = struct.Struct("<" + layout).pack_into, itemgetter(*numbers)
        self._addresses = (ctypes.c_void_p * len(addresses))(*addresses)
        driver = bindings("driver")
        self._launch, self._function = driver.cuLaunchKernel, driver.CUfunction(function)
        self._block = WARP * made.num_warps, 1, 1, made.shared
        self._parameters = ctypes.addressof(self._addresses), 0
        self._stream_of = cast(Any, torch._C)._cuda_getCurrentRawStream

    def __call__(self, device: int, grid: tuple[int, ...], arguments: list) -> None:
        """On the current stream of the current device; addresses stand for tensors. It changes the list."""
        x, y, z = (*grid, 1, 1)[:3]
        with self._turn:
            for place, descriptor in self._wide:
                one = arguments[place]
                if descriptor:
                    descriptor.describe(one)
                    arguments[place : place + 1] = None, *one.shape, *one.strides
                else:
                    arguments[place : place + 1] = flat_values(one)
            self._pack(self._memory, self._slots, *self._numbers(arguments))
            how = *self._block, self._stream_of(device), *self._parameters
            (status,) = self._launch(self._function, x, y, z, *how)
            if status == INVALID_CONTEXT:  # this thread has used no GPU yet
                torch.cuda.set_device(device)
                (status,) = self._launch(self._function, x, y, z, *how)
        if status:
            self._fail(status, device)

    def _fail(self, status: int, device: int) -> None:
        from triton.runtime.errors import OutOfResources

        *_, shared = self._block
        most = device_limits(device).shared_bytes
        if shared > most:
            raise OutOfResources(shared, most, "shared memory")
        check(status)


def check(status: int) -> None:
    if status:
        checked((bindings("driver").CUresult(status),))


def signature_of(compiled: Any) -> list:
    """Triton's types of a kernel's arguments."""
    return list(compiled.src.signature.values())


def _described(metadata: Any) -> list[dict]:
    return metadata.tensordesc_meta or []


def flat_types(signature: Iterable[str | tuple]) -> list[str]:
    """Of the parameters, with the constants between them, which are none."""
    flat = []
    for one in signature:
        if isinstance(one, tuple):
            flat += flat_types(one)
        elif one.startswith("tensordesc"):
            axes = one.count(",", one.index("["), one.index("]")) + 1
            flat += [DESCRIPTOR, *["i32"] * axes, *["i64"] * axes]
        else:
            flat.append(POINTER if one.startswith("*") else one)
    return flat


def flat_values(one: object) -> list:
    """Of an argument, in the order of `flat_types`."""
    if isinstance(one, tuple):
        return [value for each in one for value in flat_values(each)]
    return [one.data_ptr() if isinstance(one, torch.Tensor) else one]


def parameter_bytes(compiled: Any) -> list[int]:
    """Of each parameter of a kernel, but for the addresses of its own memory, which are the last two.

    A KeyError of types that no kernel of ours has.
    """
    sizes = {name: struct.calcsize(slot[0]) for name, slot in SLOTS.items()} | {DESCRIPTOR: DESCRIPTOR_BYTES}
    return [sizes[name] for name in flat_types(signature_of(compiled)) if name != CONSTANT]


def ready(compiled: Any, arguments: Sequence[object], device: int) -> Ready | None:
    """What Triton compiled for such arguments, loaded on the current GPU; None: Triton must launch it."""
    made = compiled.metadata
    memory = made.global_scratch_size or made.profile_scratch_size
    halves = any(how["fp4_padded"] for how in _described(made))
    if memory or halves or made.num_ctas > 1 or made.launch_cooperative_grid or made.launch_pdl:
        return None
    with contextlib.suppress(KeyError):
        function = load(compiled, device)
        return None if function is None else Ready(function, compiled, arguments)
    return None


def load(compiled: Any, device: int) -> int | None:
    """A kernel's handle on the current GPU; 0 where a block would take too much shared memory, and None where
    its parameters are others than its signature tells.
    """
    driver, shared, most = bindings("driver"), compiled.metadata.shared, device_limits(device).shared_bytes
    if shared > most:
        return 0
    torch.cuda.set_device(device)  # its context is this thread's then
    module = checked(driver.cuModuleLoadData(compiled.asm["cubin"]))
    function = checked(driver.cuModuleGetFunction(module, compiled.metadata.name.encode()))
    wanted, found = parameter_bytes(compiled), _parameter_bytes(function)
    if found[: len(wanted)] != wanted or len(found) > len(wanted) + 2:
        return None
    if shared > MOST_SHARED:
        checked(driver.cuFuncSetCacheConfig(function, driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED))
        allow_shared(function, most)
    return int(function)


def _parameter_bytes(function: Any) -> list[int]:
    """As the driver tells them; none before CUDA 12.4."""
    driver, sizes = bindings("driver"), []
    with contextlib.suppress(AttributeError, RuntimeError):
        while True:
            _, size = checked(driver.cuFuncGetParamInfo(function, len(sizes)))
            sizes.append(size)
    return sizes
