"""What the engines on kernels of our own share: one CUDA graph a shape, and the machine that they need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from common.arrays import Array

SHAPES = 4  # whose graphs and buffers are kept
CAPABILITY = (9, 0)  # the first with the copies and products of tiles that the Triton kernels are made of


def check_machine(device: str, model: str) -> None:
    """A ValueError where the Triton kernels of a model (by its spoken name) cannot run."""
    if not device.startswith("cuda"):
        raise ValueError(f"device {device!r}: {model}'s kernels need an NVIDIA GPU")
    if not torch.cuda.is_available():
        raise ValueError(f"device {device!r}: PyTorch sees no GPU here")
    found = torch.cuda.get_device_capability(device)
    if found < CAPABILITY:
        raise ValueError(
            "{}'s kernels need a GPU of compute capability {}.{} or later, not {}.{}".format(
                model, *CAPABILITY, *found
            )
        )
    try:
        import triton  # noqa: F401
    except ImportError:
        raise ValueError(
            f"{model}'s kernels need Triton, which PyTorch's CUDA builds bring along: pip install triton"
        ) from None


class GraphedShape(ABC):
    """One batch and length: buffers for its inputs, and the CUDA graph that fills `audio` from them.

    A class of it makes `inputs` and `audio`.
    """

    inputs: dict[str, torch.Tensor]
    audio: torch.Tensor
    graph: Any = None

    @abstractmethod
    def launch(self) -> None:
        """Puts all kernels on the current stream."""

    def __call__(self, inputs: Mapping[str, Array]) -> torch.Tensor:
        for name, value in inputs.items():
            self.inputs[name].copy_(value)
        if self.graph is None:
            self.launch()  # what Triton compiles and CUDA loads cannot be captured
            graph = torch.cuda.CUDAGraph()
            torch.cuda.current_stream().synchronize()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.launch()
            self.graph = graph
        self.graph.replay()
        return self.audio.clone()


class Shapes:
    """The last few shapes that were run, on torch's current stream whichever it is."""

    def __init__(self, make: Callable[[int, int], GraphedShape], device: str):
        self._make = make
        self._device = device
        self.kept: OrderedDict[tuple[int, int], GraphedShape] = OrderedDict()
        self._done: torch.cuda.Event | None = None

    def run(self, batch: int, frames: int, inputs: Mapping[str, Array]) -> torch.Tensor:
        with torch.cuda.device(self._device), torch.inference_mode():
            stream = torch.cuda.current_stream()
            if self._done is not None:  # the buffers may be in use on another stream
                stream.wait_event(self._done)
            shape = self.kept.get((batch, frames))
            if shape is None:
                while len(self.kept) >= SHAPES:
                    self.kept.popitem(last=False)
                shape = self.kept[batch, frames] = self._make(batch, frames)
            self.kept.move_to_end((batch, frames))
            audio = shape(inputs)
            self._done = stream.record_event()
        return audio
