"""Inputs as the stages would meet them, for exporting and checking."""

import numpy as np

from melforge.common.arrays import random_lengths
from melforge.common.audio.denoiser import denoiser_examples
from melforge.common.export.examples import ExampleInputs
from melforge.common.stages import Stage
from melforge.hifigan.config import HifiganConfig


def example_inputs(
    stage: Stage, config: HifiganConfig, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Noise with the mean and spread of log mels of speech."""
    masked = stage.name.startswith("masked")
    if stage.name.endswith("denoiser"):
        return denoiser_examples(config.hop_length, sizes, rng, masked)
    mel = rng.standard_normal((sizes["batch"], config.n_mel_channels, sizes["mel"]), np.float32)
    lengths = {"lengths": random_lengths(sizes["batch"], sizes["mel"], rng)} if masked else {}
    inputs = {"mel": mel * 2 - 5, **lengths}
    if config.source and stage.name.endswith("generator"):
        shape = sizes["batch"], sizes["mel"]
        phase = rng.uniform(0, 1, shape)
        pitch = 1 / rng.uniform(config.shortest_period, config.longest_period, shape)
        source = np.stack((phase, pitch), axis=1).astype(np.float32)
        noise = rng.standard_normal((sizes["batch"], config.noise_channels, sizes["mel"]), np.float32)
        inputs["source"] = np.concatenate((source, noise), axis=1)
    if stage.name == "inner_generator":
        inputs["inner"] = np.arange(sizes["mel"] // 3, sizes["mel"] // 3 + max(1, sizes["mel"] // 2))
    return inputs


EXAMPLES = ExampleInputs(example_inputs)
