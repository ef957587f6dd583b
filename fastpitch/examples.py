"""Inputs as the stages would meet them, for exporting and checking: the repeat index must fit its lengths."""

import numpy as np

from melforge.common.arrays import length_mask, random_lengths, repeat_index
from melforge.common.export.examples import ExampleInputs, random_repeats
from melforge.common.stages import Stage
from melforge.fastpitch.config import FastPitchConfig


def example_inputs(
    stage: Stage, config: FastPitchConfig, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Random inputs of these sizes; the first item is as long as the batch, the others may be shorter."""
    batch, text = sizes["batch"], sizes["text"]
    lengths = random_lengths(batch, text, rng)
    inside = length_mask(lengths, text)
    if stage.name == "encoder":
        symbols = rng.integers(1, config.n_symbols, (batch, text)) * inside
        inputs = {"symbols": symbols, "lengths": lengths}
        if config.n_speakers > 1:
            inputs["speaker"] = rng.dirichlet(np.ones(config.n_speakers), batch).astype(np.float32)
        return inputs
    mel_lengths = random_lengths(batch, sizes["mel"], rng)
    repeats = random_repeats(mel_lengths, lengths, text, rng)
    encoded = rng.standard_normal((batch, text, config.in_fft_output_size), np.float32)
    return {
        "encoded": encoded * inside[:, :, None],
        "lengths": lengths,
        "pitch": rng.standard_normal((batch, 1, text), np.float32),
        "repeat_index": repeat_index(repeats)[0],
        "mel_lengths": mel_lengths,
    }


EXAMPLES = ExampleInputs(example_inputs)
