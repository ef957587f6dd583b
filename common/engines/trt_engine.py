"""A stage run by TensorRT, on torch tensors where they are and on the caller's stream."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from common.audio import write_bytes
from common.build import build_stage, engine_file
from common.deployment import Bucket, Deployment
from common.engines import check_inputs
from common.engines.captured import Captured, Graph, own_stream, record
from common.engines.in_order import InOrder
from common.engines.tensorrt_module import TensorRT, load_tensorrt, make_logger
from common.stages import Dim, Stage

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
ALIGNMENT = 256  # of the addresses that TensorRT reads and writes
MOST_REPEATED = 4  # shapes whose steps stay captured
MOST_CONTEXTS = 8  # shapes that have a context of their own


class LoadedPlan:
    """A plan in the GPU's memory. Its contexts share the weights and what was compiled for this GPU."""

    def __init__(
        self,
        plan: bytes,
        trt: TensorRT,
        device: str,
        name: str,
        cache: Path | None = None,
        in_order: bool = False,
    ):
        self.trt, self.device, self.name, self.in_order = trt, torch.device(device), name, in_order
        self.memory_bytes = len(plan)
        self.logger = make_logger(trt)
        self._runtime = trt.api.Runtime(self.logger)
        with torch.cuda.device(self.device):
            self.engine = self._runtime.deserialize_cuda_engine(plan)
            if self.engine is None:
                raise ValueError(f"{name} does not load: {self.logger.reason()}{self.free_memory()}")
            make = getattr(self.engine, "create_runtime_config", None)
            self.config = make() if make else None
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
            make = self.engine.create_execution_context
            context = make() if self.config is None else make(self.config)
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
        self._in_order = InOrder() if loaded.in_order else None
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
        """Those of the inputs that were bound last."""
        return tuple(self._shapes.get(name, ()) for name in self.loaded.inputs)

    @property
    def data_dependent(self) -> bool:
        """Whether an output of the shapes that were bound has a length that depends on what is computed."""
        return bool(self._allocators)

    def run(self, stream: torch.cuda.Stream) -> None:
        """On the current stream, or into the graph that it captures."""
        if self._in_order and not torch.cuda.is_current_stream_capturing():
            self._in_order(lambda: self._enqueue(stream), stream.cuda_stream)
        else:
            self._enqueue(stream)

    def _enqueue(self, stream: torch.cuda.Stream) -> None:
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


class ContextRun:
    """Runs on a context of its own and the current stream: a graph of it holds the context's addresses."""

    def __init__(self, loaded: LoadedPlan):
        self._context = TrtContext(loaded)
        self._kept = False

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        context, loaded = self._context, self._context.loaded
        context.bind({name: addressable(inputs[name]) for name in loaded.inputs})
        if context.data_dependent and torch.cuda.is_current_stream_capturing():
            raise ValueError("the length of an output is known only when it has run")
        stream = torch.cuda.current_stream(loaded.device)
        context.run(stream)
        if not self._kept:
            loaded.cache.save()
            self._kept = True
        return context.results(stream)


class RepeatedSteps:
    """Several runs of a stage whose outputs `next_x` are its next run's inputs `x`, as one CUDA graph.

    Every run writes rows of its own, which the following one reads: nothing is copied between them, and the
    last ones are what the first reads when the graph is launched again.
    """

    def __init__(self, context: TrtContext, fixed: Mapping[str, Tensor], noise: str, steps: int):
        self._context, self._noise, self._steps = context, noise, steps
        self.fixed = {name: tensor.clone() for name, tensor in fixed.items()}
        self._rows: dict[str, Tensor] = {}
        self._replay: Callable[[], None] | None = None  # of their graph

    def prepare(self, shapes: Mapping[str, tuple[int, ...]], noise: tuple[int, ...], stream: Any) -> None:
        """Makes the rows of outputs of these shapes, and the graph if it gives what plain runs do."""
        loaded = self._context.loaded
        self._rows = {
            n: aligned_rows(self._steps, s, loaded.outputs[n], loaded.device) for n, s in shapes.items()
        }
        self._rows[self._noise] = aligned_rows(self._steps, noise, torch.float32, loaded.device)
        self._rows[self._noise].uniform_()
        self._run(stream)  # what a first run sets up cannot be captured
        self._reset(None)
        self._run(stream)
        plain = {name: self._rows[name].clone() for name in shapes}
        stream.synchronize()
        try:
            replay, _ = record(lambda: self._run(stream), stream)
        except (RuntimeError, ValueError) as error:
            warnings.warn(f"{loaded.name}: no CUDA graph of its steps: {error}", stacklevel=2)
            return
        # Plain runs of TensorRT for RTX are not in order, as the graph is: there it need only repeat itself.
        for _ in range(2 if loaded.trt.portable else 1):
            self._reset(None)
            replay()
            if all(torch.equal(plain[name], self._rows[name]) for name in shapes):
                self._replay = replay
                return
            plain = {name: self._rows[name].clone() for name in shapes}
        warnings.warn(f"{loaded.name}: a CUDA graph of its steps gives other numbers", stacklevel=2)

    def _reset(self, state: Mapping[str, Tensor] | None) -> None:
        """The state before the first step: zeros, or the one given."""
        for name, rows in self._rows.items():
            if name.startswith("next_"):
                given = (state or {}).get(name.removeprefix("next_"))
                rows[-1].zero_() if given is None else rows[-1].copy_(given)

    def start(self, fixed: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        for name, tensor in fixed.items():
            self.fixed[name].copy_(tensor)
        self._reset(state)

    def run(self, noise: Any, stream: torch.cuda.Stream) -> None:
        given = torch.as_tensor(noise)
        if not given.is_cuda:
            given = given.pin_memory()
        self._rows[self._noise][: len(given)].copy_(given, non_blocking=True)
        if self._replay is None:
            self._run(stream)
        else:
            self._replay()

    def _run(self, stream: torch.cuda.Stream) -> None:
        states = [name.removeprefix("next_") for name in self._rows if name.startswith("next_")]
        for step in range(self._steps):
            before = {name: self._rows[f"next_{name}"][step - 1] for name in states}
            inputs = {**self.fixed, **before, self._noise: self._rows[self._noise][step]}
            outputs = {name: self._rows[name][step] for name in self._context.loaded.outputs}
            self._context.bind(inputs, outputs)
            self._context.run(stream)

    def rows(self, name: str, count: int) -> Tensor:
        return self._rows[name][:count].clone(memory_format=torch.contiguous_format)


def aligned_rows(count: int, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
    """Zeros [count, *shape] whose rows begin at addresses that TensorRT takes."""
    size = 1
    for length in shape:
        size *= length
    padded = -(-size * dtype.itemsize // ALIGNMENT) * ALIGNMENT // dtype.itemsize
    rows = torch.zeros(count, padded, dtype=dtype, device=device)[:, :size]
    return rows.unflatten(1, shape)


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
            in_order = stage.rtx_in_order and trt.portable
            self.loaded = LoadedPlan(plan, trt, device, str(file.path), file.path, in_order)
            source.networks[key] = self.loaded
        self.memory_owner = self.loaded
        self.memory_bytes = self.loaded.memory_bytes + self.loaded.scratch_bytes
        self._context = TrtContext(self.loaded)
        self._contexts: dict[tuple, TrtContext] = {}  # the one used last is the last
        self._stream = torch.cuda.Stream(device)
        self._captured = None
        if deployment.trt_cuda_graph:
            self._captured = Captured(self.stage.full_name, lambda inputs: self.alone(), self._stream)
        self._seen: set[tuple] = set()
        self._repeated: dict[tuple, RepeatedSteps] = {}

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        check_inputs(self.stage, inputs)
        key = tuple(tuple(inputs[name].shape) for name in self.loaded.inputs)
        try:
            with own_stream(self._stream) as stream:
                outputs = self._run(key, {n: addressable(t) for n, t in inputs.items()}, stream)
        except torch.cuda.OutOfMemoryError:
            raise ValueError(
                f"the GPU's memory does not hold what {self.loaded.name} gives{self.loaded.free_memory()}"
            ) from None
        if key not in self._seen:
            self._seen.add(key)
            self.loaded.cache.save()
        return outputs

    @property
    def _graphs(self) -> dict[tuple, Graph | None]:
        """By the shapes that have run; None where a graph gave other numbers."""
        return self._captured.graphs if self._captured else {}

    def alone(self, bucket: Bucket | None = None) -> ContextRun:
        """What runs beside the engine, for what is captured together with others; it is its own bucket."""
        return ContextRun(self.loaded)

    def repeated(
        self,
        fixed: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        noise: str,
        steps: int,
        kept: Sequence[str],
    ) -> Callable[[Any], dict[str, Tensor]]:
        """A function that makes up to `steps` runs from where the last call ended, beginning with `state`.

        It takes rows of the input `noise`, one for each run, and gives rows of the outputs `kept`.
        """
        sample = next(tensor for tensor in self.stage.inputs if tensor.name == noise)
        batch = len(next(iter(state.values())))
        shape = tuple(dim if isinstance(dim, int) else batch for dim in sample.dims)
        example = torch.zeros(shape, device=self.device)
        check_inputs(self.stage, {**fixed, **state, noise: example})
        key = (steps, *(tuple(fixed[name].shape) for name in sorted(fixed)))
        with own_stream(self._stream) as stream:
            made = self._repeated.pop(key, None)
            if made is None:
                made = RepeatedSteps(TrtContext(self.loaded), fixed, noise, steps)
                outputs = {n: batch_shape(self.stage, n, {**fixed, **state}) for n in self.loaded.outputs}
                made.prepare(outputs, shape, stream)
                self.loaded.cache.save()
            self._repeated[key] = made
            while len(self._repeated) > MOST_REPEATED:
                del self._repeated[next(iter(self._repeated))]
            made.start(fixed, state)

        def run(values: Any) -> dict[str, Tensor]:
            with own_stream(self._stream) as stream:
                made.run(values, stream)
                return {name: made.rows(name, len(values)) for name in kept}

        return run

    def _run(self, key: tuple, inputs: dict[str, Tensor], stream: torch.cuda.Stream) -> dict[str, Tensor]:
        outputs = self._captured(inputs) if self._captured else None
        if outputs is not None:
            return outputs
        context = self._context_for(key)
        context.bind(inputs)
        context.run(stream)
        return context.results(stream)

    def _context_for(self, key: tuple) -> TrtContext:
        """Shapes that come again between others get a context each: changing one's shapes takes 20 ms."""
        if key in self._contexts:
            self._contexts[key] = self._contexts.pop(key)
        elif key not in self._seen or self._context.shapes == key:
            return self._context
        else:
            self._contexts[key] = TrtContext(self.loaded)
            if len(self._contexts) > MOST_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
        return self._contexts[key]


def addressable(tensor: Tensor) -> Tensor:
    """The tensor as TensorRT can read it where it is, else a copy."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def batch_shape(stage: Stage, output: str, inputs: Mapping[str, Tensor]) -> tuple[int, ...]:
    """An output's shape, from the sizes that the inputs' dimensions have."""
    sizes = {
        dim.name: size
        for tensor in stage.inputs
        if tensor.name in inputs
        for dim, size in zip(tensor.dims, inputs[tensor.name].shape, strict=True)
        if isinstance(dim, Dim)
    }
    dims = next(tensor.dims for tensor in stage.outputs if tensor.name == output)
    return tuple(dim if isinstance(dim, int) else sizes[dim.name] for dim in dims)


def require_gpu(device: str) -> None:
    if not torch.cuda.is_available():
        raise ValueError(
            "the backend trt runs on an NVIDIA GPU, and PyTorch sees none here; use --backend onnx"
        )
    if device == "cpu":
        raise ValueError("the backend trt runs on a GPU: use --device cuda")
