"""Drives FastPitch's two stages; between them pace, pitch transforms and the length regulator's index."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from common.arrays import (
    Array,
    as_float32,
    as_int64,
    pad_batch,
    read_later,
    repeat_index,
    stack,
    to_device,
    to_numpy,
    valid,
)
from common.config.deployment import Bucket
from common.engines import Engine
from common.engines.buckets import count_miss
from common.errors import InputError
from common.speech import AcousticOutput, Controls, MelTooLong, check_ids
from common.weights.voices import ModelSource
from fastpitch.config import DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD, LONGEST_SYMBOL

# Named tensors in and out.
Run = Callable[[Mapping[str, Array]], dict[str, Array]]


class FastPitchAcoustic:
    """Symbols to mel, on whatever engines it is given. Where these say that they capture, each is one CUDA
    graph with what is computed for it.
    """

    controls = frozenset({"pace", "pitch_shift", "pitch_amplify", "pitch_flatten", "pitch_invert", "speaker"})

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        self.source = source
        self.config = source.config
        self.engines = engines
        self.encoder = engines["encoder"]
        self.decoder = engines["decoder"]
        mean, std = source.settings.pitch_mean, source.settings.pitch_std
        self.pitch_mean, self.pitch_std = (mean, std) if std else (DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD)
        dims = self.decoder.stage.dynamic_dims
        self.longest_text, self.longest_mel = dims["text"].max, dims["mel"].max
        self.largest_batch = dims["batch"].max
        self.captured = None
        if getattr(engines, "captures", False) and hasattr(self.encoder, "alone"):
            halves = importlib.import_module("common.synthesis.two_graphs")
            between = halves.between(self.encoder, self.decoder) or (regulating, expanding)
            self.captured = halves.Halves(self.encoder, self.decoder, *between, self.batch_safe)

    @property
    def batch_safe(self) -> bool:
        """Whether an item of a padded batch equals the same item alone."""
        return self.config.mask_padding

    def synthesise(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> AcousticOutput:
        """One batch: each entry of `ids` int64 [T_text]."""
        controls = controls or Controls()
        self._check(ids, controls)
        made = self._in_halves(ids, controls) if self.captured else None
        if made:
            return made
        encoded, lengths = self._encode(ids, controls)
        amplify, shift = self._transform(controls)
        pitch = as_float32(encoded["pitch"]) * amplify + shift
        repeats = round_durations(encoded["duration"], lengths, controls.pace)
        index, mel_lengths = repeat_index(repeats)
        self._require_place(to_numpy(mel_lengths), ids, controls)
        decoded = self.decoder(
            encoded=encoded["encoded"],
            lengths=lengths,
            pitch=pitch,
            repeat_index=index,
            mel_lengths=mel_lengths,
        )
        return self._output(decoded, to_numpy(repeats), to_numpy(pitch)[:, 0])

    def _in_halves(self, ids: Sequence[np.ndarray], controls: Controls) -> AcousticOutput | None:
        """The same in two launches. None: they have no graph."""
        symbols, lengths = pad_batch(ids, self.config.padding_idx)
        settings = np.array([controls.pace, *self._transform(controls)], np.float32)
        made = self.captured.encode(symbols, lengths, settings=settings, **self._speaker(ids, controls))
        if made is None:
            return None
        text = symbols.shape[1]
        repeats, pitch = read_later(made["numbers"])()[:, :, :text]  # the one time that the host waits
        repeats = repeats.astype(np.int64)
        mel_lengths = repeats.sum(1)
        self._require_place(mel_lengths, ids, controls)
        decoded = self.captured.decode(made, mel_lengths)
        if decoded is None:
            return None
        ends = {"mel": int(mel_lengths.max()), "energy": text}
        decoded = {name: value[..., : ends[name]] for name, value in decoded.items()}
        return self._output(decoded, repeats, pitch)

    def capture(self, bucket: Bucket | None, batch: int) -> None:
        """Has what a bucket of such a batch runs captured, or what a text of usual length does."""
        dims = {**self.encoder.stage.dynamic_dims, **self.decoder.stage.dynamic_dims}
        text, mel = (bucket.text, bucket.mel) if bucket else (dims["text"].typical, dims["mel"].typical)
        settings = np.array([1.0, 1.0, 0.0], np.float32)
        speaker = self._speaker(range(batch), Controls())
        self.captured.capture(batch, text, mel, settings=settings, **speaker)

    def _output(self, decoded: Mapping[str, Array], repeats: np.ndarray, pitch: np.ndarray) -> AcousticOutput:
        """repeats int64 [B, N] and pitch [B, N] in deviations from the mean."""
        return AcousticOutput(
            mel=decoded["mel"],
            mel_lengths=repeats.sum(1),
            durations=repeats,
            pitch=pitch * np.float32(self.pitch_std) + np.float32(self.pitch_mean),
            energy=decoded.get("energy"),
        )

    def _require_place(self, mel_lengths: np.ndarray, ids: Sequence[np.ndarray], controls: Controls) -> None:
        rows = np.flatnonzero(mel_lengths > self.longest_mel)
        if len(rows):
            count_miss(self.decoder)
            raise MelTooLong(
                f"at pace {controls.pace:g} a sentence of {max(len(ids[row]) for row in rows)} symbols has "
                f"{mel_lengths.max()} frames; this model goes up to {self.longest_mel}: raise the pace or "
                "shorten the sentence",
                rows.tolist(),
            )

    def predict_lengths(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> np.ndarray:
        """The mel frames int64 [B] that `synthesise` would make, without making them."""
        controls = controls or Controls()
        self._check(ids, controls)
        encoded, lengths = self._encode(ids, controls)
        return to_numpy(round_durations(encoded["duration"], lengths, controls.pace).sum(1))

    def _encode(self, ids: Sequence[np.ndarray], controls: Controls) -> tuple[dict[str, Array], Array]:
        """The encoder's outputs, and the texts' lengths."""
        symbols, lengths = pad_batch(ids, self.config.padding_idx)
        device = self.encoder.device
        symbols, lengths = to_device(symbols, device), to_device(lengths, device)
        speaker = {name: to_device(value, device) for name, value in self._speaker(ids, controls).items()}
        return self.encoder(symbols=symbols, lengths=lengths, **speaker), lengths

    def _speaker(self, ids: Sequence, controls: Controls) -> dict[str, np.ndarray]:
        """What the encoder takes beside the symbols."""
        if self.config.n_speakers == 1:
            return {}
        return {"speaker": np.full(len(ids), controls.speaker, np.int64)}

    def _transform(self, controls: Controls) -> tuple[float, float]:
        """NVIDIA's transforms of the pitch, in NVIDIA's order: a factor and what is added, in deviations."""
        factor = 0.0 if controls.pitch_flatten else -1.0 if controls.pitch_invert else 1.0
        return factor * controls.pitch_amplify, controls.pitch_shift / self.pitch_std

    def _check(self, ids: Sequence[np.ndarray], controls: Controls) -> None:
        if controls.speaker >= self.config.n_speakers:
            raise InputError(
                f"speaker {controls.speaker} does not exist: this model has {self.config.n_speakers} "
                f"(0 to {self.config.n_speakers - 1})"
            )
        check_ids(ids, self.config.n_symbols, self.longest_text)


def regulating(encode: Run) -> Run:
    """The encoder with what follows it: pitch and durations as `settings` [3] (pace, factor, shift) say.

    `numbers` float32 [2, B, T] has durations and pitch for the host.
    """

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        pace, factor, shift = inputs["settings"]
        lengths = inputs["lengths"]
        encoded = encode({name: value for name, value in inputs.items() if name != "settings"})
        pitch = as_float32(encoded["pitch"]) * factor + shift
        repeats = round_durations(encoded["duration"], lengths, pace)
        return {
            "encoded": encoded["encoded"],
            "lengths": lengths.clone(),
            "pitch": pitch,
            "repeats": repeats,
            "numbers": stack([as_float32(repeats), pitch[:, 0]]),
        }

    return run


def expanding(decode: Run) -> Run:
    """The decoder with what precedes it: each frame's symbol."""

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        index, mel_lengths = repeat_index(inputs["repeats"], len(inputs["frames"]))
        given = {name: inputs[name] for name in ("encoded", "lengths", "pitch")}
        return decode({**given, "repeat_index": index, "mel_lengths": mel_lengths})

    return run


def round_durations(duration: Array, lengths: Array, pace: Array | float) -> Array:
    """Whole frames int64 [B, T], rounded half up; an item that would vanish gets a frame for each symbol."""
    inside = as_int64(valid(lengths, duration.shape[1]))
    # For positive numbers, cutting off the fraction of x + 0.5 rounds half up.
    repeats = as_int64(duration.clip(0, LONGEST_SYMBOL) / pace + 0.5) * inside
    vanished = as_int64(repeats.sum(1) == 0)
    return repeats + vanished[:, None] * inside
