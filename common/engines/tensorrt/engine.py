"""A stage run by TensorRT, on torch tensors where they are and on the caller's stream."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from melforge.common.arrays import Array
from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.cuda_streams import new_stream, own_stream
from melforge.common.engines import Arrays, CapturableEngine, Recent, check_inputs
from melforge.common.engines.cuda_graphs import Captured, Graph
from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.common.engines.tensorrt.build import build_or_read
from melforge.common.engines.tensorrt.context import ContextRun, LoadedPlan, TrtContext, addressable
from melforge.common.engines.tensorrt.engine_file import engine_file
from melforge.common.engines.tensorrt.steps import (
    ItemByItem,
    RepeatedSteps,
    Repetition,
    make_steps,
    shape_of,
    sizes_of,
)
from melforge.common.errors import InputError
from melforge.common.stages import Stage
from melforge.common.weights.voices import ModelSource

MOST_REPEATED = 4  # shapes whose steps stay captured
MOST_CONTEXTS = 8  # shapes that have a context of their own


class TrtEngine(CapturableEngine):
    """CUDA tensors in and out. Outputs are allocated by PyTorch, whose pool reuses memory.

    Engines of one source and file share the weights; each has a context, so that several may run at a time.
    """

    backend = "trt"
    can_be_repeated = True

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
        loaded: LoadedPlan | None = source.networks.get(key)
        if loaded is None:
            plan = build_or_read(file, source, trt, deployment)
            in_order = stage.rtx_in_order and trt.portable
            loaded = source.networks[key] = LoadedPlan(plan, trt, device, file.path, in_order)
        self.memory_owner = self.loaded = loaded
        self.memory_bytes = loaded.memory_bytes + loaded.scratch_bytes
        self._first: dict[bool, TrtContext] = {}  # by `LoadedPlan.has_ones`: for shapes that are new
        self._contexts: Recent[tuple, TrtContext] = Recent(MOST_CONTEXTS)
        self._stream = new_stream(device)
        if trt.portable and bucket is None:
            self.text_step = self.stage.rtx_text_step
        self._captured = None
        if deployment.trt_cuda_graph:
            self._captured = Captured(self.stage.full_name, lambda inputs: self.capturable(), self._stream)
        self._seen: set[tuple] = set()
        self._repeated: Recent[tuple, RepeatedSteps | ItemByItem] = Recent(MOST_REPEATED)

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        check_inputs(self.stage, inputs)
        self._require_step(inputs)
        key = tuple(tuple(inputs[name].shape) for name in self.loaded.inputs)
        try:
            with own_stream(self._stream) as stream:
                outputs = self._run(key, {n: addressable(t) for n, t in inputs.items()}, stream)
        except torch.cuda.OutOfMemoryError:
            raise InputError(
                f"the GPU's memory does not hold what {self.loaded.name} gives{self.loaded.free_memory()}"
            ) from None
        if key not in self._seen:
            self._seen.add(key)
            self.loaded.save_compiled()
        return outputs

    @property
    def _graphs(self) -> dict[tuple, Graph | None]:
        """By shapes; None where a graph could not be captured or gave other numbers."""
        return self._captured.graphs if self._captured else {}

    def capturable(self, bucket: Bucket | None = None) -> ContextRun:
        return ContextRun(self.loaded)

    def repeated(
        self, fixed: Arrays, state: Arrays, noise: str, steps: int, kept: Sequence[str]
    ) -> Callable[[Array], dict[str, Tensor]]:
        self._require_step(fixed)
        sample = next(tensor for tensor in self.stage.inputs if tensor.name == noise)
        shape = shape_of(sample, sizes_of(self.stage, {**fixed, **state}))
        check_inputs(self.stage, {**fixed, **state, noise: torch.zeros(shape, device=self.device)})
        key = (steps, *(tuple(fixed[name].shape) for name in sorted(fixed)))
        with own_stream(self._stream) as stream:

            def make() -> RepeatedSteps | ItemByItem:
                made = make_steps(self.loaded, Repetition(self.stage, noise, steps), fixed, state, stream)
                self.loaded.save_compiled()
                return made

            repeated = self._repeated.get_or_make(key, make)
            repeated.start(fixed, state)

        def run(values: Array) -> dict[str, Tensor]:
            with own_stream(self._stream) as stream:
                repeated.run(values, stream)
                return {name: repeated.rows(name, len(values)) for name in kept}

        return run

    def _require_step(self, inputs: Arrays) -> None:
        step = self.text_step
        if step > 1 and (symbols := sizes_of(self.stage, inputs)["text"]) % step:
            raise InputError(
                f"{self.stage.full_name} on TensorRT for RTX takes texts padded to a multiple of {step} "
                f"symbols, not {symbols}: of others the last positions would be wrong"
            )

    def _run(self, key: tuple, inputs: dict[str, Tensor], stream: torch.cuda.Stream) -> dict[str, Tensor]:
        outputs = self._captured(inputs) if self._captured else None
        if outputs is not None:
            return outputs
        context = self._context_for(key, inputs)
        context.bind(inputs)
        context.run(stream)
        return context.results(stream)

    def _context_for(self, key: tuple, inputs: dict[str, Tensor]) -> TrtContext:
        """Shapes that recur between others get a context each: changing a context's shapes takes 20 ms."""
        ones = self.loaded.has_ones(inputs)
        if ones not in self._first:
            self._first[ones] = TrtContext(self.loaded, inputs)
        if key not in self._contexts and (key not in self._seen or self._first[ones].shapes == key):
            return self._first[ones]
        return self._contexts.get_or_make(key, lambda: TrtContext(self.loaded, inputs))


def require_gpu(device: str) -> None:
    if not torch.cuda.is_available():
        raise InputError(
            "the backend trt runs on an NVIDIA GPU, and PyTorch sees none here; the backend onnx needs none"
        )
    if device == "cpu":
        raise InputError("the backend trt runs on a GPU: use the device cuda")
