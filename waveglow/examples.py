"""Inputs as the stages would meet them, for exporting and checking."""

import numpy as np

from melforge.common.arrays import random_lengths
from melforge.common.audio.denoiser import denoiser_examples
from melforge.common.export.examples import ExampleInputs
from melforge.common.stages import Stage
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.noise import noise_shape


def example_inputs(
    stage: Stage, config: WaveglowConfig, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Noise with the mean and spread of log mels of speech, and z of the length that fits it."""
    masked = stage.name.startswith("masked")
    if stage.name.endswith("denoiser"):
        return denoiser_examples(config.hop_length, sizes, rng, masked)
    mel = rng.standard_normal((sizes["batch"], config.n_mel_channels, sizes["mel"]), np.float32)
    inputs = {"mel": mel * 2 - 5}
    if stage.name.endswith("generator"):
        z = rng.standard_normal(noise_shape(config, sizes["batch"], sizes["mel"]), np.float32)
        inputs["z"] = z * np.float32(0.6)
    if masked:
        inputs["lengths"] = random_lengths(sizes["batch"], sizes["mel"], rng)
    return inputs


EXAMPLES = ExampleInputs(example_inputs)
