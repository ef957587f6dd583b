"""Drives the HiFi-GAN generator: a mel to audio, with source and noise where a generator has them."""

from __future__ import annotations

from collections.abc import Sequence

from melforge.common.arrays import Array, concatenate, to_device
from melforge.common.audio.pitch import source_of
from melforge.common.engines import Arrays, Run, as_capturable
from melforge.common.speech import Controls
from melforge.common.synthesis.mel_pitch import MelPitch
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.synthesis.vocoder import Excerpts, Vocoder
from melforge.common.weights.voices import ModelSource
from melforge.hifigan.config import EDGE, HifiganConfig, receptive_field


class HifiganVocoder(Vocoder[HifiganConfig]):
    def __init__(self, source: ModelSource, engines: StageEngines):
        super().__init__(source, engines, receptive_field(source.config), EDGE)
        self.pitch = MelPitch(engines, self.longest_mel)
        # Smaller pieces waste time on overlaps, larger ones overflow the caches.
        self.piece = 960 if source.config.source else 360
        self._join = self.kernel_between("join_source", self.generator) or join_source
        self._draw = self.kernel_between("draw", self.generator)
        if source.config.source:
            self.capture_whole(self._run)
            self.at_once = 1280

    def excerpts(self, mel: Array, controls: Controls) -> Excerpts:
        """The phase goes on from chunk to chunk: it is of the whole mel, as far as the chunks have come."""
        if not self.config.source:
            return super().excerpts(mel, controls)
        pieces = self.pitch.pieces(mel)
        pitch = next(pieces)
        source = self._source(pitch, [controls.seed])

        def excerpt(first: int, last: int) -> dict[str, Array]:
            nonlocal source
            if last > source.shape[2]:
                source = self._source(concatenate([pitch, *pieces], 1), [controls.seed])
            return {"source": source[:, :, first:last]}

        return excerpt

    def beside(self, mel: Array, lengths: Array, controls: Sequence[Controls]) -> dict[str, Array]:
        if not self.config.source:
            return super().beside(mel, lengths, controls)
        return {"source": self._source(self.pitch.of_batch(mel, lengths), [one.seed for one in controls])}

    def beside_rows(self, frames: int, controls: Sequence[Controls]) -> dict[str, Array]:
        return {} if self._draw else {"noise": self._noise([one.seed for one in controls], frames)}

    def _run(self) -> Run:
        """All of a padded batch, to be captured."""
        engines = self.engines["masked_pitch"], self.generator
        find, generate = (as_capturable(engine).capturable() for engine in engines)

        def run(given: Arrays) -> dict[str, Array]:
            mel, (lengths, keys) = given["mel"], given["rows"]
            known = {"mel": mel, "lengths": lengths}
            drawn = self._draw and self._draw(keys, mel.shape[2] * self.config.noise_channels)
            noise = given["noise"] if drawn is None else drawn
            return generate({**known, "source": self._joined(find(known)["pitch"], noise)})

        return run

    def _source(self, pitch: Array, seeds: Sequence[int]) -> Array:
        """Cycles a sample [B, T_mel] -> the stage's input `source` [B, 2 + noise_channels, T_mel]."""
        return self._joined(to_device(pitch, self.generator.device), self._noise(seeds, pitch.shape[1]))

    def _noise(self, seeds: Sequence[int], frames: int) -> Array:
        """[B, T_mel * noise_channels]: a frame's depends on the seed and its number alone."""
        generator = self.generator
        drawn = generator.draw("normal", seeds, 0, frames * self.config.noise_channels)
        return to_device(drawn, generator.device)

    def _joined(self, pitch: Array, noise: Array) -> Array:
        return self._join(pitch, noise, self.hop)


def join_source(pitch: Array, noise: Array, hop: int) -> Array:
    """Pitch [B, T] and noise [B, T * C] -> the input `source` of the stage "generator" [B, 2 + C, T]."""
    batch, frames = pitch.shape
    noise = noise.reshape(batch, frames, noise.shape[1] // frames).swapaxes(1, 2)
    return concatenate([source_of(pitch, hop), noise], 1)
