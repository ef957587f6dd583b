"""Drives WaveGlow's flows: seeded noise and a mel to audio."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from melforge.common.arrays import Array, concatenate, contiguous, to_device
from melforge.common.engines import Arrays, Run, as_capturable
from melforge.common.speech import Controls
from melforge.common.synthesis.mel_pitch import MelPitch
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.synthesis.vocoder import Excerpts, Vocoder
from melforge.common.weights.voices import ModelSource
from melforge.waveglow.config import WaveglowConfig, receptive_field
from melforge.waveglow.noise import draw_noise, harmonics, held, scale_noise

# Of NVIDIA's published inference program, for voices and checkpoints that say nothing else.
SIGMA = 0.9
# Frames of a chunk on a CPU: whole mels take memory by their length (1.3 MB a frame at 56 channels) and no
# less time. A network with a large receptive field gets longer ones, so that the context is a sixth of the
# work at most. On a GPU they do take less, and ONNX Runtime plans its convolutions anew where two chunks
# differ in length.
CHUNK, CONTEXTS = 256, 12


class WaveglowVocoder(Vocoder[WaveglowConfig]):
    """Of the controls it takes `sigma`, the noise's spread (default: the voice's), and `seed` as well."""

    def __init__(self, source: ModelSource, engines: StageEngines):
        super().__init__(source, engines, receptive_field(source.config))
        self.pitch = MelPitch(engines, self.longest_mel)
        self.sigma = SIGMA if source.settings.sigma is None else source.settings.sigma
        self._draw = self.kernel_between("draw", self.generator)
        self.capture_whole(self._run)
        self.at_once = 1280 if source.config.source else 0

    @property
    def longest_chunk(self) -> int:
        longest = super().longest_chunk
        if self.generator.device == "cpu":
            longest = min(longest, max(CHUNK, CONTEXTS * self.context))
        return longest

    def excerpts(self, mel: Array, controls: Controls) -> Excerpts:
        """Noise that depends on the seed alone, not on the chunks nor on what else is in a batch; harmonics
        of the whole mel's pitch.
        """
        tones = self._tones(self.pitch.of_whole(mel)) if self.config.source else None
        steps = self.config.noise_length(1)

        def excerpt(first: int, last: int) -> dict[str, Array]:
            part = None if tones is None else tones[:, :, first * steps : last * steps]
            return {"z": self._scaled(self._drawn(first, last, controls.seed), part, controls)}

        return excerpt

    def beside(self, mel: Array, lengths: Array, controls: Sequence[Controls]) -> dict[str, Array]:
        drawn = {seed: self._drawn(0, mel.shape[2], seed) for seed in {one.seed for one in controls}}
        tones: Sequence[Array | None] = [None] * len(controls)
        if self.config.source:
            tones = self._tones(held(self.pitch.of_batch(mel, lengths), lengths))[:, None]
        rows = [self._scaled(drawn[one.seed], part, one) for one, part in zip(controls, tones, strict=True)]
        return {"z": concatenate(rows)}

    def beside_rows(self, frames: int, controls: Sequence[Controls]) -> dict[str, Array]:
        device, count = self.generator.device, self.config.noise_length(frames) * self.config.n_group
        spreads = [scale_noise(np.ones(1, np.float32), self._sigma(one)) for one in controls]
        spread = {"sigma": to_device(np.concatenate(spreads), device)}
        if self._draw:
            return spread
        drawn = self.generator.draw("normal", [one.seed for one in controls], 0, count)
        return {**spread, "noise": to_device(drawn, device)}

    def _run(self) -> Run:
        """All of a padded batch, to be captured."""
        generate = as_capturable(self.generator).capturable()
        find = as_capturable(self.engines["masked_pitch"]).capturable() if self.config.source else None

        def run(given: Arrays) -> dict[str, Array]:
            mel, (lengths, keys) = given["mel"], given["rows"]
            batch, frames, channels = len(mel), mel.shape[2], self.config.n_group
            known = {"mel": mel, "lengths": lengths}
            count = self.config.noise_length(frames) * channels
            drawn = self._draw(keys, count) if self._draw else given["noise"]
            z = drawn.reshape(batch, count // channels, channels).swapaxes(1, 2)
            if find:
                z = z + self._tones(held(find(known)["pitch"], lengths))
            return generate({**known, "z": contiguous(z * given["sigma"][:, None, None])})

        return run

    def _sigma(self, controls: Controls) -> float:
        return self.sigma if controls.sigma is None else controls.sigma

    def _tones(self, pitch: Array) -> Array:
        return harmonics(to_device(pitch, self.generator.device), self.config)

    def _drawn(self, first: int, last: int, seed: int) -> Array:
        drawn = draw_noise(self.config, first, last, seed, self.generator.draw)
        return to_device(drawn, self.generator.device)

    def _scaled(self, drawn: Array, tones: Array | None, controls: Controls) -> Array:
        return scale_noise(drawn if tones is None else drawn + tones, self._sigma(controls))
