"""Shared by the engines on our own kernels: what is launched, and a CUDA graph for each shape."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from melforge.common.arrays import Array
from melforge.common.config.deployment import Bucket
from melforge.common.engines import MEL_STEP, SHORT, SHORT_STEP, Engine, Recent, Run, check_inputs
from melforge.common.engines.cuda_graphs import capture
from melforge.common.engines.layer_outputs import show
from melforge.common.engines.limits import PRODUCTS, Needs, limits_of
from melforge.common.engines.padded import CapturedNetwork
from melforge.common.engines.torch_engine import build_network
from melforge.common.files import cache_folder
from melforge.common.garbage import without_garbage_collection
from melforge.common.stages import Stage

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource

STAGES = ("generator", "masked_generator")
SHAPES = 256  # kept graphs; their activations share memory
SPARE_BYTES = 1 << 27  # allocated beyond what is needed, so that the memory seldom grows
ALIGNMENT = 256  # bytes, of what tensor descriptors describe
COMPILERS = 16  # threads
PATIENCE = 1.0  # seconds, more than reading them from the cache takes


def padded(frames: int) -> int:
    """The padded length of a mel: capturing a graph for every length would take longer than running it."""
    step = SHORT_STEP if frames <= SHORT else MEL_STEP
    return -(-frames // step) * step


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


class SharedMemory:
    """Buffers of shapes that never run at the same time. A shape finds zeros, or what it left itself."""

    def __init__(self, size: int, device: str):
        self.block = torch.zeros(size, dtype=torch.uint8, device=device)
        self._user: object = None

    def use(self, shape: GraphedShape) -> None:
        """Before the shape runs, on its stream."""
        if self._user is not shape:
            self.block[: shape.size].zero_()
            self._user = shape


class GraphedShape(ABC):
    """One batch and length: buffers for its inputs, and the CUDA graph that fills `audio` from them.

    `inputs`, among them `lengths` (B,) int64, the padding mask, and `audio` are in the shared memory too.
    """

    size = 0  # bytes of the buffers
    inputs: dict[str, torch.Tensor]
    audio: torch.Tensor
    launches: list[TritonLaunch]
    graph: torch.cuda.CUDAGraph | None = None
    met = False  # it ran
    memory: SharedMemory | None = None

    @abstractmethod
    def allocate(self, zeros: Zeros) -> None:
        """Takes the memory of all buffers: zeros before a first run."""

    @abstractmethod
    def describe(self) -> None:
        """Makes `launches`, on the memory allocated."""

    def launch(self) -> None:
        """Puts all kernels on the current stream."""
        for launch in self.launches:
            launch()

    def __call__(self, inputs: Mapping[str, Array], frames: int) -> torch.Tensor:
        """Audio (B, frames * hop); mels and noise may be shorter than the buffers."""
        if self.memory:
            self.memory.use(self)
        self.inputs["lengths"].fill_(frames)  # overwritten below where they are among the inputs
        for name, value in inputs.items():
            size = value.shape[-1]
            self.inputs[name][..., :size].copy_(value)
            self.inputs[name][..., size:].zero_()
        if self.graph is None:
            compile_missing(self.launches)
            self.launch()  # CUDA loads at a first launch, which cannot be captured
            if self.met:  # not all come again
                torch.cuda.current_stream().synchronize()
                self.graph, _ = capture(self.launch)
            self.met = True
        else:
            self.graph.replay()
        whole = self.inputs["mel"].shape[-1]
        return self.audio[:, : self.audio.shape[1] // whole * frames].clone()


class ShapedGenerator(Engine):
    """A vocoder's stage on our own kernels, on torch's current stream: CUDA tensors in and out.

    The first call with a batch size and length launches the kernels (Triton compiles what its cache lacks),
    the second captures them in a CUDA graph; later calls replay it. The last SHAPES graphs are kept.
    Calls may come on different streams.
    """

    backend = "cuda"
    precision = "half products"
    prefers_batches = True
    otherwise: type[Engine]  # on PyTorch's kernels
    check: Callable[[Any], Any]  # an InputError where the kernels do not support a config
    fold: Callable[[Any], Any]  # the network's weights in the kernels' layout; `nbytes` is their size
    shape: Callable[..., GraphedShape]  # of (config, folded, batch, frames, device)

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        self.check(source.config)
        self.stage, self.device, self.config = stage, device, source.config
        self.folded = folded_network(stage, source, device, stage.network, self.fold)
        self.memory_owner, self.memory_bytes = self.folded, self.folded.nbytes
        self.kept: Recent[tuple[int, int], GraphedShape] = Recent(SHAPES)
        self._memory = SharedMemory(0, device)
        self._done: torch.Event | None = None

    @classmethod
    def needs(cls, config: Any) -> Needs:
        cls.check(config)
        return PRODUCTS

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        check_inputs(self.stage, inputs)
        batch, _, frames = inputs["mel"].shape
        with torch.cuda.device(self.device), torch.inference_mode():
            stream = torch.cuda.current_stream()
            if self._done is not None:  # the buffers may be in use on another stream
                stream.wait_event(self._done)
            shape = self.kept.get_or_make(
                (batch, padded(frames)), lambda: self.new_shape(batch, padded(frames))
            )
            audio = shape(inputs, frames)
            self._done = stream.record_event()
        return {self.stage.outputs[0].name: audio}

    def new_shape(self, batch: int, frames: int) -> GraphedShape:
        shape = self.shape(self.config, self.folded, batch, frames, self.device)
        shape.size = bytes_of(shape.allocate)
        if shape.size > (held := len(self._memory.block)):
            self.kept.clear()  # their graphs have the addresses of the memory that goes
            self._memory = SharedMemory(0, self.device)
            self._memory = SharedMemory(shape.size + min(held, SPARE_BYTES), self.device)
        shape.memory = self._memory
        shape.allocate(taking_from(self._memory.block))
        shape.describe()
        return shape
