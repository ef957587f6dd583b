"""Inputs as the stages would meet them, for exporting and checking: the repeat index must fit its lengths."""

import numpy as np

from melforge.common.arrays import Array, length_mask, random_lengths, repeat_index, to_device, to_numpy
from melforge.common.engines import Engine
from melforge.common.engines.backends import make_engine
from melforge.common.export.examples import ExampleInputs, random_repeats
from melforge.common.stages import Stage
from melforge.common.weights.voices import ModelSource
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.stages import stages

PACES = 64  # that are tried for one at which no duration lies near a half


def example_inputs(
    stage: Stage, config: FastSpeechConfig, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Random inputs of these sizes; the first item is as long as the batch, the others may be shorter."""
    batch = sizes["batch"]
    text = sizes["text"]
    lengths = random_lengths(batch, text, rng)
    inside = length_mask(lengths, text)
    if stage.name != "decoder":
        inputs = {"symbols": rng.integers(1, config.n_symbols, (batch, text)) * inside, "lengths": lengths}
        if stage.name == "synthesis":
            inputs["alpha"] = np.ones(1, np.float32)
            inputs["frames"] = np.arange(sizes["mel"])
        return inputs
    mel_lengths = random_lengths(batch, sizes["mel"], rng)
    repeats = random_repeats(mel_lengths, lengths, text, rng)
    encoded = rng.standard_normal((batch, text, config.d_model), np.float32)
    return {
        "encoded": encoded * inside[:, :, None],
        "repeat_index": repeat_index(repeats)[0],
        "mel_lengths": mel_lengths,
    }


def settle_inputs(stage: Stage, source: ModelSource, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """With an alpha at which the text about fills the mel, and no duration is so near to a half that two
    programs could round it to different frames."""
    if stage.name != "synthesis":
        return inputs
    encoder, *_ = stages(source.config)
    symbols, lengths = inputs["symbols"], inputs["lengths"]
    duration = make_engine(encoder, source, "torch")(symbols=symbols, lengths=lengths)["duration"]
    fills = len(inputs["frames"]) / max(float(duration.sum(1).max()), 1e-3)
    return inputs | {"alpha": steady_alpha(duration, fills * np.linspace(0.8, 1.1, PACES))}


def steady_inputs(stage: Stage, engine: Engine, inputs: dict[str, Array]) -> dict[str, Array]:
    """The inputs with an alpha near theirs at which no duration lies near a half."""
    if stage.name != "synthesis":
        return inputs
    duration, alpha = to_numpy(engine(**inputs)["duration"]), to_numpy(inputs["alpha"])
    steady = steady_alpha(duration, alpha * np.linspace(0.95, 1.05, PACES))
    return inputs | {"alpha": to_device(steady, engine.device)}


def steady_alpha(duration: np.ndarray, alphas: np.ndarray) -> np.ndarray:
    """Of these alphas the one, float32 [1], at which durations [B, N] are furthest from a half."""
    alphas = alphas.astype(np.float32)
    margins = np.abs((duration[None] * alphas[:, None, None]) % 1 - 0.5).min(axis=(1, 2))
    return alphas[margins.argmax()][None]


EXAMPLES = ExampleInputs(example_inputs, settle_inputs, steady_inputs)
