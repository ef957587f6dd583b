"""Runs Tacotron 2's decoder: as a loop in one call, or step by step; and draws the prenet's noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from melforge.common.arrays import (
    Array,
    concatenate,
    contiguous,
    pad_to,
    read_later,
    stack,
    to_device,
    to_numpy,
)
from melforge.common.engines import TEXT_STEP, Engine, as_capturable
from melforge.common.noise import Draw, draw
from melforge.common.synthesis.driver import bucket_for
from melforge.tacotron2.config import GRAPH_STEPS, PRENET_LAYERS, STOP_CHECK_STEPS, Tacotron2Config
from melforge.tacotron2.state import state_tensors

# Steps for which the stepwise form draws noise at a time; a multiple of the steps between its checks.
NOISE_BLOCK = 64
# Rows of the prenet's noise, one for each step -> rows of the outputs to keep.
RunSteps = Callable[[Array], Mapping[str, Array]]


class Noise(Protocol):
    """Where the decoder takes the prenet's noise from."""

    def rows(self, steps: int) -> Array:
        """The noise of the next steps, float32 [steps, 2, B, P]."""
        ...


class SeededNoise:
    """Uniform noise; an item's depends on its seed alone, whatever is beside it in the batch."""

    def __init__(self, seeds: Sequence[int], channels: int, draw: Draw = draw):
        self._seeds, self._channels, self._draw = tuple(seeds), channels, draw
        self._drawn = 0  # numbers of each item

    def rows(self, steps: int) -> Array:
        count = steps * PRENET_LAYERS * self._channels
        drawn = self._draw("uniform", self._seeds, self._drawn, count)
        self._drawn += count
        drawn = drawn.reshape(len(self._seeds), steps, PRENET_LAYERS, self._channels)
        return contiguous(drawn.swapaxes(0, 1).swapaxes(1, 2))


class NoNoise:
    """What stands for the noise where there is no dropout."""

    def __init__(self, batch: int, channels: int):
        self._shape = (PRENET_LAYERS, batch, channels)

    def rows(self, steps: int) -> np.ndarray:
        return np.zeros((steps, *self._shape), np.float32)


@dataclass(frozen=True, eq=False)
class Decoded:
    """What both forms of the decoder give. An item goes on behind its length while another one needs it."""

    mel: Array  # float32 [B, n_mels, T], before the postnet
    mel_lengths: np.ndarray  # int64 [B], without the step at which the gate fired
    gate: np.ndarray  # float32 [B, steps], logits
    alignment: np.ndarray  # float32 [B, steps, T_text]
    stopped: np.ndarray  # bool [B], False: the step limit came first


def decode(
    engine: Engine,
    config: Tacotron2Config,
    encoded: Mapping[str, Array],
    lengths: Array,
    noise: Noise,
    dropout: float,
    threshold: float,
    limit: int,
) -> Decoded:
    """All steps by one call of stage "decoder_loop", or step by step with "decoder_iter".

    `encoded` holds the encoder's outputs.
    """
    fixed = {name: to_device(encoded[name], engine.device) for name in ("memory", "processed_memory")}
    texts = fixed["memory"].shape[1]
    text = padded_text(engine, texts)
    fixed = {name: pad_to(array, (len(array), text, array.shape[2])) for name, array in fixed.items()}
    fixed["lengths"] = to_device(lengths, engine.device)
    fixed["prenet_dropout"] = to_device(np.full(1, dropout, np.float32), engine.device)
    if engine.stage.name == "decoder_iter":
        return _decode_steps(engine, config, fixed, noise, threshold, limit, texts)
    fixed["gate_threshold"] = to_device(np.full(1, threshold, np.float32), engine.device)
    out = engine(**fixed, prenet_noise=to_device(noise.rows(limit), engine.device))
    rest = {name: to_numpy(out[name]) for name in ("mel_lengths", "gate", "alignment", "stopped")}
    rest["alignment"] = rest["alignment"][:, :, :texts]
    return Decoded(mel=out["mel"], **rest)


def padded_text(engine: Engine, text: int) -> int:
    """The symbols that a text of so many is padded to, once for all steps."""
    if engine.stage.name == "decoder_iter" and engine.buckets:
        return bucket_for(engine, text=text).text
    # A graph of several steps is kept for each of few lengths.
    step = TEXT_STEP if engine.can_be_repeated else engine.text_step
    return min(-(-text // step) * step, engine.stage.dynamic_dims["text"].max)


def _decode_steps(
    engine: Engine,
    config: Tacotron2Config,
    fixed: dict[str, Array],
    noise: Noise,
    threshold: float,
    limit: int,
    texts: int,
) -> Decoded:
    """A step's outputs are the next one's inputs; `fixed` are the inputs that stay, `texts` symbols long
    without padding.
    """
    batch, text, _ = fixed["memory"].shape
    state = {
        tensor.name: to_device(np.zeros((batch, size), np.float32), engine.device)
        for tensor in state_tensors(config)
        for size in [tensor.dims[1] if isinstance(tensor.dims[1], int) else text]
    }
    kept = ("gate", "next_frame", "next_attention_weights")
    if engine.can_be_repeated:
        block, ahead = GRAPH_STEPS, 1
        run_steps: RunSteps = as_capturable(engine).repeated(fixed, state, "prenet_noise", block, kept)
    else:
        block, ahead = 1 if engine.device == "cpu" else STOP_CHECK_STEPS, 0
        run_steps = StepByStep(engine, fixed, state, kept)
    rows: dict[str, list[Array]] = {name: [] for name in kept}
    unread: list[Callable[[], np.ndarray]] = []
    going, steps = np.ones(batch, bool), np.zeros(batch, np.int64)
    drawn = noise.rows(min(NOISE_BLOCK, limit))
    for start in range(0, limit, block):
        if start and start % NOISE_BLOCK == 0:
            drawn = noise.rows(min(NOISE_BLOCK, limit - start))
        outputs = run_steps(drawn[start % NOISE_BLOCK :][:block])
        for name, values in outputs.items():
            rows[name].append(values)
        unread.append(read_later(outputs["gate"]))
        last = start + block >= limit
        while len(unread) > (0 if last else ahead):
            for gate in unread.pop(0)():
                going &= sigmoid(gate) <= threshold
                steps += going
        if not going.any() and not config.decoder_no_early_stopping:
            break
    frames, gates, weights = (
        concatenate(rows[name]) for name in ("next_frame", "gate", "next_attention_weights")
    )
    if not config.decoder_no_early_stopping:  # without the steps behind the last stop
        made = min(len(frames), int(steps.max()) + 1)
        frames, gates, weights = frames[:made], gates[:made], weights[:made]
    mel = frames.swapaxes(0, 1).reshape(batch, -1, config.n_mel_channels)
    return Decoded(
        mel=mel.swapaxes(1, 2),
        mel_lengths=steps * config.n_frames_per_step,
        gate=to_numpy(gates.swapaxes(0, 1)),
        alignment=to_numpy(weights.swapaxes(0, 1))[:, :, :texts],
        stopped=~going,
    )


class StepByStep:
    """A stage whose outputs `next_...` are its next call's inputs, called for each row of the noise."""

    def __init__(
        self, engine: Engine, fixed: Mapping[str, Array], state: Mapping[str, Array], kept: Sequence[str]
    ):
        self._engine, self._fixed, self._state, self._kept = engine, fixed, dict(state), kept

    def __call__(self, noise: Array) -> dict[str, Array]:
        """noise (n, 2, B, P) -> the outputs to keep, each with a row for every step."""
        rows = []
        for row in to_device(noise, self._engine.device):
            out = self._engine(**self._fixed, **self._state, prenet_noise=row)
            self._state = {name: out[f"next_{name}"] for name in self._state}
            rows.append(out)
        return {name: stack([out[name] for out in rows]) for name in self._kept}


def sigmoid(logits: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp then gives infinity, and 1 / infinity is right
        return 1 / (1 + np.exp(-logits))
