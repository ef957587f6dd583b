"""Engines that pad lengths to few, with a CUDA graph for each: stages on kernels, ours or PyTorch's own."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import torch
from torch import Tensor
from torch.backends import cudnn

from melforge.common.arrays import pad_to
from melforge.common.config.deployment import Bucket
from melforge.common.cuda_streams import new_stream
from melforge.common.engines import MEL_STEP, TEXT_STEP, CapturableEngine, Run, check_inputs
from melforge.common.engines.buckets import cut, resized
from melforge.common.engines.cuda_graphs import Captured
from melforge.common.engines.layer_outputs import showing
from melforge.common.engines.torch_engine import META, build_network
from melforge.common.errors import InputError
from melforge.common.stages import Dim, Stage, root
from melforge.common.weights.voices import ModelSource

UNITS = {"text": TEXT_STEP, "mel": MEL_STEP}  # lengths are padded to multiples of these


class PaddedEngine(CapturableEngine):
    """CUDA tensors in and out. Steps behind the longest item are masked, even in a network that attends to
    the padding of shorter items.
    """

    backend = "cuda"
    attends_to_padding = False  # behind the longest item
    prefers_batches = True
    units = UNITS

    @cached_property
    def _captured(self) -> Captured:
        stream = new_stream(self.device)
        return Captured(self.stage.full_name, lambda inputs: self.capturable(), stream, directly=True)

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        check_inputs(self.stage, inputs)
        lengths = {
            root(dim): -(-size // dim.times)
            for tensor in self.stage.inputs
            for dim, size in zip(tensor.dims, inputs[tensor.name].shape, strict=True)
            if isinstance(dim, Dim) and root(dim) in self.units
        }
        wanted = {name: self.padded(name, size) for name, size in lengths.items()}
        with torch.inference_mode():
            padded = {
                t.name: pad_to(inputs[t.name], resized(t, inputs[t.name], wanted)) for t in self.stage.inputs
            }
            padded |= self.further_inputs(inputs, lengths)
            outputs = self._captured(padded)
            if outputs is None:  # no graph; a warning gave the reason
                outputs = {name: tensor.clone() for name, tensor in self.capturable()(padded).items()}
        return {
            t.name: cut(outputs[t.name], resized(t, outputs[t.name], lengths)) for t in self.stage.outputs
        }

    def padded(self, name: str, size: int) -> int:
        """A length, "text" or "mel", rounded up: few graphs do for all."""
        return -(-size // self.units[name]) * self.units[name]

    def further_inputs(self, inputs: Mapping[str, Tensor], lengths: Mapping[str, int]) -> dict[str, Tensor]:
        """What the run takes beside the stage's own inputs; `lengths` are those without padding.

        A stage that takes no lengths is given that of the longest item, for all: it must mask what is behind
        it.
        """
        if any(tensor.name in ("lengths", "mel_lengths") for tensor in self.stage.inputs):
            return {}
        first = inputs[self.stage.inputs[0].name]
        (length,) = lengths.values()
        return {"lengths": torch.full((len(first),), length, device=first.device)}


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """cuDNN takes algorithms that add in one order: a graph is not used where it gives other numbers."""
    was, cudnn.deterministic = cudnn.deterministic, True
    try:
        yield
    finally:
        cudnn.deterministic = was


class CapturedNetwork(PaddedEngine):
    """A stage on PyTorch's kernels, in half precision but for stages and engines that are all float32."""

    in_float32 = False

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        if device == "cpu" or (device != META and not torch.cuda.is_available()):
            raise InputError(f"device {device!r}: {stage.full_name} as a CUDA graph needs an NVIDIA GPU")
        self.stage, self.device = stage, device
        exact = self.in_float32 or stage.float32_layers == ("*",)
        self._type = torch.float32 if exact else torch.float16
        key = (stage.network, device, "captured", self._type, type(self).prepared)
        network: torch.nn.Module | None = source.networks.get(key)
        if network is None:
            network = self.prepared(build_network(stage, source, META if device == META else "cpu"))
            network = source.networks[key] = network.to(device, self._type)
        self._network, self._method = network, self.method_of(network)
        self.memory_owner = network
        self.memory_bytes = sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))

    @property
    def precision(self) -> str:
        return "fp32" if self._type == torch.float32 else "fp16"

    def prepared(self, network: torch.nn.Module) -> torch.nn.Module:
        """What runs, made in float32 of the stage's network."""
        return network

    def method_of(self, network: torch.nn.Module) -> Callable[..., tuple[Tensor, ...]]:
        """What computes the stage on padded inputs."""
        return getattr(network, self.stage.method)

    def capturable(self, bucket: Bucket | None = None) -> Run:
        def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            given = {n: x.to(self._type) if x.is_floating_point() else x for n, x in inputs.items()}
            kind = type(self._network)
            own = f"{kind.__module__}:{kind.__name__}" == self.stage.network  # and nothing made of it
            shown = showing(self._network) if own else contextlib.nullcontext()
            with torch.inference_mode(), repeatable(), shown:
                outputs = self._method(**given)
            names = (tensor.name for tensor in self.stage.outputs)
            floats = (x.float() if x.is_floating_point() else x for x in outputs)
            return dict(zip(names, floats, strict=True))

        return run
