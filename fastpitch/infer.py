"""Drives FastPitch's two stages; between them pace, pitch transforms and the length regulator's index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from common.arrays import Array, as_float32, as_int64, pad_batch, repeat_index, to_device, to_numpy, valid
from common.engines import Engine
from common.engines.buckets import count_miss
from common.speech import AcousticOutput, Controls, MelTooLong, check_ids
from common.voices import ModelSource

# Longer predictions are errors of the network; NVIDIA's scripts cut them here too.
LONGEST_SYMBOL = 75
# Of LJSpeech, in Hz, for checkpoints that were saved without their own.
DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD = 218.14, 67.24


class FastPitchAcoustic:
    """Symbols to mel, on whatever engines it is given."""

    controls = frozenset({"pace", "pitch_shift", "pitch_amplify", "pitch_flatten", "pitch_invert", "speaker"})

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        self.source = source
        self.config = source.config
        self.engines = engines
        self.encoder = engines["encoder"]
        self.decoder = engines["decoder"]
        mean, std = (float(source.extra.get(key) or 0) for key in ("pitch_mean", "pitch_std"))
        self.pitch_mean, self.pitch_std = (mean, std) if std else (DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD)
        dims = self.decoder.stage.dynamic_dims
        self.longest_text, self.longest_mel = dims["text"].max, dims["mel"].max
        self.largest_batch = dims["batch"].max

    @property
    def batch_safe(self) -> bool:
        """Whether an item of a padded batch equals the same item alone."""
        return self.config.mask_padding

    def synthesise(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> AcousticOutput:
        """One batch: each entry of `ids` int64 [T_text]."""
        controls = controls or Controls()
        encoded, lengths = self._encode(ids, controls)
        pitch = as_float32(transform_pitch(encoded["pitch"], controls, self.pitch_std))
        repeats = round_durations(encoded["duration"], lengths, controls.pace)
        index, mel_lengths = repeat_index(repeats)
        if index.shape[1] > self.longest_mel:
            count_miss(self.decoder)
            rows = np.flatnonzero(to_numpy(mel_lengths) > self.longest_mel)
            raise MelTooLong(
                f"at pace {controls.pace:g} a sentence of {max(len(ids[row]) for row in rows)} symbols has "
                f"{index.shape[1]} frames; this model goes up to {self.longest_mel}: raise the pace or "
                "shorten the sentence",
                rows.tolist(),
            )
        decoded = self.decoder(
            encoded=encoded["encoded"],
            lengths=lengths,
            pitch=pitch,
            repeat_index=index,
            mel_lengths=mel_lengths,
        )
        energy = decoded.get("energy")
        return AcousticOutput(
            mel=decoded["mel"],
            mel_lengths=to_numpy(mel_lengths),
            durations=to_numpy(repeats),
            pitch=to_numpy(pitch)[:, 0] * np.float32(self.pitch_std) + np.float32(self.pitch_mean),
            energy=None if energy is None else to_numpy(energy),
        )

    def predict_lengths(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> np.ndarray:
        """The mel frames int64 [B] that `synthesise` would make, without making them."""
        controls = controls or Controls()
        encoded, lengths = self._encode(ids, controls)
        return to_numpy(round_durations(encoded["duration"], lengths, controls.pace).sum(1))

    def _encode(self, ids: Sequence[np.ndarray], controls: Controls) -> tuple[dict[str, Array], Array]:
        """The encoder's outputs, and the texts' lengths."""
        self._check(ids, controls)
        symbols, lengths = pad_batch(ids, self.config.padding_idx)
        device = self.encoder.device
        symbols, lengths = to_device(symbols, device), to_device(lengths, device)
        speaker = {}
        if self.config.n_speakers > 1:
            speaker["speaker"] = to_device(np.full(len(ids), controls.speaker, np.int64), device)
        return self.encoder(symbols=symbols, lengths=lengths, **speaker), lengths

    def _check(self, ids: Sequence[np.ndarray], controls: Controls) -> None:
        if controls.speaker >= self.config.n_speakers:
            raise ValueError(
                f"speaker {controls.speaker} does not exist: this model has {self.config.n_speakers} "
                f"(0 to {self.config.n_speakers - 1})"
            )
        check_ids(ids, self.config.n_symbols, self.longest_text)


def transform_pitch(pitch: Array, controls: Controls, std: float) -> Array:
    """NVIDIA's transforms in NVIDIA's order, on pitch in deviations from the mean."""
    if controls.pitch_flatten:
        pitch = pitch * 0.0
    if controls.pitch_invert:
        pitch = pitch * -1.0
    return pitch * controls.pitch_amplify + controls.pitch_shift / std


def round_durations(duration: Array, lengths: Array, pace: float) -> Array:
    """Whole frames int64 [B, T], rounded half up; an item that would vanish gets a frame for each symbol."""
    inside = as_int64(valid(lengths, duration.shape[1]))
    # For positive numbers, cutting off the fraction of x + 0.5 rounds half up.
    repeats = as_int64(duration.clip(0, LONGEST_SYMBOL) / pace + 0.5) * inside
    vanished = as_int64(repeats.sum(1) == 0)
    return repeats + vanished[:, None] * inside
