"""An encoder and a decoder as two CUDA graphs with what is computed for them; the host reads lengths once.

The second graph reads what the first one made where it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.arrays import pad_to
from common.config.deployment import Bucket
from common.engines import Engine, hear_padding
from common.engines.cuda_graphs import MOST_SHAPES, Captured, Run
from common.stages.choose import KERNELS

TEXT_STEP, MEL_STEP = 32, 64  # without buckets lengths are filled up to multiples, where padding is not heard
TEXT_AXES = {"encoded": 1, "pitch": 2, "repeats": 1}
# What the first graph fetches from the host's memory, as part of it.
STAGED = ("symbols", "lengths", "speaker", "settings", "alpha")
# What goes from one graph to the other, and the counted frames.
SHARED = (*TEXT_AXES, "lengths", "frames")


def between(encoder: Engine, decoder: Engine) -> tuple[Callable[[Run], Run], Callable[[Run], Run]] | None:
    """What is computed between two engines by kernels of our own, where both engines are such."""
    if not encoder.backend == decoder.backend == KERNELS:
        return None
    module = importlib.import_module("trt_plugins.transformer.between")
    return module.regulating, module.expanding


class Halves:
    """`before` makes the first graph's function of the encoder's, and `behind` the second's of the decoder's.

    The first gives `encoded`, `lengths`, `repeats` int64 [B, T_text] and what else there is of SHARED; the
    second takes these, and `frames`, which counts 0, 1, ... T_mel - 1. With `may_pad` nothing behind the end
    of an item changes it.
    """

    def __init__(
        self,
        encoder: Engine,
        decoder: Engine,
        before: Callable[[Run], Run],
        behind: Callable[[Run], Run],
        may_pad: bool,
    ):
        self.encoder, self.decoder = encoder, decoder
        self._pads = may_pad or not hear_padding(encoder, decoder)
        dims = {**encoder.stage.dynamic_dims, **decoder.stage.dynamic_dims}
        self._longest = Bucket(dims["text"].max, dims["mel"].max)
        self._frames = torch.arange(dims["mel"].max, device=decoder.device)
        # By shapes and types; the one used last is the last.
        self._stages: dict[tuple, dict[str, Tensor]] = {}
        stream = torch.cuda.Stream(encoder.device)

        def of_encoder(inputs: Mapping[str, Tensor]) -> Run:
            run = before(encoder.alone(self._fixed(encoder, inputs["symbols"].shape[1])))
            return lambda given: run({n: v.to(encoder.device, non_blocking=True) for n, v in given.items()})

        def of_decoder(inputs: Mapping[str, Tensor]) -> Run:
            fixed = self._fixed(decoder, inputs["repeats"].shape[1], len(inputs["frames"]))
            return behind(decoder.alone(fixed))

        self.first: Callable[..., Any] = Captured(encoder.stage.full_name, of_encoder, stream, STAGED)
        self.second: Callable[..., Any] = Captured(decoder.stage.full_name, of_decoder, stream, SHARED)

    def encode(
        self, symbols: np.ndarray, lengths: np.ndarray, **others: np.ndarray
    ) -> dict[str, Tensor] | None:
        """What the first graph gives, of texts that are filled up; the next call overwrites it.

        None where these lengths have no graph.
        """
        batch, text = symbols.shape
        fixed = self._fixed(self.encoder, text)
        inputs = {"symbols": pad_to(symbols, (batch, fixed.text)), "lengths": lengths, **others}
        made = self.first(self._staged(inputs), own=True)
        if made is not None:
            self._count(self.encoder, fixed, batch, lengths.sum())
        return made

    def _staged(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """The inputs where the graph reads them. It has done so once somebody has what it gave."""
        key = tuple((value.shape, value.dtype) for value in inputs.values())
        staged = self._stages.pop(key, None)
        if staged is None:
            staged = {name: torch.as_tensor(value).pin_memory() for name, value in inputs.items()}
        self._stages[key] = staged
        if len(self._stages) > MOST_SHAPES:
            del self._stages[next(iter(self._stages))]
        for name, value in inputs.items():
            staged[name].numpy()[...] = value
        return staged

    def decode(self, encoded: Mapping[str, Tensor], mel_lengths: np.ndarray) -> dict[str, Tensor] | None:
        """What the second graph gives, of mels that are filled up; they fit. None: no graph."""
        text = encoded["repeats"].shape[1]
        fixed = self._fixed(self.decoder, text, int(mel_lengths.max()))
        given = {name: encoded[name] for name in SHARED if name in encoded}
        if fixed.text > text:  # a bucket for longer mels
            given = {name: _longer(tensor, TEXT_AXES.get(name), fixed.text) for name, tensor in given.items()}
        made = self.second({**given, "frames": self._frames[: fixed.mel]})
        if made is not None:
            self._count(self.decoder, fixed, len(mel_lengths), mel_lengths.sum())
            self.first.in_use()
        return made

    def capture(self, batch: int, text: int, mel: int, **others: np.ndarray) -> None:
        """Has what a batch of such lengths runs captured; `others` are as in `encode`."""
        made = self.encode(np.ones((batch, text), np.int64), np.full(batch, text), **others)
        if made is not None:
            self.decode(made, np.full(batch, mel))
            torch.cuda.synchronize(self.encoder.device)

    def _fixed(self, engine: Engine, text: int, mel: int = 0) -> Bucket:
        """The engine's bucket for so many symbols and frames, or lengths filled up where that may be."""
        if hasattr(engine, "buckets"):
            return engine.covering(text=text, mel=mel)
        if not self._pads:
            return Bucket(text, mel)
        text, mel = -(-text // TEXT_STEP) * TEXT_STEP, -(-mel // MEL_STEP) * MEL_STEP
        return Bucket(min(text, self._longest.text), min(mel, self._longest.mel))

    @staticmethod
    def _count(engine: Engine, fixed: Bucket, batch: int, valid: int) -> None:
        if hasattr(engine, "buckets"):
            engine.count_call(fixed, batch, valid)


def _longer(tensor: Tensor, axis: int | None, size: int) -> Tensor:
    shape = list(tensor.shape)
    if axis is not None:
        shape[axis] = size
    return pad_to(tensor, shape)
