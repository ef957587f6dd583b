"""Drives FastPitch's two stages; between them pace, pitch transforms and the length regulator's index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from melforge.common.arrays import (
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
from melforge.common.engines import Run
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls, speaker_id
from melforge.common.synthesis.acoustic import AcousticModel
from melforge.common.synthesis.regulation import Regulation, expanding_by_index
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource
from melforge.fastpitch.config import DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD, LONGEST_SYMBOL, FastPitchConfig

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
        names = source.settings.speakers
        if names and len(set(names)) != self.config.n_speakers:
            listed = ", ".join(names)
            raise InputError(
                f"{source.weights} has {self.config.n_speakers} speakers, so that speakers must be as many "
                f"different names, not {listed}"
            )
        mean, std = source.settings.pitch_mean, source.settings.pitch_std
        self.pitch_mean, self.pitch_std = (mean, std) if std else (DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD)
        self.two_graphs = self.make_two_graphs(Regulation(regulating, expanding), SHARED)

    @property
    def batch_safe(self) -> bool:
        return self.config.mask_padding

    def synthesise(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None
    ) -> AcousticOutput:
        each = self.controls_of_items(ids, controls)
        symbols, lengths = self._texts(ids, each)
        spoken = self._by_graphs(symbols, lengths, each) or self._by_engines(symbols, lengths, each)
        decoded, repeats, pitch = spoken
        return AcousticOutput(
            mel=decoded["mel"],
            mel_lengths=repeats.sum(1),
            durations=repeats,
            pitch=pitch * np.float32(self.pitch_std) + np.float32(self.pitch_mean),
            energy=decoded.get("energy"),
        )

    def predict_lengths(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None
    ) -> np.ndarray:
        each = self.controls_of_items(ids, controls)
        encoded, lengths = self._encode(*self._texts(ids, each), each)
        pace = to_device(self._settings(each), self.encoder.device)[:, :1]
        return to_numpy(round_durations(encoded["duration"], lengths, pace).sum(1))

    def _by_engines(self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]) -> Spoken:
        encoded, lengths_there = self._encode(symbols, lengths, controls)
        settings = to_device(self._settings(controls), self.encoder.device)
        pitch = changed_pitch(encoded["pitch"], settings)
        repeats = round_durations(encoded["duration"], lengths_there, settings[:, :1])
        index, mel_lengths = repeat_index(repeats)
        self.require_fit(to_numpy(mel_lengths), lengths, controls)
        decoded = self.decoder(
            encoded=encoded["encoded"],
            lengths=lengths_there,
            pitch=pitch,
            repeat_index=index,
            mel_lengths=mel_lengths,
        )
        return decoded, to_numpy(repeats), to_numpy(pitch)[:, 0]

    def _by_graphs(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]
    ) -> Spoken | None:
        """The same in two launches. None where these lengths have no graphs."""
        if self.two_graphs is None:
            return None
        encoded = self.two_graphs.encode(symbols, lengths, **self.graph_settings(controls))
        if encoded is None:
            return None
        text = symbols.shape[1]
        repeats, pitch = read_later(encoded["numbers"])()[:, :, :text]  # the one time that the host waits
        repeats = repeats.astype(np.int64)
        mel_lengths = repeats.sum(1)
        self.require_fit(mel_lengths, lengths, controls)
        decoded = self.two_graphs.decode(encoded, mel_lengths)
        if decoded is None:
            return None
        ends = {"mel": int(mel_lengths.max()), "energy": text}
        return {name: value[..., : ends[name]] for name, value in decoded.items()}, repeats, pitch

    def graph_settings(self, controls: Sequence[Controls]) -> dict[str, np.ndarray]:
        return {"settings": self._settings(controls), **self._speaker(controls)}

    def _texts(
        self, ids: Sequence[np.ndarray], controls: Sequence[Controls]
    ) -> tuple[np.ndarray, np.ndarray]:
        for one in controls:
            speaker_id(one.speaker, self.source.speakers or ("0",))
        return self.pad(ids)

    def _encode(
        self, symbols: np.ndarray, lengths: np.ndarray, controls: Sequence[Controls]
    ) -> tuple[dict[str, Array], Array]:
        """The encoder's outputs, and the texts' lengths on its device."""
        given = {"symbols": symbols, "lengths": lengths, **self._speaker(controls)}
        inputs = {name: to_device(value, self.encoder.device) for name, value in given.items()}
        return self.encoder(**inputs), inputs["lengths"]

    def _speaker(self, controls: Sequence[Controls]) -> dict[str, np.ndarray]:
        """What the encoder takes beside the symbols."""
        if self.config.n_speakers == 1:
            return {}
        each = [speaker_id(one.speaker, self.source.speakers) for one in controls]
        return {"speaker": np.array(each, np.int64)}

    def _settings(self, controls: Sequence[Controls]) -> np.ndarray:
        """Each item's pace, and factor and shift of its pitch, float32 [B, 3]."""
        return np.array([(one.pace, *self._transform(one)) for one in controls], np.float32)

    def _transform(self, controls: Controls) -> tuple[float, float]:
        """NVIDIA's transforms of the pitch, in NVIDIA's order: a factor and what is added, in deviations."""
        factor = 0.0 if controls.pitch_flatten else -1.0 if controls.pitch_invert else 1.0
        return factor * controls.pitch_amplify, controls.pitch_shift / self.pitch_std


def regulating(encode: Run) -> Run:
    """The encoder's run with what follows it: pitch and durations by `settings` [B, 3] (pace, factor, shift).

    `numbers` float32 [2, B, T] has durations and pitch for the host.
    """

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        settings, lengths = inputs["settings"], inputs["lengths"]
        encoded = encode({name: value for name, value in inputs.items() if name != "settings"})
        pitch = changed_pitch(encoded["pitch"], settings)
        repeats = round_durations(encoded["duration"], lengths, settings[:, :1])
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


def changed_pitch(pitch: Array, settings: Array) -> Array:
    """float32 [B, 1, T], times the factor plus the shift that `settings` [B, 3] have behind the pace."""
    return as_float32(pitch) * settings[:, 1, None, None] + settings[:, 2, None, None]


def round_durations(duration: Array, lengths: Array, pace: Array | float) -> Array:
    """Whole frames int64 [B, T], rounded half up; an item that would vanish gets a frame for each symbol.

    The pace is a number, or [B, 1].
    """
    inside = as_int64(length_mask(lengths, duration.shape[1]))
    repeats = round_half_up(duration.clip(0, LONGEST_SYMBOL) / pace) * inside
    vanished = as_int64(repeats.sum(1) == 0)
    return repeats + vanished[:, None] * inside
