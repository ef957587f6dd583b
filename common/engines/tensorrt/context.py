"""A TensorRT plan in GPU memory and its execution contexts."""

import math
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from melforge.common.engines.cuda_graphs import InOrder
from melforge.common.engines.tensorrt.api import ApiObject, TensorRT, make_logger
from melforge.common.errors import InputError
from melforge.common.files import write_bytes

DTYPES = {
    "FLOAT": torch.float32,
    "HALF": torch.float16,
    "BF16": torch.bfloat16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "INT8": torch.int8,
    "UINT8": torch.uint8,
    "BOOL": torch.bool,
}
MB = 1_000_000
ALIGNMENT = 256  # of the addresses that TensorRT reads and writes


class LoadedPlan:
    """A plan in the GPU's memory. Its contexts share the weights and the code compiled for this GPU.

    TensorRT for RTX compiles a product's kernel at the first shape and uses it at others. Compiled for one
    row it gives wrong numbers in all others (docs/tensorrt.md): shapes with a dynamic dimension of 1 get
    compiled code of their own.
    """

    def __init__(self, plan: bytes, trt: TensorRT, device: str, file: Path, in_order: bool):
        self.trt, self.device, self.in_order = trt, torch.device(device), in_order
        self.name, self._file = str(file), file
        self.memory_bytes = len(plan)
        self.logger = make_logger(trt)
        self._runtime = trt.api.Runtime(self.logger)
        with torch.cuda.device(self.device):
            self.executable = self._runtime.deserialize_cuda_engine(plan)
            if self.executable is None:
                raise InputError(f"{file} does not load: {self.logger.reason()}{self.free_memory()}")
        names = [self.executable.get_tensor_name(i) for i in range(self.executable.num_io_tensors)]
        inputs = trt.api.TensorIOMode.INPUT
        self.inputs = [n for n in names if self.executable.get_tensor_mode(n) == inputs]
        others = (n for n in names if n not in self.inputs)
        self.outputs = {n: DTYPES[self.executable.get_tensor_dtype(n).name] for n in others}
        # The axes of each input that are dynamic.
        shapes = {name: self.executable.get_tensor_shape(name) for name in self.inputs}
        self._dynamic = {n: [i for i, size in enumerate(shape) if size == -1] for n, shape in shapes.items()}
        self._compiled: dict[bool, RuntimeCache] = {}

    def has_ones(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether a dynamic dimension is 1, for which TensorRT for RTX must compile code of its own."""
        return self.trt.portable and any(
            inputs[name].shape[axis] == 1 for name, axes in self._dynamic.items() for axis in axes
        )

    def make_context(self, ones: bool) -> ApiObject:
        """A context with activation memory of its own; runs at the same time need one each.

        It is for inputs of which `has_ones` says the same.
        """
        if ones not in self._compiled:
            self._compiled[ones] = RuntimeCache(self, self._file, ones)
        config = self._compiled[ones].config
        with torch.cuda.device(self.device):
            make = self.executable.create_execution_context
            context = make() if config is None else make(config)
        if context is None:
            raise InputError(f"{self.name} cannot run: {self.logger.reason()}{self.free_memory()}")
        return context

    def save_compiled(self) -> None:
        """Writes what was compiled since the last time."""
        for cache in self._compiled.values():
            cache.save()

    @property
    def scratch_bytes(self) -> int:
        """The activation memory of each context."""
        size = getattr(self.executable, "device_memory_size_v2", None)
        return int(self.executable.device_memory_size if size is None else size)

    def free_memory(self) -> str:
        free, total = torch.cuda.mem_get_info(self.device)
        return f" ({free / MB:.0f} of the GPU's {total / MB:.0f} MB are free)"


class RuntimeCache:
    """The code that TensorRT for RTX compiled for this GPU, in a file beside the engine for the next start.

    The full TensorRT compiles when it builds: for its engines this does nothing.
    """

    def __init__(self, loaded: LoadedPlan, file: Path, ones: bool):
        self._cache = None
        with torch.cuda.device(loaded.device):
            self.config: ApiObject = getattr(loaded.executable, "create_runtime_config", lambda: None)()
        if not hasattr(self.config, "create_runtime_cache"):
            return
        trt, gpu = loaded.trt, torch.cuda.get_device_name(loaded.device)
        words = re.sub(r"[^A-Za-z0-9]+", "-", gpu).strip("-")
        words += "-ones" if ones else ""
        self.file = file.with_name(f"{file.name}.{words}.{trt.flavour}-{trt.version}.cache")
        self._cache = self.config.create_runtime_cache()
        self._size = 0
        if self.file.is_file():
            content = self.file.read_bytes()
            if self._cache.deserialize(content):
                self._size = len(content)
            else:
                warnings.warn(f"{self.file} is damaged: compiling anew", stacklevel=2)
        self.config.set_runtime_cache(self._cache)

    def save(self) -> None:
        """Writes the file if the cache has grown."""
        if self._cache is None:
            return
        content = bytes(memoryview(self._cache.serialize()))
        if len(content) == self._size:
            return
        self._size = len(content)
        try:
            write_bytes(self.file, content)
        except OSError as error:
            warnings.warn(f"{error.strerror}: every start will compile for this GPU", stacklevel=2)


class OutputMemory:
    """Memory for an output whose length is known only after the run; it is used again where it suffices."""

    def __init__(self, device: torch.device):
        self._device = device
        self.memory = torch.empty(0, dtype=torch.uint8, device=device)
        self.shape: tuple[int, ...] = ()

    def reallocate(self, size: int) -> int:
        """The address of at least `size` bytes."""
        if self.memory.numel() < max(size, 1):
            self.memory = torch.empty(max(int(size), 1), dtype=torch.uint8, device=self._device)
        return self.memory.data_ptr()

    def take(self, dtype: torch.dtype) -> Tensor:
        """A copy of the output."""
        size = math.prod(self.shape) * dtype.itemsize
        return self.memory[:size].view(dtype).reshape(self.shape).clone()


def make_allocator(trt: TensorRT, device: torch.device) -> OutputMemory:
    """TensorRT's allocator for such an output."""

    class Allocator(trt.api.IOutputAllocator, OutputMemory):
        def __init__(self) -> None:
            trt.api.IOutputAllocator.__init__(self)
            OutputMemory.__init__(self, device)

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            return self.reallocate(size)

        def reallocate_output_async(self, name: str, memory: int, size: int, *_: int) -> int:
            return self.reallocate(size)

        def notify_shape(self, name: str, shape: ApiObject) -> None:
            self.shape = tuple(shape)

    return Allocator()


class TrtContext:
    """A context run on named tensors. Addresses and shapes are set only where they change.

    It is made for inputs such as these: all others must have the same `LoadedPlan.has_ones`.
    """

    def __init__(self, loaded: LoadedPlan, inputs: Mapping[str, Tensor]):
        self.loaded, self.ones = loaded, loaded.has_ones(inputs)
        self.context = loaded.make_context(self.ones)
        self._in_order = InOrder() if loaded.in_order else None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._held: dict[str, Tensor] = {}  # inputs, which the GPU reads after the call has returned
        self._results: dict[str, Tensor] = {}
        self._output_shapes: dict[tuple, dict[str, tuple[int, ...]]] = {}
        self._allocators: dict[str, OutputMemory] = {}

    def bind(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor] | None = None) -> None:
        """Sets what the next run reads and writes; outputs that are not given are allocated."""
        for name in self.loaded.inputs:
            shape = tuple(inputs[name].shape)
            if self._shapes.get(name) != shape:
                if not self.context.set_input_shape(name, shape):
                    raise InputError(f"{self.loaded.name} is not built for {name} of shape {list(shape)}")
                self._shapes[name] = shape
                if self._in_order:
                    self._in_order.begin_anew()
            self._address(name, inputs[name])
        self._held = dict(inputs)
        self._results = {}
        for name, shape in self._shapes_of_outputs().items():
            if -1 in shape:
                if name not in self._allocators:
                    self._allocators[name] = make_allocator(self.loaded.trt, self.loaded.device)
                    self.context.set_output_allocator(name, self._allocators[name])
                continue
            tensor = (outputs or {}).get(name)
            if tensor is None:
                tensor = torch.empty(shape, dtype=self.loaded.outputs[name], device=self.loaded.device)
            self._address(name, tensor)
            self._results[name] = tensor

    def _address(self, name: str, tensor: Tensor) -> None:
        address = tensor.data_ptr()
        if self._addresses.get(name) != address:
            self.context.set_tensor_address(name, address)
            self._addresses[name] = address

    def _shapes_of_outputs(self) -> dict[str, tuple[int, ...]]:
        key = tuple(self._shapes.values())
        if key not in self._output_shapes:
            self._output_shapes[key] = {
                name: tuple(self.context.get_tensor_shape(name)) for name in self.loaded.outputs
            }
        return self._output_shapes[key]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the inputs that were bound last."""
        return tuple(self._shapes.get(name, ()) for name in self.loaded.inputs)

    @property
    def data_dependent(self) -> bool:
        """Whether the length of an output is known only after the run."""
        return bool(self._allocators)

    def run(self, stream: torch.cuda.Stream) -> None:
        """On the current stream, or into the graph that it captures."""
        if self._in_order and not torch.cuda.is_current_stream_capturing():
            self._in_order(self._enqueue, stream)
        else:
            self._enqueue(stream)

    def _enqueue(self, stream: torch.cuda.Stream) -> None:
        if not self.context.execute_async_v3(stream.cuda_stream):
            raise InputError(f"{self.loaded.name} failed: {self.loaded.logger.reason()}")

    def results(self, stream: torch.cuda.Stream) -> dict[str, Tensor]:
        """The outputs; waits for the stream where a length is known only after the run."""
        if self._allocators:
            stream.synchronize()
        return {
            name: self._results[name] if name in self._results else self._allocators[name].take(dtype)
            for name, dtype in self.loaded.outputs.items()
        }


class ContextRun:
    """Runs a plan on a context of its own and the current stream; a graph of it uses the context's memory."""

    def __init__(self, loaded: LoadedPlan):
        self._loaded = loaded
        self._context: TrtContext | None = None  # made for the first inputs
        self._kept = False

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        loaded = self._loaded
        self._context = context = self._context or TrtContext(loaded, inputs)
        context.bind({name: addressable(inputs[name]) for name in loaded.inputs})
        if context.data_dependent and torch.cuda.is_current_stream_capturing():
            raise ValueError("the length of an output is known only when it has run")
        stream = torch.cuda.current_stream(loaded.device)
        context.run(stream)
        if not self._kept:
            loaded.save_compiled()
            self._kept = True
        return context.results(stream)


def addressable(tensor: Tensor) -> Tensor:
    """The tensor itself where TensorRT can read it, else a copy."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor
