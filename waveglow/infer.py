"""Drives WaveGlow's flows: seeded noise and a mel to audio."""

from __future__ import annotations

from functools import lru_cache

from common.arrays import Array, to_device
from common.speech import Controls
from common.synthesis.stage_engines import StageEngines
from common.synthesis.vocoder import Excerpts, Vocoder
from common.weights.voices import ModelSource
from waveglow.config import WaveglowConfig, receptive_field
from waveglow.noise import draw_noise, scale_noise

# Of NVIDIA's published inference program, for voices and checkpoints that say nothing else.
SIGMA = 0.9
# Frames of a chunk on a CPU: whole mels take memory by their length (1.3 MB a frame at 56 channels) and no
# less time. A network with a large receptive field gets longer ones, so that the context is a sixth of the
# work at most. On a GPU they do take less, and ONNX Runtime plans its convolutions anew where two chunks
# differ in length.
CHUNK, CONTEXTS = 256, 12
NOISE_BLOCK = 512  # frames: noise is drawn for multiples of it, and kept for the next mel with the same seed


class WaveglowVocoder(Vocoder[WaveglowConfig]):
    """Of the controls it takes `sigma`, the noise's spread (default: the voice's), and `seed` as well."""

    def __init__(self, source: ModelSource, engines: StageEngines):
        super().__init__(source, engines, receptive_field(source.config))
        self.sigma = SIGMA if source.settings.sigma is None else source.settings.sigma

    @property
    def longest_chunk(self) -> int:
        longest = super().longest_chunk
        if self.generator.device == "cpu":
            longest = min(longest, max(CHUNK, CONTEXTS * self.context))
        return longest

    def excerpts(self, frames: int, controls: Controls) -> Excerpts:
        """Noise that depends on the seed alone, not on the chunks nor on what else is in a batch."""
        sigma = self.sigma if controls.sigma is None else controls.sigma
        drawn = kept_noise(self.config, -(-frames // NOISE_BLOCK), controls.seed, self.generator.device)
        steps = self.config.noise_length(1)
        z = scale_noise(drawn[:, :, : frames * steps], self.config, sigma)
        return lambda first, last: {"z": z[:, :, first * steps : last * steps]}


@lru_cache(maxsize=4)
def kept_noise(config: WaveglowConfig, blocks: int, seed: int, device: str) -> Array:
    """Unit noise for so many blocks of frames: drawing it takes as long as all the rest on a GPU."""
    return to_device(draw_noise(config, blocks * NOISE_BLOCK, seed), device)
