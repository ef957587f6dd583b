"""Stages run by PyTorch in other ways than the engine does: in half precision, compiled, as CUDA graphs."""

from collections.abc import Callable

import numpy as np
import torch

from melforge.common.arrays import Array
from melforge.common.cuda_streams import new_stream, own_stream
from melforge.common.engines import Engine, WrappedEngine, check_inputs
from melforge.common.engines.cuda_graphs import record
from melforge.common.engines.layer_outputs import method_of
from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.errors import InputError

RUNS_BEFORE_CAPTURE = 3  # what cuDNN tries on its first calls cannot be captured


def in_mode(engine: Engine, mode: str | None, half: bool) -> Engine:
    """What runs in the place of a stage's engine on PyTorch."""
    if mode == "graph" and engine.device == "cpu":
        raise InputError("torch-graph needs a GPU: a CUDA graph is captured there")
    if not isinstance(engine, TorchEngine):
        raise InputError(
            f"{engine.stage.full_name} runs in buckets: torch-compile, torch-graph and fp16 go without"
        )
    made = TorchStage(engine, half, mode == "compile")
    return {"graph": GraphedStage, "tuned": TunedStage}[mode](made) if mode in ("graph", "tuned") else made


class TorchStage(WrappedEngine):
    """A network's method as TorchEngine runs it; what it takes and gives stays in float32."""

    def __init__(self, engine: TorchEngine, half: bool, compiled: bool):
        super().__init__(engine)
        self._half = half and "*" not in engine.stage.float32_layers
        if self._half:
            engine.network.half()  # all of it, as a model's user would
        self._method = method_of(engine.network, engine.stage)
        if compiled:
            torch._dynamo.config.recompile_limit = 64
            self._method = torch.compile(self._method, dynamic=False)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        stage, on_cpu = self.inner.stage, self.inner.device == "cpu"
        check_inputs(stage, inputs)
        with torch.inference_mode():
            if on_cpu:
                inputs = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in inputs.items()}
            if self._half:
                inputs = {n: x.half() if x.is_floating_point() else x for n, x in inputs.items()}
            outputs = [x.float() if x.is_floating_point() else x for x in self._method(**inputs)]
        names = (tensor.name for tensor in stage.outputs)
        return {name: x.numpy() if on_cpu else x for name, x in zip(names, outputs, strict=True)}


class TunedStage(WrappedEngine):
    """With what cuDNN finds fastest of its algorithms for each new shape."""

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            return self.inner(**inputs)


class GraphedStage(WrappedEngine):
    """A CUDA graph for each shape, with memory of its own that inputs are copied to."""

    def __init__(self, engine: Engine):
        super().__init__(engine)
        self._graphs: dict[tuple, tuple[dict, Callable, dict]] = {}
        self._stream = new_stream(engine.device)

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        key = tuple(tuple(tensor.shape) for tensor in inputs.values())
        with own_stream(self._stream) as stream:  # on the default one nothing can be captured
            if key not in self._graphs:
                self._graphs[key] = self._capture(inputs, stream)
            held, replay, outputs = self._graphs[key]
            for name, tensor in inputs.items():
                held[name].copy_(tensor)
            replay()
            return {name: tensor.clone() for name, tensor in outputs.items()}

    def _capture(self, inputs: dict[str, Array], stream: torch.cuda.Stream) -> tuple[dict, Callable, dict]:
        held = {name: tensor.clone() for name, tensor in inputs.items()}
        for _ in range(RUNS_BEFORE_CAPTURE):
            self.inner(**held)
        stream.synchronize()
        return held, *record(lambda: self.inner(**held), stream, in_order=False)
