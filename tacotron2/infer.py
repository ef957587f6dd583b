"""Drives Tacotron 2's stages: symbols to memory, the decoder as a loop or step by step, the postnet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from common.arrays import Array, concatenate, pad_batch, pad_to, read_later, stack, to_device, to_numpy
from common.engines import Engine
from common.errors import InputError
from common.speech import AcousticOutput, Controls, check_ids
from common.weights.voices import ModelSource
from tacotron2.attention import attention_problem
from tacotron2.config import GRAPH_STEPS, PRENET_DROPOUT, PRENET_LAYERS, STOP_CHECK_STEPS, Tacotron2Config
from tacotron2.stages import longest_steps, state_tensors

# Steps for which the stepwise form draws noise at a time; a multiple of the steps between its checks.
NOISE_BLOCK = 64
TEXT_STEP = 32
SHARPENED_BANDS = 2  # on either side: harmonics of a voice stand two to four bands apart


class Noise(Protocol):
    """Where the decoder takes the prenet's noise from."""

    def rows(self, steps: int) -> np.ndarray:
        """The noise of the next steps, float32 [steps, 2, B, P]."""


class SeededNoise:
    """Uniform noise; an item's depends on its seed alone, whatever is beside it in the batch."""

    def __init__(self, seeds: Sequence[int], channels: int):
        self.seeds, self.channels = tuple(seeds), channels
        self._generators = [np.random.default_rng(seed) for seed in seeds]

    def rows(self, steps: int) -> np.ndarray:
        shape = (steps, PRENET_LAYERS, self.channels)
        return np.stack([generator.random(shape, np.float32) for generator in self._generators], axis=2)


@lru_cache(maxsize=4)
def kept_noise(seeds: tuple[int, ...], channels: int, steps: int, device: str) -> Array:
    """The noise of the first steps: drawing it takes a third of the decoder's time on a GPU."""
    return to_device(SeededNoise(seeds, channels).rows(steps), device)


def first_rows(noise: Noise, steps: int, device: str) -> Array:
    """The noise of the first steps, on a device."""
    if isinstance(noise, SeededNoise):
        return kept_noise(noise.seeds, noise.channels, steps, device)
    return to_device(noise.rows(steps), device)


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


class Tacotron2Acoustic:
    """Symbols to mel, on whatever engines it is given: with `decoder_loop` or with `decoder_iter`."""

    controls = frozenset({"dropout", "gate_threshold", "sharpness", "step_limit", "seed"})

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        self.source = source
        self.config = source.config
        self.engines = engines
        self.encoder = engines["encoder"]
        self.decoder = engines["decoder_loop"] if "decoder_loop" in engines else engines["decoder_iter"]
        self.postnet = engines["postnet"]
        dims = self.encoder.stage.dynamic_dims
        self.longest_text, self.largest_batch = dims["text"].max, dims["batch"].max
        self.longest_steps = longest_steps(self.config)
        self.longest_mel = self.postnet.stage.dynamic_dims["mel"].max  # at a time
        self.postnet_context = self.config.postnet_n_convolutions * (self.config.postnet_kernel_size // 2)
        shortest = 1 + 2 * self.postnet_context
        if self.longest_mel < shortest:
            raise InputError(
                f"tacotron2: buckets of up to {self.longest_mel} frames are too short, since the postnet "
                f"hears {self.postnet_context} on each side: at least one bucket must have {shortest}"
            )
        self.sharpness = source.settings.sharpness
        self.step_seconds = self.config.n_frames_per_step * source.mel.hop_length / source.mel.sampling_rate

    @property
    def batch_safe(self) -> bool:
        """Whether an item of a padded batch equals the same item alone."""
        return self.config.mask_text_padding

    def synthesise(
        self,
        ids: Sequence[np.ndarray],
        controls: Controls | None = None,
        seeds: Sequence[int] | None = None,
    ) -> AcousticOutput:
        """One batch: each entry of `ids` int64 [T_text], its noise from the controls' seed or from its own.

        An item that stops at its first step keeps that step's frames, so that there is something to vocode.
        """
        controls = controls or Controls()
        seeds = [controls.seed] * len(ids) if seeds is None else seeds
        limit = controls.step_limit or self.config.max_decoder_steps
        self._check(ids, seeds, limit)
        symbols, lengths = (to_device(x, self.encoder.device) for x in pad_batch(ids))
        encoded = self.encoder(symbols=symbols, lengths=lengths)
        channels = self.config.prenet_dim
        noise = SeededNoise(seeds, channels) if controls.dropout else NoNoise(len(ids), channels)
        dropout = PRENET_DROPOUT if controls.dropout else 0.0
        threshold = controls.gate_threshold
        threshold = self.config.gate_threshold if threshold is None else threshold
        decode = decode_loop if self.decoder.stage.name == "decoder_loop" else decode_steps
        decoded = decode(self.decoder, self.config, encoded, lengths, noise, dropout, threshold, limit)
        sharpness = self.sharpness if controls.sharpness is None else controls.sharpness
        mel = sharpen(self._refine(decoded), sharpness)
        per_step = self.config.n_frames_per_step
        mel_lengths = np.maximum(decoded.mel_lengths, per_step)
        steps = mel_lengths // per_step
        alignment = decoded.alignment[:, : int(steps.max())]
        return AcousticOutput(
            mel=mel[:, :, : int(mel_lengths.max())],
            mel_lengths=mel_lengths,
            durations=durations(alignment, steps) * per_step,
            alignment=alignment,
            alignment_lengths=steps,
            problems=tuple(self._problem(decoded, row, len(item)) for row, item in enumerate(ids)),
        )

    def _refine(self, decoded: Decoded) -> Array:
        """The postnet over the batch's frames as published, or over each item's own, its stop included.

        What the decoder makes may be longer than the postnet's largest bucket: it goes in pieces then, each
        with the frames around it that it hears.
        """
        before = to_device(decoded.mel, self.postnet.device)
        ends = decoded.mel_lengths + decoded.stopped * self.config.n_frames_per_step
        frames, context = before.shape[2], self.postnet_context
        size = frames if frames <= self.longest_mel else self.longest_mel - 2 * context
        pieces = []
        for start in range(0, frames, size):
            left, right = max(0, start - context), min(frames, start + size + context)
            inputs = {"mel": before[:, :, left:right]}
            if self.batch_safe:
                inputs["lengths"] = to_device((ends - left).clip(0, right - left), self.postnet.device)
            refined = self.postnet(**inputs)["refined"]
            pieces.append(refined[:, :, start - left : min(start + size, frames) - left])
        return concatenate(pieces, axis=2)

    def _problem(self, decoded: Decoded, row: int, symbols: int) -> str:
        steps = int(decoded.mel_lengths[row]) // self.config.n_frames_per_step
        if not steps:
            return "the speech stopped at its first step: nothing was said"
        alignment = decoded.alignment[row, :steps, :symbols]
        return attention_problem(alignment, bool(decoded.stopped[row]), self.step_seconds)

    def _check(self, ids: Sequence[np.ndarray], seeds: Sequence[int], limit: int) -> None:
        if not len(ids):
            raise ValueError("there is no utterance to speak")
        if len(ids) > self.largest_batch:
            raise InputError(f"{len(ids)} utterances at a time; this model goes up to {self.largest_batch}")
        if len(seeds) != len(ids):
            raise ValueError(f"{len(seeds)} seeds for {len(ids)} utterances: each needs one")
        if limit > self.longest_steps:
            raise InputError(f"a step limit of {limit}; this model goes up to {self.longest_steps}")
        check_ids(ids, self.config.n_symbols, self.longest_text)


def sharpen(mel: Array, amount: float) -> Array:
    """mel [B, n_mels, T] with `amount` times what sets each band apart from the mean of those around it.

    Squared and absolute errors teach a network to answer with averages, which blur the harmonics most. The
    published network is not sharpened; a voice that was trained briefly gains by some (its `sharpness`).
    """
    if not amount:
        return mel
    bands = np.arange(mel.shape[1])
    offsets = range(-SHARPENED_BANDS, SHARPENED_BANDS + 1)
    around = sum(mel[:, (bands + offset).clip(0, bands[-1])] for offset in offsets) / len(offsets)
    return mel + (mel - around) * amount


def decode_loop(
    engine: Engine,
    config: Tacotron2Config,
    encoded: Mapping[str, Array],
    lengths: Array,
    noise: Noise,
    dropout: float,
    threshold: float,
    limit: int,
) -> Decoded:
    """The whole decoder in one call of stage "decoder_loop"; `encoded` holds the encoder's outputs."""
    out = engine(
        **{name: to_device(encoded[name], engine.device) for name in ("memory", "processed_memory")},
        lengths=to_device(lengths, engine.device),
        prenet_noise=first_rows(noise, limit, engine.device),
        prenet_dropout=to_device(np.full(1, dropout, np.float32), engine.device),
        gate_threshold=to_device(np.full(1, threshold, np.float32), engine.device),
    )
    rest = {name: to_numpy(out[name]) for name in ("mel_lengths", "gate", "alignment", "stopped")}
    return Decoded(mel=out["mel"], **rest)


def decode_steps(
    engine: Engine,
    config: Tacotron2Config,
    encoded: Mapping[str, Array],
    lengths: Array,
    noise: Noise,
    dropout: float,
    threshold: float,
    limit: int,
) -> Decoded:
    """The same, step by step with stage "decoder_iter", whose outputs are the next step's inputs."""
    on_trt = getattr(engine, "backend", None) == "trt"
    batch = len(lengths)
    texts = encoded["memory"].shape[1]
    fixed = {name: to_device(encoded[name], engine.device) for name in ("memory", "processed_memory")}
    fixed["lengths"] = to_device(lengths, engine.device)
    fixed["prenet_dropout"] = to_device(np.full(1, dropout, np.float32), engine.device)
    # Padded to its bucket once, not at every step.
    covering = getattr(engine, "covering", None)
    text = covering(text=texts).text if covering else texts
    if on_trt and not covering:  # a graph of its steps for each of few lengths
        text = min(-(-texts // TEXT_STEP) * TEXT_STEP, engine.stage.dynamic_dims["text"].max)
    for name in ("memory", "processed_memory"):
        fixed[name] = pad_to(fixed[name], (batch, text, fixed[name].shape[2]))
    state = {
        tensor.name: to_device(np.zeros((batch, size), np.float32), engine.device)
        for tensor in state_tensors(config)
        for size in [tensor.dims[1] if isinstance(tensor.dims[1], int) else text]
    }
    kept = ("gate", "next_frame", "next_attention_weights")
    if on_trt:
        block, ahead = GRAPH_STEPS, 1
        steps_of = engine.repeated(fixed, state, "prenet_noise", block, kept)
    else:
        block, ahead = 1 if engine.device == "cpu" else STOP_CHECK_STEPS, 0
        steps_of = StepByStep(engine, fixed, state, kept)
    rows: dict[str, list[Array]] = {name: [] for name in kept}
    unread: list[Callable[[], np.ndarray]] = []
    going, steps = np.ones(batch, bool), np.zeros(batch, np.int64)
    for start in range(0, limit, block):
        if start % NOISE_BLOCK == 0:
            drawn = noise.rows(min(NOISE_BLOCK, limit - start))
        made = steps_of(drawn[start % NOISE_BLOCK :][:block])
        for name, values in made.items():
            rows[name].append(values)
        unread.append(read_later(made["gate"]))
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

    def __call__(self, noise: np.ndarray) -> dict[str, Array]:
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


def durations(alignment: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Alignment (B, S, N) -> int64 (B, N): of an item's steps, how many looked at each symbol most."""
    counts = np.zeros((len(alignment), alignment.shape[2]), np.int64)
    for count, path, made in zip(counts, alignment.argmax(axis=2), steps, strict=True):
        count += np.bincount(path[:made], minlength=len(count))
    return counts
