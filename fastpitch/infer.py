"""Drives FastPitch's two stages; between them pace, pitch transforms and the length regulator's index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from common.arrays import (
    Array,
    as_float32,
    as_int64,
    length_mask,
    read_later,
    repeat_index,
    round_half_up,
    stack,
    to_device,
    to_numpy,
)
from common.engines import LengthRegulator, Run
from common.errors import InputError
from common.speech import AcousticOutput, Controls
from common.synthesis.acoustic import AcousticModel, expanding_by_index
from common.synthesis.stage_engines import StageEngines
from common.weights.voices import ModelSource
from fastpitch.config import DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD, LONGEST_SYMBOL, FastPitchConfig

# What goes from the encoder's CUDA graph to the decoder's, and the axis that is as long as the text.
SHARED = {"encoded": 1, "pitch": 2, "repeats": 1, "lengths": None}
# What a stage's outputs, the repeats int64 [B, T_text] and the pitch float32 [B, T_text] make of a batch.
Spoken = tuple[Mapping[str, Array], np.ndarray, np.ndarray]


class FastPitchAcoustic(AcousticModel[FastPitchConfig]):
    """Symbols to mel, with pitch that can be changed. Where engines are captured, each is one CUDA graph with
    what is computed for it.
    """

    def __init__(self, source: ModelSource, engines: StageEngines):
        super().__init__(source, engines, engines["encoder"], engines["decoder"])
        self.padding_id = self.config.padding_idx
        mean, std = source.settings.pitch_mean, source.settings.pitch_std
        self.pitch_mean, self.pitch_std = (mean, std) if std else (DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD)
        self.two_graphs = self.make_two_graphs(LengthRegulator(regulating, expanding), SHARED)

    @property
    def batch_safe(self) -> bool:
        return self.config.mask_padding

    def synthesise(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> AcousticOutput:
        controls = controls or Controls()
        symbols, lengths = self._texts(ids, controls)
        spoken = self._by_graphs(symbols, lengths, controls) or self._by_engines(symbols, lengths, controls)
        decoded, repeats, pitch = spoken
        return AcousticOutput(
            mel=decoded["mel"],
            mel_lengths=repeats.sum(1),
            durations=repeats,
            pitch=pitch * np.float32(self.pitch_std) + np.float32(self.pitch_mean),
            energy=decoded.get("energy"),
        )

    def predict_lengths(self, ids: Sequence[np.ndarray], controls: Controls | None = None) -> np.ndarray:
        controls = controls or Controls()
        encoded, lengths = self._encode(*self._texts(ids, controls), controls)
        return to_numpy(round_durations(encoded["duration"], lengths, controls.pace).sum(1))

    def _by_engines(self, symbols: np.ndarray, lengths: np.ndarray, controls: Controls) -> Spoken:
        encoded, lengths_there = self._encode(symbols, lengths, controls)
        amplify, shift = self._transform(controls)
        pitch = as_float32(encoded["pitch"]) * amplify + shift
        repeats = round_durations(encoded["duration"], lengths_there, controls.pace)
        index, mel_lengths = repeat_index(repeats)
        self.require_fit(to_numpy(mel_lengths), lengths, controls.pace)
        decoded = self.decoder(
            encoded=encoded["encoded"],
            lengths=lengths_there,
            pitch=pitch,
            repeat_index=index,
            mel_lengths=mel_lengths,
        )
        return decoded, to_numpy(repeats), to_numpy(pitch)[:, 0]

    def _by_graphs(self, symbols: np.ndarray, lengths: np.ndarray, controls: Controls) -> Spoken | None:
        """The same in two launches. None where these lengths have no graphs."""
        if self.two_graphs is None:
            return None
        encoded = self.two_graphs.encode(symbols, lengths, **self.graph_settings(len(symbols), controls))
        if encoded is None:
            return None
        text = symbols.shape[1]
        repeats, pitch = read_later(encoded["numbers"])()[:, :, :text]  # the one time that the host waits
        repeats = repeats.astype(np.int64)
        mel_lengths = repeats.sum(1)
        self.require_fit(mel_lengths, lengths, controls.pace)
        decoded = self.two_graphs.decode(encoded, mel_lengths)
        if decoded is None:
            return None
        ends = {"mel": int(mel_lengths.max()), "energy": text}
        return {name: value[..., : ends[name]] for name, value in decoded.items()}, repeats, pitch

    def graph_settings(self, batch: int, controls: Controls) -> dict[str, np.ndarray]:
        settings = np.array([controls.pace, *self._transform(controls)], np.float32)
        return {"settings": settings, **self._speaker(batch, controls)}

    def _texts(self, ids: Sequence[np.ndarray], controls: Controls) -> tuple[np.ndarray, np.ndarray]:
        if controls.speaker >= self.config.n_speakers:
            raise InputError(
                f"speaker {controls.speaker} does not exist: this model has {self.config.n_speakers} "
                f"(0 to {self.config.n_speakers - 1})"
            )
        return self.pad(ids)

    def _encode(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Controls
    ) -> tuple[dict[str, Array], Array]:
        """The encoder's outputs, and the texts' lengths on its device."""
        given = {"symbols": symbols, "lengths": lengths, **self._speaker(len(symbols), controls)}
        inputs = {name: to_device(value, self.encoder.device) for name, value in given.items()}
        return self.encoder(**inputs), inputs["lengths"]

    def _speaker(self, batch: int, controls: Controls) -> dict[str, np.ndarray]:
        """What the encoder takes beside the symbols."""
        return {"speaker": np.full(batch, controls.speaker, np.int64)} if self.config.n_speakers > 1 else {}

    def _transform(self, controls: Controls) -> tuple[float, float]:
        """NVIDIA's transforms of the pitch, in NVIDIA's order: a factor and what is added, in deviations."""
        factor = 0.0 if controls.pitch_flatten else -1.0 if controls.pitch_invert else 1.0
        return factor * controls.pitch_amplify, controls.pitch_shift / self.pitch_std


def regulating(encode: Run) -> Run:
    """The encoder's run with what follows it: pitch and durations by `settings` [3] (pace, factor, shift).

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
    """The decoder's run with what precedes it."""
    return expanding_by_index(decode, ("encoded", "lengths", "pitch"))


def round_durations(duration: Array, lengths: Array, pace: Array | float) -> Array:
    """Whole frames int64 [B, T], rounded half up; an item that would vanish gets a frame for each symbol."""
    inside = as_int64(length_mask(lengths, duration.shape[1]))
    repeats = round_half_up(duration.clip(0, LONGEST_SYMBOL) / pace) * inside
    vanished = as_int64(repeats.sum(1) == 0)
    return repeats + vanished[:, None] * inside
