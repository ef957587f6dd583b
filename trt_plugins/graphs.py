"""What the engines on kernels of our own share: one CUDA graph a shape, and the machine that they need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from common.arrays import Array
from common.engines.check_inputs import check_inputs
from common.engines.torch_engine import build_network
from common.errors import InputError
from common.stages import Stage

if TYPE_CHECKING:
    from common.weights.voices import ModelSource

STAGES = ("generator", "masked_generator")
SHAPES = 24  # whose graphs and buffers are kept: all lengths up to 1024 frames of one batch size
SHORT, SHORT_STEP, STEP = 128, 16, 64  # frames, up to whose multiples mels are padded
CAPABILITY = (9, 0)  # the first with the copies and products of tiles that the Triton kernels are made of


def check_machine(device: str, model: str) -> None:
    """A ValueError where the Triton kernels of a model (by its spoken name) cannot run."""
    if not device.startswith("cuda"):
        raise InputError(f"device {device!r}: {model}'s kernels need an NVIDIA GPU")
    if not torch.cuda.is_available():
        raise InputError(f"device {device!r}: PyTorch sees no GPU here")
    found = torch.cuda.get_device_capability(device)
    if found < CAPABILITY:
        raise InputError(
            "{}'s kernels need a GPU of compute capability {}.{} or later, not {}.{}".format(
                model, *CAPABILITY, *found
            )
        )
    try:
        import triton  # noqa: F401
    except ImportError:
        raise InputError(
            f"{model}'s kernels need Triton, which PyTorch's CUDA builds bring along: pip install triton"
        ) from None


def processors_of(device: str) -> int:
    """How many programs' groups a GPU runs at a time; on a CPU, an H200's."""
    if device == "cpu":
        return 132
    return torch.cuda.get_device_properties(device).multi_processor_count


def padded(frames: int) -> int:
    """What a mel of so many frames is padded to: a graph for every length would take longer than speaking."""
    step = SHORT_STEP if frames <= SHORT else STEP
    return -(-frames // step) * step


class Launch(NamedTuple):
    """A Triton kernel with all that it is given."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple
    options: dict[str, Any]

    def __call__(self) -> None:
        self.kernel[self.grid](*self.arguments, **self.options)


class GraphedShape(ABC):
    """One batch and length: buffers for its inputs, and the CUDA graph that fills `audio` from them.

    A class of it makes `inputs`, with `lengths` (B,) int64 behind which nothing is heard, and `audio`.
    """

    inputs: dict[str, torch.Tensor]
    audio: torch.Tensor
    graph: Any = None

    @abstractmethod
    def launch(self) -> None:
        """Puts all kernels on the current stream."""

    def __call__(self, inputs: Mapping[str, Array], frames: int) -> torch.Tensor:
        """Audio (B, frames * hop) of mels and noise that may be shorter than the buffers."""
        self.inputs["lengths"].fill_(frames)  # unless they are among the inputs
        for name, value in inputs.items():
            size = value.shape[-1]
            self.inputs[name][..., :size].copy_(value)
            self.inputs[name][..., size:].zero_()
        if self.graph is None:
            self.launch()  # what Triton compiles and CUDA loads cannot be captured
            graph = torch.cuda.CUDAGraph()
            torch.cuda.current_stream().synchronize()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.launch()
            self.graph = graph
        self.graph.replay()
        whole = self.inputs["mel"].shape[-1]
        return self.audio[:, : self.audio.shape[1] // whole * frames].clone()


class ShapedGenerator(ABC):
    """A vocoder's stage on kernels of ours, on torch's current stream: CUDA tensors in and out.

    A first call for a batch and a length launches the kernels once (Triton compiles what its cache lacks) and
    captures them in a CUDA graph; later ones replay it. The graphs of the last few shapes are kept.
    """

    backend = "cuda"
    name: str  # of the model, as it is spoken

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        if stage.name not in STAGES:
            raise ValueError(f"the kernels run {' and '.join(STAGES)}, not {stage.name}")
        self.check(source.config)
        check_machine(device, self.name)
        self.stage, self.device, self.config = stage, device, source.config
        key = (stage.network, device, self.backend)
        self.folded = source.networks.get(key)
        if self.folded is None:
            self.folded = source.networks[key] = self.fold(build_network(stage, source).to(device))
        self.memory_owner, self.memory_bytes = self.folded, self.folded.nbytes
        self.shapes = Shapes(self.shape, device)

    @staticmethod
    @abstractmethod
    def check(config: Any) -> None:
        """A ValueError where the kernels cannot do networks of this config."""

    @staticmethod
    @abstractmethod
    def fold(network: torch.nn.Module) -> Any:
        """The network's weights as the kernels take them, with their size as `nbytes`."""

    @abstractmethod
    def shape(self, batch: int, frames: int) -> GraphedShape:
        """The buffers and launches of one batch and length."""

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        check_inputs(self.stage, inputs)
        batch, _, frames = inputs["mel"].shape
        return {self.stage.outputs[0].name: self.shapes.run(batch, frames, inputs)}


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
            key = batch, padded(frames)
            shape = self.kept.get(key)
            if shape is None:
                while len(self.kept) >= SHAPES:
                    self.kept.popitem(last=False)
                shape = self.kept[key] = self._make(*key)
            self.kept.move_to_end(key)
            audio = shape(inputs, frames)
            self._done = stream.record_event()
        return audio
