"""An encoder and a decoder as two CUDA graphs with what is computed for them; the host reads lengths once.

The second graph reads the first one's outputs where they are.
"""

import functools
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from melforge.common.arrays import pad_to
from melforge.common.config.deployment import Bucket
from melforge.common.cuda_streams import new_stream, own_stream
from melforge.common.engines import (
    MEL_STEP,
    TEXT_STEP,
    CapturableEngine,
    Engine,
    Recent,
    Run,
    attend_to_padding,
)
from melforge.common.engines.cuda_graphs import MOST_SHAPES, Captured
from melforge.common.stages.choose import KERNELS
from melforge.common.synthesis.driver import bucket_for
from melforge.common.synthesis.regulation import Regulation


class TwoGraphs:
    """The regulation makes the first graph's function of the encoder's, and the second's of the decoder's.

    The first takes `symbols` int64 [B, T_text], `lengths` int64 [B] and the inputs `settings`, of which those
    with three axes are [B, n, T_text]. It fetches all from the host's memory. Of its outputs the second takes
    those that are `shared`, by name with the axis that is as long as the text (None: no axis is), and
    `frames`, which counts 0, 1, ... T_mel - 1. With `may_pad` nothing behind the end of an item changes it.
    """

    def __init__(
        self,
        encoder: CapturableEngine,
        decoder: CapturableEngine,
        regulation: Regulation,
        settings: tuple[str, ...],
        shared: Mapping[str, int | None],
        may_pad: bool,
    ):
        self.encoder, self.decoder = encoder, decoder
        self._shared = shared
        self._pads = may_pad or not attend_to_padding(encoder, decoder)
        dims = {**encoder.stage.dynamic_dims, **decoder.stage.dynamic_dims}
        self._longest = Bucket(dims["text"].max, dims["mel"].max)
        self._frames = torch.arange(dims["mel"].max, device=decoder.device)
        self._staged: Recent[tuple, dict[str, Tensor]] = Recent(MOST_SHAPES)  # by shapes and types
        stream = new_stream(encoder.device)

        def of_encoder(inputs: Mapping[str, Tensor]) -> Run:
            lengths = self._lengths_for(encoder, inputs["symbols"].shape[1])
            run = regulation.regulating(encoder.capturable(lengths))
            return lambda given: run({n: v.to(encoder.device, non_blocking=True) for n, v in given.items()})

        def of_decoder(inputs: Mapping[str, Tensor]) -> Run:
            lengths = self._lengths_for(decoder, self._text_of(inputs), len(inputs["frames"]))
            run = regulation.expanding(decoder.capturable(lengths))
            return lambda given: {"mel": run(given)["mel"]}  # nobody takes other outputs: no copies of them

        names = ("symbols", "lengths", *settings)
        # TensorRT's contexts take as long as a graph.
        directly = encoder.backend == decoder.backend == KERNELS
        self.first = Captured(encoder.stage.full_name, of_encoder, stream, names, directly)
        self.second = Captured(decoder.stage.full_name, of_decoder, stream, (*shared, "frames"), directly)
        self.on_its_stream = functools.partial(own_stream, stream)

    def encode(
        self, symbols: np.ndarray, lengths: np.ndarray, **settings: np.ndarray
    ) -> dict[str, Tensor] | None:
        """What the first graph gives, of padded texts; the next call overwrites it.

        None where these lengths have no graph.
        """
        batch, text = symbols.shape
        padded = self._lengths_for(self.encoder, text)
        inputs = {"symbols": symbols, "lengths": lengths, **settings}
        outputs = self.first(self._stage(inputs, padded.text), own=True)
        if outputs is not None and self.encoder.buckets:
            self.encoder.buckets.count_call(padded, batch, lengths.sum())
        return outputs

    def _stage(self, inputs: Mapping[str, np.ndarray], text: int) -> dict[str, Tensor]:
        """Copies the inputs, filled up to `text` symbols, to the graph's pinned memory; reusable once its
        outputs are on the host. Behind a text its settings are those of its last symbol.
        """
        sizes = {n: text if n == "symbols" or v.ndim == 3 else v.shape[-1] for n, v in inputs.items()}
        staged = self._staged.get_or_make(
            tuple([(*value.shape[:-1], sizes[name], value.dtype) for name, value in inputs.items()]),
            lambda: {
                name: torch.from_numpy(np.zeros((*value.shape[:-1], sizes[name]), value.dtype)).pin_memory()
                for name, value in inputs.items()
            },
        )
        for name, value in inputs.items():
            place, end = staged[name].numpy(), value.shape[-1]
            place[..., :end] = value
            if end < sizes[name]:
                place[..., end:] = 0 if name == "symbols" else value[..., -1:]
        return staged

    def decode(self, encoded: Mapping[str, Tensor], mel_lengths: np.ndarray) -> dict[str, Tensor] | None:
        """The second graph's `mel`, of padded mels; these lengths fit. None where they have no graph."""
        text = self._text_of(encoded)
        padded = self._lengths_for(self.decoder, text, int(mel_lengths.max()))
        given = {name: encoded[name] for name in self._shared}
        if padded.text > text:  # a bucket for longer mels
            given = {name: _longer(tensor, self._shared[name], padded.text) for name, tensor in given.items()}
        outputs = self.second({**given, "frames": self._frames[: padded.mel]})
        if outputs is not None:
            if self.decoder.buckets:
                self.decoder.buckets.count_call(padded, len(mel_lengths), mel_lengths.sum())
            self.first.in_use()
        return outputs

    def capture(self, batch: int, text: int, mel: int, **settings: np.ndarray) -> None:
        """Has what a batch of such lengths runs captured; `settings` are as in `encode`."""
        encoded = self.encode(np.ones((batch, text), np.int64), np.full(batch, text), **settings)
        if encoded is not None:
            self.decode(encoded, np.full(batch, mel))
            self.second.wait()

    def _text_of(self, tensors: Mapping[str, Tensor]) -> int:
        """The padded length of the texts."""
        name, axis = next((name, axis) for name, axis in self._shared.items() if axis is not None)
        return tensors[name].shape[axis]

    def _lengths_for(self, engine: Engine, text: int, mel: int = 0) -> Bucket:
        """The engine's bucket for so many symbols and frames, or lengths rounded up where padding may be."""
        if engine.buckets:
            return bucket_for(engine, text, mel)
        if not self._pads:
            return Bucket(text, mel)
        text, mel = -(-text // TEXT_STEP) * TEXT_STEP, -(-mel // MEL_STEP) * MEL_STEP
        return Bucket(min(text, self._longest.text), min(mel, self._longest.mel))


def _longer(tensor: Tensor, axis: int | None, size: int) -> Tensor:
    shape = list(tensor.shape)
    if axis is not None:
        shape[axis] = size
    return pad_to(tensor, shape)
