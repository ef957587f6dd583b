"""Shared by the engines on our own kernels: what is launched, on which memory."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from melforge.common.arrays import Array
from melforge.common.config.deployment import Bucket
from melforge.common.engines import MEL_STEP, SHORT, SHORT_STEP, Engine, Run
from melforge.common.engines.layer_outputs import calls_to_show, show
from melforge.common.engines.limits import PRODUCTS, Needs, limits_of
from melforge.common.engines.padded import CapturedNetwork, PaddedEngine
from melforge.common.engines.torch_engine import META, build_network
from melforge.common.garbage import without_garbage_collection
from melforge.common.stages import Stage
from melforge.trt_plugins.direct import Ready, Tiles, ready
from melforge.trt_plugins.triton_setup import set_up

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
    return not weight.is_meta and not math.isfinite(weight.sum(dtype=torch.float32))


class KernelModule:
    """A module of Triton kernels, imported where one is launched: Triton may be missing."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        set_up()
        kernel = self.__dict__[name] = getattr(importlib.import_module(self._name), name)
        return kernel


class TiledTensor(NamedTuple):
    """What tiles.py makes a tensor descriptor of in a kernel."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[Any, ...]  # constants


def describe(tensor: torch.Tensor, block: Sequence[int], width: int = 0) -> Tiles | TiledTensor:
    """By which kernels read and write blocks of this size; with a `width`, of memory as rows of so many.

    Where nothing copies what a descriptor describes, Triton makes addresses of it. Of one that is made in the
    kernel it knows how they are aligned: it copies 16 bytes at a time then, ahead of the products.
    """
    shape, strides = tensor.shape, tensor.stride()
    if width:
        shape, strides = (tensor.numel() // width, width), (width, 1)
    if limits_of(tensor.device).copies_tiles:
        return Tiles(tensor, shape, strides, tuple(block))
    from triton.language import constexpr

    return TiledTensor(tensor, tuple(shape), strides, tuple(map(constexpr, block)))


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
        collected = _collected.get()
        if collected is not None:
            self.require_rows()
            collected.append(self)
        elif torch.cuda.is_initialized():
            self.run(*self.kind())
        else:  # Triton's interpreter
            self.require_rows()
            self.by_triton()

    def require_rows(self) -> None:
        for one in self.arguments:
            if isinstance(one, torch.Tensor) and not (one.is_contiguous() or lies_in_rows(one)):
                shape, strides = tuple(one.shape), one.stride()
                raise ValueError(f"{self.kernel}: a tensor {shape} lies in memory by strides of {strides}")

    def by_triton(self) -> None:
        """Triton compiles what it has not met, and launches it."""
        self.kernel[self.grid](*self.for_triton, **self.options)
        self._show()

    @property
    def for_triton(self) -> list:
        """The arguments as Triton takes them."""
        return [one.descriptor if isinstance(one, Tiles) else one for one in self.arguments]

    def kind(self) -> tuple[tuple, list]:
        """What Triton compiles a kernel for, and the arguments with addresses in place of tensors."""
        kinds, given, odd, kernel, options = [], [], 0, self.kernel, self.options
        for one, parameter in zip(self.arguments, kernel.params, strict=False):
            if type(one) is Tiles:
                kinds.append((one.base.dtype, one.block))
            elif isinstance(one, torch.Tensor):
                if not one.is_contiguous():
                    self.require_rows()
                kinds.append(one.dtype)
                one = one.data_ptr()
                odd = odd * 2 + (one % 16 != 0)
            else:
                kinds.append(_kind_of(one, parameter))
            given.append(one)
        values = options.values()
        return (kernel.fn, odd, *kinds, *options, *values, *map(type, values)), given

    def run(self, kind: tuple, given: list) -> None:
        """With what `kind` gave."""
        device = torch.cuda.current_device()
        if kind not in _ready[device]:
            compile_missing([self])
        known = _ready[device][kind]
        if known:
            known(device, self.grid, given)
            self._show()
        else:
            self.by_triton()

    def _show(self) -> None:
        if self.shows and calls_to_show():
            for name, view in self.shows:
                show(name, view)


def _kind_of(one: object, parameter: Any = None) -> object:
    """What Triton compiles for of what is no tensor: a constant, or whether a number is 1, or a multiple of
    16.
    """
    if parameter and parameter.is_constexpr:
        return type(one), one
    if type(one) is int:
        if one.bit_length() > 31:
            return one
        if parameter and parameter.do_not_specialize:
            return 0
        return 1 if one == 1 else 0 if one % 16 else 16
    if isinstance(one, tuple):
        return tuple(map(_kind_of, one))
    if isinstance(one, torch.Tensor):
        return one.dtype, one.data_ptr() % 16
    return getattr(one, "value", type(one))  # of a constant in a tuple


# By a GPU's index and the kind of a launch: what launches it; None: Triton does.
_ready: defaultdict[int, dict[tuple, Ready | None]] = defaultdict(dict)
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
    """Compiles and loads the kernels that have not run yet, several at a time.

    A line on stderr says so where Triton's cache does not have them.
    """
    if _collected.get() is not None or not torch.cuda.is_initialized():  # Triton's interpreter has none
        return
    device = torch.cuda.current_device()
    made = _ready[device]
    missing = {kind: one for one in launches if (kind := one.kind()[0]) not in made}
    if not missing:
        return
    with compiling_together() as (compilers, mode):
        kernels = [
            one.kernel.warmup(*one.for_triton, grid=one.grid, **one.options) for one in missing.values()
        ]
        loaded = [
            compilers.submit(lambda kernel, one: ready(result_of(kernel), one.arguments, device), *pair)
            for pair in zip(kernels, missing.values(), strict=True)
        ]
        if wait(mode.raw_futures, PATIENCE).not_done:
            count, folder = len(mode.raw_futures), os.environ["TRITON_CACHE_DIR"]
            print(f"compiling {count} kernels for this GPU into {folder}", file=sys.stderr)
    made.update({kind: future.result() for kind, future in zip(missing, loaded, strict=True)})


def result_of(kernel: Any) -> Any:
    """What Triton compiled, of what may be a future of it."""
    return kernel.result() if hasattr(kernel, "result") else kernel


def launch_all(launches: Sequence[TritonLaunch]) -> None:
    """One after the other; kernels that are not there yet are compiled together."""
    if _collected.get() is None and torch.cuda.is_initialized():
        known, kinds = _ready[torch.cuda.current_device()], [one.kind() for one in launches]
        if not all(kind in known for kind, _ in kinds):
            compile_missing(launches)
        for one, (kind, given) in zip(launches, kinds, strict=True):
            one.run(kind, given)
    else:
        for one in launches:
            one()


def compile_launches(run: Run, inputs: Mapping[str, Array]) -> bool:
    """Compiles together what such a run launches; False where launches are collected."""
    if _collected.get() is not None:
        return False
    with collecting() as launches:
        run(inputs)
    compile_missing(launches)
    return True


class KernelNetwork(CapturedNetwork):
    """A network that launches our kernels, the same at all lengths."""

    _compiled = False

    def capturable(self, bucket: Bucket | None = None) -> Run:
        run = super().capturable(bucket)

        def run_compiled(inputs: Mapping[str, Array]) -> dict[str, Array]:
            self._compiled = self._compiled or compile_launches(run, inputs)
            return run(inputs)

        return run_compiled


Zeros = Callable[..., torch.Tensor]  # as torch.zeros: a shape of one or two axes, and a dtype


def bytes_of(allocate: Callable[[Zeros], object]) -> int:
    """The bytes of the tensors that `allocate` takes; here it is given empty ones."""
    total, nothing = 0, torch.empty(0, device=META)

    def count(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        nonlocal total
        total += aligned_bytes(shape, dtype)
        return nothing

    allocate(count)
    return total


def taking_from(block: torch.Tensor) -> Zeros:
    """Takes tensors from a block of bytes, which are zeros, one behind the other."""
    used, views = 0, dict[torch.dtype, torch.Tensor]()

    def take(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        nonlocal used
        start, used = used, used + aligned_bytes(shape, dtype)
        if dtype not in views:
            views[dtype] = block.view(dtype)
        return views[dtype].as_strided(shape, (*shape[1:], 1), start // dtype.itemsize)

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

        def run(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            inputs = {name: tensor.contiguous() for name, tensor in inputs.items()}
            size = bytes_of(lambda zeros: self.buffers_of(inputs, zeros, META))
            block = torch.zeros(size, dtype=torch.uint8, device=self.device)
            launches, outputs = self.buffers_of(inputs, taking_from(block), self.device).describe(inputs)
            launch_all(launches)
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
