"""A stage run by TensorRT, on torch tensors where they are and on the caller's stream."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from common.audio import write_bytes
from common.build import build_stage, engine_file
from common.deployment import Bucket, Deployment
from common.engines import check_inputs
from common.engines.tensorrt_module import TensorRT, load_tensorrt, make_logger
from common.stages import Stage

if TYPE_CHECKING:
    from common.voices import ModelSource

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


class LoadedPlan:
    """A plan in the GPU's memory. Its contexts share the weights and what was compiled for this GPU."""

    def __init__(self, plan: bytes, trt: TensorRT, device: str, name: str, cache: Path | None = None):
        self.trt, self.device, self.name = trt, torch.device(device), name
        self.memory_bytes = len(plan)
        self.logger = make_logger(trt)
        self._runtime = trt.api.Runtime(self.logger)
        with torch.cuda.device(self.device):
            self.engine = self._runtime.deserialize_cuda_engine(plan)
            if self.engine is None:
                raise ValueError(f"{name} does not load: {self.logger.reason()}{self.free_memory()}")
            self.config = self.engine.create_runtime_config()
        names = [self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors)]
        inputs = trt.api.TensorIOMode.INPUT
        self.inputs = [n for n in names if self.engine.get_tensor_mode(n) == inputs]
        self.outputs = {
            n: DTYPES[self.engine.get_tensor_dtype(n).name] for n in names if n not in self.inputs
        }
        self.cache = RuntimeCache(self, cache)

    def make_context(self) -> Any:
        """Runs at a time need one each; every one has its own memory for what is between the layers."""
        with torch.cuda.device(self.device):
            context = self.engine.create_execution_context(self.config)
        if context is None:
            raise ValueError(f"{self.name} cannot run: {self.logger.reason()}{self.free_memory()}")
        return context

    @property
    def scratch_bytes(self) -> int:
        """What every context takes beside the weights."""
        size = getattr(self.engine, "device_memory_size_v2", None)
        return int(self.engine.device_memory_size if size is None else size)

    def free_memory(self) -> str:
        free, total = torch.cuda.mem_get_info(self.device)
        return f" ({free / MB:.0f} of the GPU's {total / MB:.0f} MB are free)"


class RuntimeCache:
    """What TensorRT for RTX compiled for this GPU, in a file beside the engine: the next start need not wait.

    The full TensorRT has compiled everything when it builds, and this does nothing.
    """

    def __init__(self, loaded: LoadedPlan, file: Path | None):
        self._cache = None
        if file is None or not hasattr(loaded.config, "create_runtime_cache"):
            return
        trt, gpu = loaded.trt, torch.cuda.get_device_name(loaded.device)
        words = re.sub(r"[^A-Za-z0-9]+", "-", gpu).strip("-")
        self.file = file.with_name(f"{file.name}.{words}.{trt.flavour}-{trt.version}.cache")
        self._cache = loaded.config.create_runtime_cache()
        self._size = 0
        if self.file.is_file():
            content = self.file.read_bytes()
            if self._cache.deserialize(content):
                self._size = len(content)
            else:
                warnings.warn(f"{self.file} is damaged: compiling anew", stacklevel=2)
        loaded.config.set_runtime_cache(self._cache)

    def save(self) -> None:
        """Writes the file if there is more in it than before."""
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


def make_allocator(trt: TensorRT, device: torch.device) -> Any:
    """Memory for an output whose length is known when it is there; it is used again where it suffices."""

    class Allocator(trt.api.IOutputAllocator):
        def __init__(self) -> None:
            trt.api.IOutputAllocator.__init__(self)
            self.memory = torch.empty(0, dtype=torch.uint8, device=device)
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            if self.memory.numel() < max(size, 1):
                self.memory = torch.empty(max(int(size), 1), dtype=torch.uint8, device=device)
            return self.memory.data_ptr()

        def reallocate_output_async(
            self, name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            return self.reallocate_output(name, memory, size, alignment)

        def notify_shape(self, name: str, shape: Any) -> None:
            self.shape = tuple(shape)

        def take(self, dtype: torch.dtype) -> Tensor:
            count = 1
            for size in self.shape:
                count *= size
            size = count * dtype.itemsize
            return self.memory[:size].view(dtype).reshape(self.shape).clone()

    return Allocator()


class TrtContext:
    """A context that is run with named tensors. Its addresses and shapes are set only where they change."""

    def __init__(self, loaded: LoadedPlan):
        self.loaded = loaded
        self.context = loaded.make_context()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._held: dict[str, Tensor] = {}  # inputs that are read later than the call returns
        self._output_shapes: dict[tuple, dict[str, tuple[int, ...]]] = {}
        self._allocators: dict[str, Any] = {}

    def bind(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor] | None = None) -> None:
        """Sets what the next run reads and writes; tensors for `outputs` that are not given are made."""
        for name in self.loaded.inputs:
            shape = tuple(inputs[name].shape)
            if self._shapes.get(name) != shape:
                if not self.context.set_input_shape(name, shape):
                    raise ValueError(f"{self.loaded.name} is not built for {name} of shape {list(shape)}")
                self._shapes[name] = shape
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

    def run(self, stream: torch.cuda.Stream) -> None:
        if not self.context.execute_async_v3(stream.cuda_stream):
            raise ValueError(f"{self.loaded.name} failed: {self.loaded.logger.reason()}")

    def results(self, stream: torch.cuda.Stream) -> dict[str, Tensor]:
        """What the run gives; where a length depends on what was computed, the stream is waited for."""
        if self._allocators:
            stream.synchronize()
        return {
            name: self._results[name] if name in self._results else self._allocators[name].take(dtype)
            for name, dtype in self.loaded.outputs.items()
        }


class GraphedRun:
    """One run at one set of shapes as a CUDA graph, with memory of its own that inputs are copied to."""

    def __init__(self, context: TrtContext, inputs: Mapping[str, Tensor], stream: torch.cuda.Stream):
        self.inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        context.bind(self.inputs)
        context.run(stream)  # what a first run sets up cannot be captured
        self.outputs = context.results(stream)
        plain = {name: tensor.clone() for name, tensor in self.outputs.items()}
        stream.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            context.run(stream)
        for tensor in self.outputs.values():
            tensor.zero_()
        self.graph.replay()
        self.equal = all(torch.equal(plain[name], tensor) for name, tensor in self.outputs.items())

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        for name, tensor in inputs.items():
            self.inputs[name].copy_(tensor)
        self.graph.replay()
        return {name: tensor.clone() for name, tensor in self.outputs.items()}


@contextlib.contextmanager
def own_stream(stream: torch.cuda.Stream) -> Iterator[torch.cuda.Stream]:
    """The caller's stream, or for a caller on the default one `stream`, in order with what is on that.

    TensorRT would make the host wait there, and nothing can be captured.
    """
    current = torch.cuda.current_stream(stream.device)
    if current.cuda_stream:
        yield current
        return
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield stream
    current.wait_stream(stream)


class TrtEngine:
    """CUDA tensors in and out. Outputs come from PyTorch's memory pool, which gives the same blocks again.

    Engines of one source and file share the weights; each has a context, so that several may run at a time.
    """

    backend = "trt"

    def __init__(
        self,
        stage: Stage,
        source: ModelSource,
        device: str = "cuda",
        threads: int | None = None,
        deployment: Deployment | None = None,
        bucket: Bucket | None = None,
    ):
        require_gpu(device)
        self.device = device
        deployment = deployment or Deployment()
        trt = load_tensorrt()
        file = engine_file(stage, source, deployment, trt, bucket)
        self.stage = file.stage
        key = ("trt", file.path, device)
        self.loaded = source.networks.get(key)
        if self.loaded is None:
            if deployment.trt_force_build:
                build_stage(file, source, trt, force=True, workspace=deployment.trt_max_ws_size)
            plan = file.read()
            self.loaded = source.networks[key] = LoadedPlan(plan, trt, device, str(file.path), file.path)
        self._use_graphs = deployment.trt_cuda_graph
        self.memory_owner = self.loaded
        self.memory_bytes = self.loaded.memory_bytes + self.loaded.scratch_bytes
        self._context = TrtContext(self.loaded)
        self._stream = torch.cuda.Stream(device)
        self._graphs: dict[tuple, GraphedRun | None] = {}
        self._seen: set[tuple] = set()

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        check_inputs(self.stage, inputs)
        key = tuple(tuple(inputs[name].shape) for name in self.loaded.inputs)
        try:
            with own_stream(self._stream) as stream:
                outputs = self._run(key, {n: t.contiguous() for n, t in inputs.items()}, stream)
        except torch.cuda.OutOfMemoryError:
            raise ValueError(
                f"the GPU's memory does not hold what {self.loaded.name} gives{self.loaded.free_memory()}"
            ) from None
        if key not in self._seen:
            self._seen.add(key)
            self.loaded.cache.save()
        return outputs

    def _run(self, key: tuple, inputs: dict[str, Tensor], stream: torch.cuda.Stream) -> dict[str, Tensor]:
        if self._use_graphs and key not in self._graphs:
            self._graphs[key] = self._capture(inputs, stream)
        graph = self._graphs.get(key)
        if graph is not None:
            return graph(inputs)
        self._context.bind(inputs)
        self._context.run(stream)
        return self._context.results(stream)

    def _capture(self, inputs: dict[str, Tensor], stream: torch.cuda.Stream) -> GraphedRun | None:
        """A CUDA graph for these shapes, if it gives bit for bit what the plain run gives."""
        # A context of its own: a graph holds the addresses, and so the memory, that it was captured with.
        context = TrtContext(self.loaded)
        try:
            graph = GraphedRun(context, inputs, stream)
        except (RuntimeError, ValueError) as error:
            warnings.warn(f"{self.stage.full_name} runs without a CUDA graph: {error}", stacklevel=2)
            return None
        if not graph.equal:
            warnings.warn(
                f"{self.stage.full_name} runs without a CUDA graph: it gave other numbers", stacklevel=2
            )
            return None
        graph.context = context
        return graph


def require_gpu(device: str) -> None:
    if not torch.cuda.is_available():
        raise ValueError(
            "the backend trt runs on an NVIDIA GPU, and PyTorch sees none here; use --backend onnx"
        )
    if device == "cpu":
        raise ValueError("the backend trt runs on a GPU: use --device cuda")
