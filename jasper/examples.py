"""Inputs as the stages would meet them, for exporting and checking."""

import numpy as np

from melforge.common.arrays import length_mask, random_lengths
from melforge.common.export.examples import ExampleInputs
from melforge.common.stages import Stage
from melforge.jasper.config import JasperConfig


def example_inputs(
    stage: Stage, config: JasperConfig, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Noise of a speech's loudness, normalised features, or random distributions over the labels."""
    batch = sizes["batch"]
    if "samples" in sizes:
        lengths = random_lengths(batch, sizes["samples"] - config.hop_length // 2, rng)
        audio = 0.1 * rng.standard_normal((batch, sizes["samples"]), np.float32)
        return {"audio": audio * length_mask(lengths, sizes["samples"]), "lengths": lengths}
    if stage.name == "decoder":
        steps = sizes["steps"]
        logits = 3 * rng.standard_normal((batch, steps, len(config.labels) + 1), np.float32)
        log_probs = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
        return {"log_probs": log_probs, "lengths": random_lengths(batch, steps, rng)}
    lengths = random_lengths(batch, sizes["mel"], rng)
    features = rng.standard_normal((batch, config.n_mel_channels, sizes["mel"]), np.float32)
    features *= length_mask(lengths, sizes["mel"])[:, None]
    return {"features": features} | ({"lengths": lengths} if stage.name.startswith("masked") else {})


EXAMPLES = ExampleInputs(example_inputs)
