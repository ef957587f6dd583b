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


class WaveglowVocoder(Vocoder):
    """Of the controls it takes `sigma`, the noise's spread (default: the voice's), and `seed` as well."""

    controls = Vocoder.controls | {"seed", "sigma"}

    def __init__(self, source: ModelSource, engines: Mapping[str, Engine]):
        super().__init__(source, engines, receptive_field(source.config))
        self.sigma = float(source.extra.get("sigma", SIGMA))

    def excerpts(self, frames: int, controls: Controls) -> Excerpts:
        """Noise that depends on the seed alone, not on the chunks nor on what else is in a batch."""
        sigma = self.sigma if controls.sigma is None else controls.sigma
        z = scale_noise(draw_noise(self.config, frames, controls.seed), self.config, sigma)
        z = to_device(z, self.generator.device)
        steps = self.config.noise_length(1)
        return lambda first, last: {"z": z[:, :, first * steps : last * steps]}
