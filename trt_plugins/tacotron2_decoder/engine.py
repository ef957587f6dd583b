"""The stage `decoder_loop` on the kernel: an engine like those of common/engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from melforge.common.arrays import Array, pad_to
from melforge.common.engines import check_inputs
from melforge.common.engines.layer_outputs import calls_to_show, show
from melforge.common.engines.limits import Needs, device_limits
from melforge.common.engines.torch_engine import build_network
from melforge.common.errors import InputError
from melforge.common.noise import Distribution
from melforge.common.stages import Stage
from melforge.tacotron2.model import Tacotron2
from melforge.trt_plugins.kernel import Launch
from melforge.trt_plugins.noise import DrawsOnGpu
from melforge.trt_plugins.tacotron2_decoder.launch import (
    COPIES,
    INPUTS,
    ITEMS,
    MOST_TEXT,
    Sizes,
    exchange_bytes,
    largest_batch,
    launch,
    needs_of,
    sizes_of,
)
from melforge.trt_plugins.tacotron2_decoder.streamed import StreamedDecoderLoop
from melforge.trt_plugins.tacotron2_decoder.weights import arrange, fold, products

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource
    from melforge.tacotron2.config import Tacotron2Config

SCORES = "decoder.attention_layer.v"


class DecoderOutput(NamedTuple):
    """The tensors that a launch fills, up to the last step made."""

    exchange: Tensor  # zeroed before the launch
    frames: Tensor  # (B, limit, F)
    mel_lengths: Tensor  # (B,)
    gate: Tensor  # (B, limit)
    alignment: Tensor  # (B, limit, N)
    stopped: Tensor  # (B,)
    status: Tensor  # (2,) the steps made, and whether a block timed out; zeroed before the launch


def exchanged(sizes: Sizes, exchange: Tensor, step: int) -> dict[str, Tensor]:
    """What blocks told each other in the last step of a launch, float32 (ITEMS, ...), by the source's names.

    The prenet's are that step's input, and zeros before the first one.
    """
    # The type, the values of an item, and the bits that are no phase.
    fields = {
        "attention": (torch.int16, sizes.attention_rnn, ~0x4000),
        "decoder": (torch.int16, sizes.decoder_rnn, ~0x4000),
        "prenet1": (torch.int16, sizes.prenet, 0x7FFF),
        "prenet2": (torch.int16, sizes.prenet, 0x7FFF),
        "context": (torch.int32, sizes.encoder, ~1),
        "query": (torch.int32, sizes.attention, ~1),
        "energy": (torch.int32, MOST_TEXT, ~1),
    }
    found, start = {}, 0
    for name, (kind, count, mask) in fields.items():
        end = start + 2 * COPIES * ITEMS * count * kind.itemsize
        slots = exchange[start:end].view(kind).view(2, COPIES, ITEMS, count)
        values = slots[(step + name.startswith("prenet")) % 2, 0] & mask
        found[name] = values.view(torch.float16 if kind == torch.int16 else torch.float32).float()
        start = end
    return found


def layers_of(told: Mapping[str, Tensor], made: DecoderOutput, step: int) -> dict[str, Tensor]:
    """The outputs of the network's layers in a launch's last step."""
    batch, _, text = made.alignment.shape
    own = {name: values[:batch] for name, values in told.items()}
    return {
        "decoder.prenet.layers.1<": own["prenet1"],
        "decoder.prenet": own["prenet2"],
        "decoder.attention_rnn": own["attention"],
        "decoder.attention_layer.query_layer": own["query"],
        SCORES: own["energy"][:, :text, None],
        "decoder.attention_layer": own["context"],
        "decoder.decoder_rnn": own["decoder"],
        "decoder.linear_projection": made.frames[:, step],
        "decoder.gate_layer": made.gate[:, step, None],
    }


def steps_made(status: Tensor) -> int:
    """The number of steps that a launch made; waits for it. A TimeoutError if a block timed out."""
    steps, failed = status.tolist()
    if failed:
        raise TimeoutError(
            f"the decoder's kernel stood still at step {steps}: a block waited in vain for the others; "
            "try again, or leave decoder_loop=cuda out of --backend"
        )
    return steps


def items_of(inputs: Mapping[str, Tensor], start: int, count: int) -> dict[str, Tensor]:
    """Some of a batch's items."""
    axes = {"memory": 0, "processed_memory": 0, "lengths": 0, "prenet_noise": 2}
    taken = {n: inputs[n].narrow(a, start, min(count, inputs[n].shape[a] - start)) for n, a in axes.items()}
    return {**inputs, **taken}


class DecoderLoop(DrawsOnGpu):
    """All decoder steps in one launch, on PyTorch's current stream; CUDA tensors in and out.

    A batch that does not fit one launch is decoded in several, one after the other.
    """

    backend = "cuda"
    precision = "half products"
    prefers_batches = True
    otherwise = StreamedDecoderLoop

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        if stage.name != "decoder_loop":
            raise ValueError(f"the decoder's kernel runs the stage decoder_loop, not {stage.full_name}")
        if device == "cpu" or not torch.cuda.is_available():
            raise InputError(f"device {device!r}: the decoder's kernel runs on an NVIDIA GPU")
        self.stage, self.device, self.config = stage, device, source.config
        self._sizes = sizes_of(source.config)
        self._at = torch.device(device)
        if self._at.index is None:
            self._at = torch.device("cuda", torch.cuda.current_device())
        if lacking := ", ".join(self.needs(source.config).unmet(device_limits(self._at.index))):
            raise InputError(f"the decoder's kernel needs {lacking}")
        self._weights = arrange(fold(cast(Tacotron2, build_network(stage, source))), self._at)
        self.memory_owner = self
        self.memory_bytes = sum(tensor.nbytes for tensor in self._weights)

    @classmethod
    def needs(cls, config: Tacotron2Config) -> Needs:
        return needs_of(sizes_of(config))

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        check_inputs(self.stage, inputs)
        batch, text, _ = inputs["memory"].shape
        size = largest_batch(self._sizes, device_limits(self._at.index), text)
        with torch.inference_mode(), torch.cuda.device(self._at):
            parts = [self._decode(items_of(inputs, start, size)) for start in range(0, batch, size)]
            if len(parts) == 1:
                self._show_steps(inputs, min(parts[0]["gate"].shape[1], calls_to_show()))
        if len(parts) == 1:
            return parts[0]
        longest = {
            "mel": (2, max(part["mel"].shape[2] for part in parts)),
            **dict.fromkeys(("gate", "alignment"), (1, max(part["gate"].shape[1] for part in parts))),
        }
        for name, (axis, steps) in longest.items():
            for part in parts:
                shape = list(part[name].shape)
                shape[axis] = steps
                part[name] = pad_to(part[name], shape)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def draw(self, distribution: Distribution, seeds: Sequence[int], first: int, count: int) -> Array:
        with torch.cuda.device(self._at):
            return super().draw(distribution, seeds, first, count)

    def _decode(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        run, made = self.prepare(**{name: x.to(self._at).contiguous() for name, x in inputs.items()})
        run(torch.cuda.current_stream().cuda_stream)
        steps = steps_made(made.status)
        frames = made.frames[:, :steps].reshape(len(made.frames), -1, self.config.n_mel_channels)
        return {
            "mel": frames.mT.contiguous(),
            "mel_lengths": made.mel_lengths,
            "gate": made.gate[:, :steps].contiguous(),
            "alignment": made.alignment[:, :steps].contiguous(),
            "stopped": made.stopped,
        }

    def _show_steps(self, inputs: Mapping[str, Tensor], steps: int) -> None:
        """Launches of one step, of two, and so on: what a step made is read where the launch ended."""
        given = {name: x.to(self._at).contiguous() for name, x in inputs.items()}
        text = given["memory"].shape[1]
        for step in range(steps):
            run, made = self.prepare(**{**given, "prenet_noise": given["prenet_noise"][: step + 1]})
            run(torch.cuda.current_stream().cuda_stream)
            steps_made(made.status)
            for name, tensor in layers_of(exchanged(self._sizes, made.exchange, step), made, step).items():
                if name != SCORES or bool((given["lengths"] == text).all()):  # others are masked
                    call = f"#{step + 1}" if step else ""
                    show(f"{name}{call}", lambda tensor=tensor: tensor)

    def prepare(self, memory: Tensor, **inputs: Tensor) -> tuple[Launch, DecoderOutput]:
        """The launch for the stage's inputs, which may run once, and its output tensors."""
        (batch, text, _), limit, sizes = memory.shape, len(inputs["prenet_noise"]), self._sizes
        made = DecoderOutput(
            torch.zeros(exchange_bytes(sizes), dtype=torch.uint8, device=self._at),
            memory.new_empty(batch, limit, sizes.frame),
            torch.empty_like(inputs["lengths"]),
            memory.new_empty(batch, limit),
            memory.new_empty(batch, limit, text),
            torch.empty(batch, dtype=torch.bool, device=self._at),
            torch.zeros(2, dtype=torch.int32, device=self._at),
        )
        *weights, context = self._weights
        given = {**inputs, "products": products(memory, context)}
        tensors = (*weights, *(given[name] for name in INPUTS), *made)
        addresses = tuple(tensor.data_ptr() for tensor in tensors)
        options = self.config.n_frames_per_step, not self.config.decoder_no_early_stopping
        return launch(self._at.index, sizes, (batch, text, limit), addresses, *options, keep=tensors), made
