"""Loads the CUDA kernels of these packages and launches them on the caller's stream.

The binary that `make` compiled is loaded. If there is none, or it is older than its source or compiled for
other sizes, NVRTC compiles the source into the cache. NVRTC and `cuda.bindings` come with PyTorch's CUDA
builds. Nothing here needs PyTorch itself.
"""

import ctypes
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from melforge.common.cuda_streams import bindings, checked
from melforge.common.engines.limits import device_limits
from melforge.common.files import cache_folder, write_bytes

THREADS = 256  # of a block, unless a kernel says otherwise
ROWS = THREADS // 32  # of a block: one per warp
BINARIES = Path(__file__).parent / "build"
MOST_BLOCKS = 2**31 - 1
Macros = tuple[tuple[str, int], ...]  # names and values for the compiler; none: the source's defaults


class Grid(NamedTuple):
    """The configuration of a launch."""

    blocks: int
    threads: int = THREADS  # of a block
    shared_bytes: int = 0  # dynamic shared memory of a block
    cooperative: bool = False  # all blocks are resident, so that they may wait for each other


class Launch:
    """A kernel with its arguments bound: call it with a stream.

    A call allocates nothing on the device and does not synchronise, so that a CUDA graph can capture it. The
    memory behind the addresses must live as long as the launch: `keep` holds its owners.
    """

    def __init__(
        self,
        source: Path,
        entry: str,
        device: int,
        grid: int | Grid,
        arguments: Sequence[int],
        keep: tuple = (),
        macros: Macros = (),
    ):
        grid = grid if isinstance(grid, Grid) else Grid(grid)
        if grid.blocks > MOST_BLOCKS:
            raise ValueError(f"{entry}: {grid.blocks} blocks are more than one launch can have")
        self._grid = grid
        self._keep = keep
        if not grid.blocks:  # an empty result
            return
        self._driver = bindings("driver")
        self._context, self._function = _load(source, entry, device, macros)
        # Every argument is 8 bytes wide; the driver takes a pointer to each.
        self._values = (ctypes.c_int64 * len(arguments))(*arguments)
        first = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * len(arguments))(*(first + 8 * i for i in range(len(arguments))))

    def __call__(self, stream: int) -> None:
        """Launches the kernel on a stream, given by its address as in PyTorch's `cuda_stream`."""
        grid = self._grid
        if not grid.blocks:
            return
        driver, arguments = self._driver, ctypes.addressof(self._pointers)
        sizes = (grid.blocks, 1, 1, grid.threads, 1, 1, grid.shared_bytes)
        checked(driver.cuCtxPushCurrent(self._context))  # this thread may have none, or another device's
        try:
            if grid.cooperative:
                checked(driver.cuLaunchCooperativeKernel(self._function, *sizes, stream, arguments))
            else:
                checked(driver.cuLaunchKernel(self._function, *sizes, stream, arguments, 0))
        finally:
            checked(driver.cuCtxPopCurrent())


def widest_word(words: Sequence[int], *values: int) -> int:
    """The first of `words` (in bytes, descending) that divides all `values`: row sizes and addresses."""
    return next(word for word in words if not any(value % word for value in values))


def current_device() -> int:
    """The device of this thread's CUDA context, on which TensorRT runs an engine."""
    return int(checked(bindings("driver").cuCtxGetDevice()))


@functools.cache
def _load(source: Path, entry: str, device: int, macros: Macros) -> tuple[Any, Any]:
    """A device's primary context, which PyTorch and TensorRT use too, and the kernel loaded in it."""
    context, module = _load_module(source, device, macros)
    function = checked(bindings("driver").cuModuleGetFunction(module, entry.encode()))
    checked(bindings("driver").cuCtxPushCurrent(context))
    try:
        allow_shared(function, device_limits(device).shared_bytes)
    finally:
        checked(bindings("driver").cuCtxPopCurrent())
    return context, function


@functools.cache
def _load_module(source: Path, device: int, macros: Macros) -> tuple[Any, Any]:
    driver = bindings("driver")
    checked(driver.cuInit(0))
    context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(device))))
    image = None if macros else compiled(source)
    if image is None:
        image = compiled_once(source, f"sm_{device_limits(device).architecture}", macros)
    checked(driver.cuCtxPushCurrent(context))
    try:
        return context, checked(driver.cuModuleLoadData(image))
    finally:
        checked(driver.cuCtxPopCurrent())


def allow_shared(function: Any, most: int) -> None:
    """Allows a kernel of the current context all dynamic shared memory that a block can have.

    Once: the limit is the function's, and launches of several threads would set it to what each needs.
    """
    driver = bindings("driver")
    kinds = driver.CUfunction_attribute
    static = checked(driver.cuFuncGetAttribute(kinds.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
    dynamic = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(driver.cuFuncSetAttribute(function, dynamic, most - static))


def compiled(source: Path) -> bytes | None:
    """The binary that `make` compiled; None if there is none or it is older than its source."""
    binary = BINARIES / f"{source.stem}.fatbin"
    if not binary.is_file() or binary.stat().st_mtime < source.stat().st_mtime:
        return None
    return binary.read_bytes()


def compiled_once(source: Path, architecture: str, macros: Macros = ()) -> bytes:
    """A kernel compiled by NVRTC, from the cache or into it."""
    _, *version = bindings("nvrtc").nvrtcVersion()
    asked = repr((architecture, macros, version)).encode()
    name = hashlib.sha256(source.read_bytes() + asked).hexdigest()[:16]
    kept = cache_folder() / "kernels" / f"{source.stem}.{architecture}.{name}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    image = compile_for(source, architecture, macros)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(kept, image)
    return image


def compile_for(source: Path, architecture: str, macros: Macros = ()) -> bytes:
    """Compiles a kernel with NVRTC, for one architecture such as "sm_90"."""
    nvrtc = bindings("nvrtc")
    text = source.read_bytes()
    program = checked(nvrtc.nvrtcCreateProgram(text, source.name.encode(), 0, None, None))
    options = [b"-std=c++17", f"-arch={architecture}".encode()]
    options += [f"-D{name}={value}".encode() for name, value in macros]
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
