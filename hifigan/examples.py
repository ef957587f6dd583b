"""Inputs as the stage would meet them, for exporting and checking."""

from __future__ import annotations

import numpy as np

from common.stages import Stage
from hifigan.config import HifiganConfig


def example_inputs(
    stage: Stage, config: HifiganConfig, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Noise with the mean and spread of log mels of speech."""
    mel = rng.standard_normal((sizes["batch"], config.n_mel_channels, sizes["mel"]), np.float32)
    return {"mel": mel * 2 - 5}
