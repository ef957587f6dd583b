"""Drives FastPitch's two stages; between them pace, pitch transforms and the length regulator's index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from melforge.common.arrays import Array, as_float32, as_int64, length_mask, read_later, round_half_up, stack
from melforge.common.engines import Run
from melforge.common.errors import InputError
from melforge.common.speech import AcousticOutput, Controls, speaker_shares
from melforge.common.synthesis.parallel import ParallelModel, paced, settings_of_symbols
from melforge.common.synthesis.regulation import Regulation, expanding_by_index
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.text.style import PITCH, PLAIN, Style
from melforge.common.weights.voices import ModelSource
from melforge.fastpitch.config import DEFAULT_PITCH, LONGEST_SYMBOL, FastPitchConfig


class FastPitchAcoustic(ParallelModel[FastPitchConfig]):
    """Symbols to mel, with pitch that can be changed. Where engines are captured, each is one CUDA graph with
    what is computed for it.
    """

    by_symbol = frozenset({"rate", *PITCH})

    def __init__(self, source: ModelSource, engines: StageEngines):
        names, count = source.settings.speakers, source.config.n_speakers
        if names and len(set(names)) != count:
            listed = ", ".join(names)
            raise InputError(
                f"{source.weights} has {count} speakers, so that speakers must be as many different names, "
                f"not {listed}"
            )
        self.pitch_units = pitch_units(source)
        both = engines["encoder"], engines["decoder"]
        super().__init__(source, engines, *both, Regulation(regulating, expanding))
        self.padding_id = self.config.padding_idx

    @property
    def batch_safe(self) -> bool:
        return self.config.mask_padding

    def synthesise(
        self,
        ids: Sequence[np.ndarray],
        controls: Controls | Sequence[Controls] | None = None,
        styles: Sequence[Sequence[Style]] = (),
    ) -> AcousticOutput:
        each = self.controls_of_items(ids, controls)
        symbols, lengths = self.pad(ids)
        rendered = self.render(symbols, lengths, each, styles)
        assert rendered.pitch is not None
        means, deviations = self._units_of(each).T.astype(np.float32)
        return AcousticOutput(
            mel=rendered.decoded["mel"][:, :, : int(rendered.mel_lengths.max())],
            mel_lengths=rendered.mel_lengths,
            durations=rendered.repeats,
            pitch=rendered.pitch * deviations[:, None] + means[:, None],
        )

    def read(self, encoded: Mapping[str, Array], text: int) -> tuple[np.ndarray, np.ndarray]:
        repeats, pitch = read_later(encoded["numbers"])()[:, :, :text]
        return repeats.astype(np.int64), pitch

    def settings_of(
        self, controls: Sequence[Controls], text: int, styles: Sequence[Sequence[Style]] = ()
    ) -> dict[str, np.ndarray]:
        """`settings` float32 [B, 3, text]: pace, and factor and shift of the pitch."""
        units = self._units_of(controls)

        def numbers(row: int, style: Style) -> tuple[float, float, float]:
            mean, deviation = units[row]
            return paced(controls[row], style), *transform(controls[row], mean, deviation, style)

        settings = {"settings": settings_of_symbols(numbers, len(controls), text, styles)}
        return settings if self.config.n_speakers == 1 else {**settings, "speaker": self.shares(controls)}

    def _units_of(self, controls: Sequence[Controls]) -> np.ndarray:
        """Mean and deviation of each item's pitch in Hz, float64 [B, 2]."""
        if not any(one.speaker for one in controls):
            return np.repeat(self.pitch_units[:, :1].T, len(controls), axis=0)
        return self.shares(controls) @ self.pitch_units.T

    def shares(self, controls: Sequence[Controls]) -> np.ndarray:
        """Each speaker's share of each item's voice, float32 [B, speakers]."""
        if self.config.n_speakers == 1 and not any(one.speaker for one in controls):
            return np.ones((len(controls), 1), np.float32)
        return np.stack([speaker_shares(one.speaker, self.source.speakers or ("0",)) for one in controls])


def pitch_units(source: ModelSource) -> np.ndarray:
    """Each speaker's mean and deviation of the pitch in Hz, float64 [2, speakers]."""
    told, count = source.settings, source.config.n_speakers
    if not told.pitch_means and not told.pitch_deviations:
        mean, deviation = (told.pitch_mean, told.pitch_std) if told.pitch_std else DEFAULT_PITCH
        return np.repeat([[mean], [deviation]], count, axis=1)
    fits = len(told.pitch_means) == len(told.pitch_deviations) == count
    if not fits or min(told.pitch_deviations) <= 0:
        raise InputError(
            f"{source.weights} has {count} speakers, so that pitch_means and pitch_deviations must be "
            f"{count} numbers each, in Hz, not {told.pitch_means} and {told.pitch_deviations}"
        )
    return np.array([told.pitch_means, told.pitch_deviations])


def transform(controls: Controls, mean: float, deviation: float, style: Style = PLAIN) -> tuple[float, float]:
    """What is done to the pitch, in deviations from the mean: a factor, and what is added.

    NVIDIA's transforms in NVIDIA's order, then the semitones: so many times the pitch in Hz.
    """
    factor = 0.0 if controls.pitch_flatten else -1.0 if controls.pitch_invert else 1.0
    times = 2 ** ((controls.pitch_semitones + style.semitones) / 12)
    shift = controls.pitch_shift + style.shift + (style.level - mean if style.level else 0)
    added = shift / deviation * times + (times - 1) * mean / deviation
    return factor * controls.pitch_amplify * style.range * times, added


def regulating(encode: Run) -> Run:
    """The encoder's run with what follows it: `settings` [B, 3, T] are pace, pitch's factor and its shift.

    `numbers` float32 [2, B, T] has durations and pitch for the host.
    """

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        settings, lengths = inputs["settings"], inputs["lengths"]
        encoded = encode({name: value for name, value in inputs.items() if name != "settings"})
        pitch = changed_pitch(encoded["pitch"], settings)
        repeats = round_durations(encoded["duration"], lengths, settings[:, 0])
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
    """float32 [B, 1, T], times the factor plus the shift that `settings` [B, 3, T] have behind the pace."""
    return as_float32(pitch) * settings[:, 1:2] + settings[:, 2:]


def round_durations(duration: Array, lengths: Array, pace: Array | float) -> Array:
    """Whole frames int64 [B, T], rounded half up; an item that would vanish gets a frame for each symbol.

    The pace is a number, or [B, T].
    """
    inside = as_int64(length_mask(lengths, duration.shape[1]))
    repeats = round_half_up(duration.clip(0, LONGEST_SYMBOL) / pace) * inside
    vanished = as_int64(repeats.sum(1) == 0)
    return repeats + vanished[:, None] * inside
