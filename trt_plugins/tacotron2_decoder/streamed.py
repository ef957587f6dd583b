"""The stage `decoder_loop` on seven small kernels for each step, which any number of multiprocessors runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from melforge.common.config.deployment import Bucket
from melforge.common.engines import Run
from melforge.common.engines.layer_outputs import calls_to_show, show
from melforge.common.engines.limits import PLAIN, Needs
from melforge.common.stages import Stage
from melforge.tacotron2.model import DecoderState, Tacotron2
from melforge.trt_plugins.graphs import KernelModule, TritonLaunch, compile_launches
from melforge.trt_plugins.tacotron2_decoder.captured import CapturedDecoderLoop
from melforge.trt_plugins.tacotron2_decoder.weights import fold

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource
    from melforge.tacotron2.config import Tacotron2Config

kernels = KernelModule("melforge.trt_plugins.tacotron2_decoder.kernels")

MOST_ITEMS = 4  # that share what a program reads of the weights
UNITS, ROWS = 4, 16  # of a program
DEPTH, FRAME_DEPTH = 256, 32  # values of a vector at a time
POSITIONS, MEMORY_CHANNELS = 8, 64


def power_above(number: int) -> int:
    return 1 << (number - 1).bit_length()


class StepWeights(NamedTuple):
    """Matrices float16, the rest float32."""

    prenet: tuple[Tensor, Tensor]  # (P, F), (P, P)
    attention: tuple[Tensor, Tensor]  # (4 H_a, P + C + H_a), the sum of its biases
    query: Tensor  # (A, H_a)
    location: Tensor  # (2, K, A)
    scores: Tensor  # (A,)
    decoder: tuple[Tensor, Tensor]  # (4 H_d, H_a + C + H_d)
    out: tuple[Tensor, Tensor]  # (F + 1, H_d + C): the frame and the gate


@torch.no_grad()
def step_weights(network: Tacotron2) -> StepWeights:
    layers: Any = network.decoder.prenet.layers
    folded, first = fold(network), layers[0].linear_layer.weight
    channels = len(first)  # of the prenet's first layer, which is done by itself here
    out = torch.cat(folded.out, 1)[channels:].half(), folded.out_bias[channels:].contiguous()
    return StepWeights(
        (first.half(), folded.prenet.half()),
        (torch.cat(folded.attention, 1).half(), folded.attention_bias),
        folded.query.half(),
        folded.location.contiguous(),
        folded.energy.contiguous(),
        (torch.cat(folded.decoder, 1).half(), folded.decoder_bias),
        out,
    )


def begins(state: DecoderState) -> bool:
    """Whether it is that before the first step, where somebody hears and the host may ask."""
    seen = state.attention_cumulative
    captures = seen.is_cuda and torch.cuda.is_current_stream_capturing()
    return bool(calls_to_show()) and not captures and not bool(seen.any())


class StreamedDecoderLoop(CapturedDecoderLoop):
    """Weights in half precision, all else in single. The steps between two looks at the gates are a graph."""

    precision = "half products"
    otherwise = CapturedDecoderLoop

    def __init__(self, stage: Stage, source: ModelSource, device: str = "cuda", threads: int | None = None):
        super().__init__(stage, source, device, threads)
        assert isinstance(self.network, Tacotron2)
        self._weights = step_weights(self.network)
        self._compiled = False

    @classmethod
    def needs(cls, config: Tacotron2Config) -> Needs:
        return PLAIN

    def capturable(self, bucket: Bucket | None = None) -> Run:
        """The first step, of the stage's inputs."""

        def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            assert isinstance(self.network, Tacotron2)
            state = self.network.initial_state(inputs["memory"])._asdict()
            return self._make_steps({**inputs, **state, "prenet_noise": inputs["prenet_noise"][:1]})

        return run

    def _run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self._compiled = self._compiled or compile_launches(self._make_steps, inputs)
        return self._make_steps(inputs)

    def _make_steps(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        state, rows = DecoderState(*(inputs[name] for name in DecoderState._fields)), []
        heard = calls_to_show() if begins(state) else 0
        for step, noise in enumerate(inputs["prenet_noise"]):
            gate, state, layers = self._step(inputs, noise, state)
            rows.append((state.frame, gate, state.attention_weights))
            for name, tensor in layers.items() if step < heard else ():
                show(f"decoder.{name}{f'#{step + 1}' if step else ''}", lambda tensor=tensor: tensor)
        frames, gates, alignment = (torch.stack(each, 1) for each in zip(*rows, strict=True))
        return {"frames": frames, "gates": gates, "alignment": alignment, **state._asdict()}

    def _step(
        self, inputs: Mapping[str, Tensor], noise: Tensor, state: DecoderState
    ) -> tuple[Tensor, DecoderState, dict[str, Tensor]]:
        """The gate's logits (B,), the next state, and the outputs of the decoder's layers."""
        weights, memory = self._weights, inputs["memory"]
        items, text, channels = memory.shape
        new, together = memory.new_empty, min(MOST_ITEMS, power_above(items))
        groups, sharing = -(-items // together), {"ITEMS": together, "BK": DEPTH}

        (first, second), size = weights.prenet, state.frame.shape[1]
        shown = new(items, len(first))
        given = state.frame, state.frame.stride(0), noise, inputs["prenet_dropout"], first, second, shown
        blocks = {"ROWS": ROWS, "BP": power_above(len(first)), "BF": FRAME_DEPTH}
        grid = -(-len(first) // ROWS), items
        TritonLaunch(kernels.prenet_kernel, grid, (*given, items, size, len(first)), blocks)()

        def lstm(
            weights: tuple[Tensor, Tensor], first: Tensor, context: Tensor, hidden: Tensor, cell: Tensor
        ) -> tuple[Tensor, Tensor]:
            made = torch.empty_like(hidden), torch.empty_like(cell)
            widths = {"FIRST": first.shape[1], "SECOND": channels, "HIDDEN": hidden.shape[1]}
            TritonLaunch(
                kernels.lstm_kernel,
                (-(-hidden.shape[1] // UNITS), groups),
                (first, context, hidden, cell, *weights, *made, items),
                {"UNITS": UNITS, **widths, **sharing},
            )()
            return made

        def rows(weights: Tensor, bias: Tensor | None, first: Tensor, second: Tensor | None = None) -> Tensor:
            made = new(items, len(weights))
            widths = {"FIRST": first.shape[1], "SECOND": channels if second is not None else 0}
            TritonLaunch(
                kernels.rows_kernel,
                (-(-len(weights) // ROWS), groups),
                (first, second, weights, bias, made, items, len(weights)),
                {"ROWS": ROWS, **widths, **sharing},
            )()
            return made

        attended, attention_cell = lstm(
            weights.attention, shown, state.attention_context, state.attention_hidden, state.attention_cell
        )
        query = rows(weights.query, None, attended)
        energies, width = new(items, text), len(weights.scores)
        seen = state.attention_weights, state.attention_cumulative
        known = query, inputs["processed_memory"], weights.location, weights.scores, inputs["lengths"]
        TritonLaunch(
            kernels.energy_kernel,
            (-(-text // POSITIONS), items),
            (*seen, *known, energies, text, width),
            {"TAPS": weights.location.shape[1], "BN": POSITIONS, "BA": power_above(width)},
        )()
        attention, cumulative, context = new(items, text), new(items, text), new(items, channels)
        TritonLaunch(
            kernels.context_kernel,
            (-(-channels // MEMORY_CHANNELS), items),
            (energies, seen[1], memory, attention, cumulative, context, text, channels),
            {"BT": power_above(text), "BN": 32, "BC": MEMORY_CHANNELS},
        )()
        hidden, cell = lstm(weights.decoder, attended, context, state.decoder_hidden, state.decoder_cell)
        made = rows(*weights.out, hidden, context)
        frame, gate = made[:, :-1], made[:, -1]
        layers = {
            "prenet": shown,
            "attention_rnn": attended,
            "attention_layer.query_layer": query,
            "attention_layer": context,
            "decoder_rnn": hidden,
            "linear_projection": frame,
            "gate_layer": made[:, -1:],
        }
        after = DecoderState(frame, attended, attention_cell, hidden, cell, attention, cumulative, context)
        return gate, after, layers
