"""Shared by the engines on our own kernels: what is launched, on which memory."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import torch

from melforge.common.arrays import Array
from melforge.common.config.deployment import Bucket
from melforge.common.engines import MEL_STEP, SHORT, SHORT_STEP, Engine, Run
from melforge.common.engines.layer_outputs import show
from melforge.common.engines.limits import PRODUCTS, Needs, limits_of
from melforge.common.engines.padded import CapturedNetwork, PaddedEngine
from melforge.common.engines.torch_engine import META, build_network
from melforge.common.files import cache_folder
from melforge.common.garbage import without_garbage_collection
from melforge.common.stages import Stage

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource

STAGES = ("generator", "masked_generator")
ALIGNMENT = 256  # bytes, of what tensor descriptors describe
COMPILERS = 16  # threads
PATIENCE = 1.0  # seconds, more than reading them from the cache takes


def folded_network(
    stage: Stage, source: ModelSource, device: str, name: str, fold: Callable[[Any], Any]
) -> Any:
    """The network's weights in the kernels' layout, which the source's engines share by `name`."""
    key = (name, device, "cuda")
    folded = source.networks.get(key)
    if folded is None:
        folded = source.networks[key] = fold(build_network(stage, source, device))
    return folded


def overflows(weight: torch.Tensor) -> bool:
    """Whether it became more than its type can hold."""
    return not weight.is_meta and not bool(weight.isfinite().all())


def keep_kernels() -> None:
    """Triton keeps what it compiles in Melforge's cache, unless $TRITON_CACHE_DIR names another folder."""
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache_folder() / "triton"))
    with contextlib.suppress(ImportError):
        cast(Any, importlib.import_module("triton.runtime.build"))._load_module_from_path = load_launcher


_launchers = itertools.count()


def load_launcher(name: str, path: str) -> ModuleType:
    """In place of Triton's loader of its C modules, whose launchers all have one name: of one that is loaded
    again, Python puts the functions into the module of that name, which another thread may be about to read.
    """
    own = f"melforge_launcher_{next(_launchers)}.{name}"
    spec = importlib.util.spec_from_file_location(own, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module of Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class KernelModule:
    """A module of Triton kernels, imported where one is launched: Triton may be missing."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        keep_kernels()
        kernel = self.__dict__[name] = getattr(importlib.import_module(self._name), name)
        return kernel


class TiledTensor(NamedTuple):
    """What tiles.py makes a tensor descriptor of in a kernel."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[Any, ...]  # constants


def describe(tensor: torch.Tensor, block: list[int]) -> Any:
    """By which kernels read and write blocks of this size: a tensor descriptor, or a TiledTensor.

    Where nothing copies what a descriptor describes, Triton makes addresses of it. Of one that is made in the
    kernel it knows how they are aligned: it copies 16 bytes at a time then, ahead of the products.
    """
    if limits_of(tensor.device).copies_tiles:
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor.from_tensor(tensor, block)
    from triton.language import constexpr

    return TiledTensor(tensor, tuple(tensor.shape), tensor.stride(), tuple(map(constexpr, block)))


def lies_in_rows(tensor: torch.Tensor) -> bool:
    """Whether the last axis is the innermost in memory, and so on; rows may be a part of longer ones."""
    strides = [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return strides == sorted(strides, reverse=True)


class TritonLaunch(NamedTuple):
    """A Triton kernel with its grid, arguments and options. A ValueError for tensors that do not lie in rows:
    kernels count in the axes' order.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple
    options: dict[str, Any]
    shows: Sequence[tuple[str, Callable[[], torch.Tensor]]] = ()  # layers that are in its outputs then

    def __call__(self) -> None:
        for tensor in self.arguments:
            if isinstance(tensor, torch.Tensor) and not lies_in_rows(tensor):
                shape, strides = tuple(tensor.shape), tensor.stride()
                raise ValueError(f"{self.kernel}: a tensor {shape} lies in memory by strides of {strides}")
        collected = _collected.get()
        if collected is not None:
            collected.append(self)
            return
        self.kernel[self.grid](*self.arguments, **self.options)
        for name, view in self.shows:
            show(name, view)


_collected: ContextVar[list[TritonLaunch] | None] = ContextVar("collected", default=None)


@contextlib.contextmanager
def collecting() -> Iterator[list[TritonLaunch]]:
    """What is launched within is put into a list instead: its tensors may be on the device "meta"."""
    launches: list[TritonLaunch] = []
    token = _collected.set(launches)
    try:
        yield launches
    finally:
        _collected.reset(token)


@contextlib.contextmanager
def compiling_together() -> Iterator[tuple[ThreadPoolExecutor, Any]]:
    """Triton compiles what is warmed up within in other threads: these, and the mode that knows its futures.

    A kernel that does not compile ends it with an error, and Triton would stay in this mode.
    """
    from triton import AsyncCompileMode
    from triton.runtime._async_compile import active_mode

    # Python 3.11's parser loses count where a collection lets another thread parse (CPython's issue 106905).
    with without_garbage_collection(), ThreadPoolExecutor(COMPILERS) as compilers:
        try:
            with AsyncCompileMode(compilers) as mode:
                yield compilers, mode
        finally:
            active_mode.set(None)


def compile_missing(launches: Iterable[TritonLaunch]) -> None:
    """Compiles and loads the kernels that have not run yet, several at a time; a launch does its own alone.

    A line on stderr says so where Triton's cache does not have them.
    """
    if _collected.get() is not None or not torch.cuda.is_initialized():  # Triton's interpreter has none
        return
    from triton.runtime.errors import OutOfResources

    device = torch.cuda.current_device()

    def load(kernel: Any) -> None:
        """Also makes, by a C compiler, what launches kernels of such arguments."""
        with torch.cuda.device(device), contextlib.suppress(OutOfResources):  # a launch says that
            _ = getattr(kernel, "result", lambda: kernel)().run

    missing = {kind: one for one in launches if (kind := _kind_of(device, one)) not in _loaded}
    if not missing:
        return
    with compiling_together() as (compilers, mode):
        kernels = [
            one.kernel.warmup(*one.arguments, grid=one.grid, **one.options) for one in missing.values()
        ]
        loaded = [compilers.submit(load, kernel) for kernel in {id(k): k for k in kernels}.values()]
        if wait(mode.raw_futures, PATIENCE).not_done:
            count, folder = len(mode.raw_futures), os.environ["TRITON_CACHE_DIR"]
            print(f"compiling {count} kernels for this GPU into {folder}", file=sys.stderr)
    for future in loaded:
        future.result()
    _loaded.update(missing)


_loaded: set[tuple] = set()  # the kinds of launches that `compile_missing` loaded


def _kind_of(device: int, launch: TritonLaunch) -> tuple:
    """What Triton compiles a kernel for; to ask it takes as long as to launch."""
    kinds: list[object] = []
    for one in launch.arguments:
        if isinstance(one, torch.Tensor):
            kinds.append((one.dtype, one.data_ptr() % 16))
        elif isinstance(one, int):
            kinds.append((type(one), one == 1, one % 16 == 0))
        else:
            kinds.append(type(one))  # tiles, whose sizes are among the options
    return (device, launch.kernel, *kinds, *launch.options.items())


def compiled_together(run: Run) -> Run:
    """A run that launches kernels, which are compiled together before the first is launched."""
    compiled = False

    def run_compiled(inputs: Mapping[str, Array]) -> dict[str, Array]:
        nonlocal compiled
        if not compiled and _collected.get() is None:
            with collecting() as launches:
                run(inputs)
            compile_missing(launches)
            compiled = True
        return run(inputs)

    return run_compiled


class KernelNetwork(CapturedNetwork):
    """A network that launches our kernels."""

    def capturable(self, bucket: Bucket | None = None) -> Run:
        return compiled_together(super().capturable(bucket))


Zeros = Callable[..., torch.Tensor]  # as torch.zeros: a shape and a dtype


def bytes_of(allocate: Callable[[Zeros], object]) -> int:
    """The bytes of the tensors that `allocate` takes."""
    sizes: list[int] = []

    def count(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        sizes.append(aligned_bytes(shape, dtype))
        return torch.empty(shape, dtype=dtype, device="meta")

    allocate(count)
    return sum(sizes)


def taking_from(block: torch.Tensor) -> Zeros:
    """Takes tensors from a block of bytes, which are zeros, one behind the other."""
    used = 0

    def take(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        nonlocal used
        start, used = used, used + aligned_bytes(shape, dtype)
        return block[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)

    return take


def aligned_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


class Buffers(Protocol):
    """Memory of one batch and lengths."""

    def describe(
        self, inputs: Mapping[str, torch.Tensor]
    ) -> tuple[list[TritonLaunch], dict[str, torch.Tensor]]:
        """What is launched on it, and the outputs that this fills."""
        ...


class BufferedEngine(PaddedEngine):
    """A stage on our own kernels, which takes one block of memory for a run: zeros at its beginning."""

    precision = "half products"
    otherwise: type[Engine]  # on PyTorch's kernels

    @abstractmethod
    def buffers_of(self, inputs: Mapping[str, torch.Tensor], zeros: Zeros, device: str) -> Buffers:
        """Those for such inputs; further tensors are on the device."""

    def capturable(self, bucket: Bucket | None = None) -> Run:
        """In memory of each run: graphs of one pool share it."""
        compiled = False

        def run(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            nonlocal compiled
            inputs = {name: tensor.contiguous() for name, tensor in inputs.items()}
            size = bytes_of(lambda zeros: self.buffers_of(inputs, zeros, META))
            block = torch.zeros(size, dtype=torch.uint8, device=self.device)
            launches, outputs = self.buffers_of(inputs, taking_from(block), self.device).describe(inputs)
            if not compiled:
                compile_missing(launches)
                compiled = True
            for launch in launches:
                launch()
            return outputs

        return run


class ShapedGenerator(BufferedEngine):
    """A vocoder's stage on our own kernels, in half precision."""

    check: Callable[[Any], Any]  # an InputError where the kernels do not support a config
    fold: Callable[[Any], Any]  # the network's weights in the kernels' layout; `nbytes` is their size
    shape: Callable[..., Buffers]  # of (config, folded, batch, frames, zeros, device)

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        self.check(source.config)
        self.stage, self.device, self.config = stage, device, source.config
        self.folded = folded_network(stage, source, device, stage.network, self.fold)
        self.memory_owner, self.memory_bytes = self.folded, self.folded.nbytes

    @classmethod
    def needs(cls, config: Any) -> Needs:
        cls.check(config)
        return PRODUCTS

    def padded(self, name: str, size: int) -> int:
        step = SHORT_STEP if size <= SHORT else MEL_STEP
        return -(-size // step) * step

    def buffers_of(self, inputs: Mapping[str, torch.Tensor], zeros: Zeros, device: str) -> Buffers:
        batch, _, frames = inputs["mel"].shape
        return self.shape(self.config, self.folded, batch, frames, zeros, device)
