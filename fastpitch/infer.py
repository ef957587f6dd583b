"""Drives FastPitch's two stages; between them pace, pitch transforms and the length regulator's index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from melforge.common.arrays import Array, as_float32, as_int64, length_mask, read_later, round_half_up, stack
from melforge.common.engines import Run
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls, speaker_id
from melforge.common.synthesis.parallel import ParallelModel
from melforge.common.synthesis.regulation import Regulation, expanding_by_index
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.voices import ModelSource
from melforge.fastpitch.config import DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD, LONGEST_SYMBOL, FastPitchConfig

# What goes from the encoder's CUDA graph to the decoder's, and the axis that is as long as the text.
SHARED = {"encoded": 1, "pitch": 2, "repeats": 1, "lengths": None}


class FastPitchAcoustic(ParallelModel[FastPitchConfig]):
    """Symbols to mel, with pitch that can be changed. Where engines are captured, each is one CUDA graph with
    what is computed for it.
    """

    def __init__(self, source: ModelSource, engines: StageEngines):
        mean, std = source.settings.pitch_mean, source.settings.pitch_std
        self.pitch_mean, self.pitch_std = (mean, std) if std else (DEFAULT_PITCH_MEAN, DEFAULT_PITCH_STD)
        names = source.settings.speakers
        if names and len(set(names)) != source.config.n_speakers:
            listed = ", ".join(names)
            raise InputError(
                f"{source.weights} has {source.config.n_speakers} speakers, so that speakers must be as many "
                f"different names, not {listed}"
            )
        both = engines["encoder"], engines["decoder"]
        super().__init__(source, engines, *both, Regulation(regulating, expanding), SHARED)
        self.padding_id = self.config.padding_idx

    @property
    def batch_safe(self) -> bool:
        return self.config.mask_padding

    def synthesise(
        self, ids: Sequence[np.ndarray], controls: Controls | Sequence[Controls] | None = None
    ) -> AcousticOutput:
        each = self.controls_of_items(ids, controls)
        symbols, lengths = self.pad(ids)
        rendered = self.render(symbols, lengths, each)
        assert rendered.pitch is not None
        mel_lengths, energy = rendered.repeats.sum(1), rendered.decoded.get("energy")
        return AcousticOutput(
            mel=rendered.decoded["mel"][:, :, : int(mel_lengths.max())],
            mel_lengths=mel_lengths,
            durations=rendered.repeats,
            pitch=rendered.pitch * np.float32(self.pitch_std) + np.float32(self.pitch_mean),
            energy=None if energy is None else energy[:, : symbols.shape[1]],
        )

    def read(self, encoded: Mapping[str, Array], text: int) -> tuple[np.ndarray, np.ndarray]:
        repeats, pitch = read_later(encoded["numbers"])()[:, :, :text]
        return repeats.astype(np.int64), pitch

    def settings_of(self, controls: Sequence[Controls]) -> dict[str, np.ndarray]:
        """`settings` float32 [B, 3]: pace, and factor and shift of the pitch."""
        settings = np.array([(one.pace, *self._transform(one)) for one in controls], np.float32)
        speakers = [speaker_id(one.speaker, self.source.speakers or ("0",)) for one in controls]
        if self.config.n_speakers == 1:
            return {"settings": settings}
        return {"settings": settings, "speaker": np.array(speakers, np.int64)}

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
            "lengths": lengths,
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
