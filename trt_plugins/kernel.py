"""Loads the CUDA kernels beside this file and launches them on a stream of the caller's.

What `make` compiled is loaded, unless it is not there or older than its source: then NVRTC compiles that.
NVRTC and `cuda.bindings` come with PyTorch's CUDA builds. Nothing here needs PyTorch itself.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

THREADS = 256  # of a block, in every kernel here
ROWS = THREADS // 32  # that a block makes: one a warp
BINARIES = Path(__file__).parent / "build"
MOST_BLOCKS = 2**31 - 1


class Launch:
    """A kernel with its arguments bound, as an engine's context has its addresses: call it with a stream.

    A call allocates nothing on the device and waits for nothing, so a CUDA graph can capture it. The memory
    whose addresses it was given must live as long as it does: `keep` holds what owns it.
    """

    def __init__(
        self, source: Path, entry: str, device: int, blocks: int, arguments: Sequence[int], keep: tuple = ()
    ):
        if blocks > MOST_BLOCKS:
            raise ValueError(f"{entry}: {blocks} blocks are more than one launch can have")
        self._blocks = blocks
        self._keep = keep
        if not blocks:  # nothing to make
            return
        self._driver = bindings("driver")
        self._context, self._function = _load(source, entry, device)
        # Addresses and sizes alike are 8 bytes; the driver wants a pointer to each.
        self._values = (ctypes.c_int64 * len(arguments))(*arguments)
        first = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * len(arguments))(*(first + 8 * i for i in range(len(arguments))))

    def __call__(self, stream: int) -> None:
        """Puts the kernel on a stream, given as PyTorch's `cuda_stream` and TensorRT give it."""
        if not self._blocks:
            return
        driver, arguments = self._driver, ctypes.addressof(self._pointers)
        grid, block = (self._blocks, 1, 1), (THREADS, 1, 1)
        checked(driver.cuCtxPushCurrent(self._context))  # this thread may have none, or another device's
        try:
            checked(driver.cuLaunchKernel(self._function, *grid, *block, 0, stream, arguments, 0))
        finally:
            checked(driver.cuCtxPopCurrent())


def bindings(name: str) -> Any:
    """A module of `cuda.bindings`; a ValueError where it is not installed."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError:
        raise ValueError(
            "the CUDA kernels need cuda.bindings, which PyTorch's CUDA builds bring along: "
            "pip install cuda-bindings, of the version of CUDA that PyTorch was built for"
        ) from None


def widest_word(words: Sequence[int], *values: int) -> int:
    """The first of `words` (bytes, falling) that divides all of `values`: a row's bytes, and addresses."""
    return next(word for word in words if not any(value % word for value in values))


def current_device() -> int:
    """The device of this thread's context, which is where TensorRT runs an engine."""
    return int(checked(bindings("driver").cuCtxGetDevice()))


@functools.cache
def _load(source: Path, entry: str, device: int) -> tuple[Any, Any]:
    """A device's context, the one that PyTorch and TensorRT use too, and the kernel loaded there."""
    context, module = _load_module(source, device)
    return context, checked(bindings("driver").cuModuleGetFunction(module, entry.encode()))


@functools.cache
def _load_module(source: Path, device: int) -> tuple[Any, Any]:
    driver = bindings("driver")
    checked(driver.cuInit(0))
    handle = checked(driver.cuDeviceGet(device))
    context = checked(driver.cuDevicePrimaryCtxRetain(handle))
    image = compiled(source)
    if image is None:
        kinds = driver.CUdevice_attribute
        capability = [
            checked(driver.cuDeviceGetAttribute(kind, handle))
            for kind in (
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        ]
        image = compile_for(source, "sm_{}{}".format(*capability))
    checked(driver.cuCtxPushCurrent(context))
    try:
        return context, checked(driver.cuModuleLoadData(image))
    finally:
        checked(driver.cuCtxPopCurrent())


def compiled(source: Path) -> bytes | None:
    """What `make` made of a kernel, unless it is older than its source."""
    binary = BINARIES / f"{source.stem}.fatbin"
    if not binary.is_file() or binary.stat().st_mtime < source.stat().st_mtime:
        return None
    return binary.read_bytes()


def compile_for(source: Path, architecture: str) -> bytes:
    """Compiles a kernel with NVRTC, for one architecture such as "sm_90"."""
    nvrtc = bindings("nvrtc")
    text = source.read_bytes()
    program = checked(nvrtc.nvrtcCreateProgram(text, source.name.encode(), 0, None, None))
    options = [b"-std=c++17", f"-arch={architecture}".encode()]
    status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
        nvrtc.nvrtcGetProgramLog(program, log)
        reason = log.decode().strip("\0 \n") or status.name
        raise RuntimeError(f"{source.name} does not compile for {architecture}: {reason}")
    image = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
    checked(nvrtc.nvrtcGetCUBIN(program, image))
    checked(nvrtc.nvrtcDestroyProgram(program))
    return image


def checked(answer: tuple) -> Any:
    """What a call of CUDA's gives behind its status, once the status says that all is well."""
    status, *values = answer
    if status != 0:
        raise RuntimeError(f"CUDA says {status.name}")
    return values[0] if values else None
