"""Drives the HiFi-GAN generator: a mel to audio, with source and noise where a generator has them."""

from __future__ import annotations

from collections.abc import Sequence

from common.arrays import Array, as_float32, concatenate, is_numpy, to_device
from common.speech import Controls
from common.synthesis.stage_engines import StageEngines
from common.synthesis.vocoder import Excerpts, Vocoder
from common.weights.voices import ModelSource
from hifigan.config import PITCH_REACH, HifiganConfig, receptive_field


class HifiganVocoder(Vocoder[HifiganConfig]):
    def __init__(self, source: ModelSource, engines: StageEngines):
        super().__init__(source, engines, receptive_field(source.config))
        # Fewer frames take more time for their seams, more for what caches do not hold: upsampled ones.
        self.piece = 960 if source.config.source else 360

    def excerpts(self, mel: Array, controls: Controls) -> Excerpts:
        """The phase goes on from chunk to chunk: it is of the whole mel."""
        if not self.config.source:
            return super().excerpts(mel, controls)
        source = self._source(self._pitch(mel), [controls.seed])
        return lambda first, last: {"source": source[:, :, first:last]}

    def beside(self, mel: Array, lengths: Array, controls: Sequence[Controls]) -> dict[str, Array]:
        if not self.config.source:
            return super().beside(mel, lengths, controls)
        return {"source": self._source(self._find_pitch(mel, lengths), [one.seed for one in controls])}

    def _pitch(self, mel: Array) -> Array:
        """Of a mel [1, n_mels, T_mel] of any length [1, T_mel]."""
        frames, step = mel.shape[2], self.longest_mel - 2 * PITCH_REACH
        parts = []
        for start in range(0, frames, step):
            before, after = max(0, start - PITCH_REACH), min(frames, start + step + PITCH_REACH)
            found = self._find_pitch(mel[:, :, before:after], self._length(after - before))
            parts.append(found[:, start - before : min(start + step, frames) - before])
        return concatenate(parts, 1) if len(parts) > 1 else parts[0]

    def _find_pitch(self, mel: Array, lengths: Array) -> Array:
        masked = "masked_pitch" in self.engines
        engine = self.engines["masked_pitch" if masked else "pitch"]
        return engine(mel=mel, **({"lengths": lengths} if masked else {}))["pitch"]

    def _source(self, pitch: Array, seeds: Sequence[int]) -> Array:
        """Cycles a sample [B, T_mel] -> the stage's input `source` [B, 2 + noise_channels, T_mel].

        A frame's noise depends on the seed and its number alone.
        """
        generator, (batch, frames) = self.generator, pitch.shape
        channels = self.config.noise_channels
        noise = to_device(generator.draw("normal", seeds, 0, frames * channels), generator.device)
        noise = noise.reshape(batch, frames, channels).swapaxes(1, 2)
        return concatenate([to_device(source_of(pitch, self.hop), generator.device), noise], 1)


def source_of(pitch: Array, hop: int) -> Array:
    """Pitch at the frames' centres, cycles a sample [B, T] -> phase, less whole cycles, and pitch [B, 2, T].

    The phase begins with 0 and is summed in float64.
    """
    exact = pitch.astype("float64") if is_numpy(pitch) else pitch.double()
    steps = 0.5 * hop * (exact[:, 1:] + exact[:, :-1])
    phase = concatenate([0 * exact[:, :1], steps.cumsum(1)], 1)
    return concatenate([as_float32(one)[:, None] for one in (phase - phase // 1, pitch)], 1)
