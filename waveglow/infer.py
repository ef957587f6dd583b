"""Drives WaveGlow's flows: seeded noise and a mel to audio."""

from __future__ import annotations

from collections.abc import Mapping

from common.arrays import to_device
from common.engines import Engine
from common.speech import Controls
from common.vocoder import Excerpts, Vocoder
from common.voices import ModelSource
from waveglow.config import receptive_field
from waveglow.noise import draw_noise, scale_noise

# Of NVIDIA's published inference program, for voices and checkpoints that say nothing else.
SIGMA = 0.9
# Frames of a chunk: whole mels take memory by their length (1.3 MB a frame at 56 channels) and no less time.
# A network that hears far gets longer ones, so that the context is a sixth of the work at most.
CHUNK, CONTEXTS = 256, 12


class WaveglowVocoder(Vocoder):
    """Of the controls it takes `sigma`, the noise's spread (default: the voice's), and `seed` as well."""

    controls = Vocoder.controls | {"seed", "sigma"}

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        super().__init__(source, engines, receptive_field(source.config))
        self.sigma = float(source.extra.get("sigma", SIGMA))

    @property
    def longest_chunk(self) -> int:
        return min(super().longest_chunk, max(CHUNK, CONTEXTS * self.context))

    def excerpts(self, frames: int, controls: Controls) -> Excerpts:
        """Noise that depends on the seed alone, not on the chunks nor on what else is in a batch."""
        sigma = self.sigma if controls.sigma is None else controls.sigma
        z = scale_noise(draw_noise(self.config, frames, controls.seed), self.config, sigma)
        z = to_device(z, self.generator.device)
        steps = self.config.noise_length(1)
        return lambda first, last: {"z": z[:, :, first * steps : last * steps]}
