"""Example inputs of a model's stages: for exporting, checking and warming up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from melforge.common.arrays import Array
from melforge.common.engines import Engine
from melforge.common.registry import get_model
from melforge.common.stages import Stage
from melforge.common.weights.voices import ModelSource

Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class ExampleInputs:
    """What a model's examples.py declares."""

    # Random inputs of these sizes: (stage, config, sizes by dimension, generator).
    example_inputs: Callable[[Stage, Any, dict[str, int], np.random.Generator], Inputs]
    # The inputs fitted to the weights, where random ones say little: a decoder that never stops, say.
    settle_inputs: Callable[[Stage, ModelSource, Inputs], Inputs] = lambda stage, source, inputs: inputs
    # The inputs moved to where rounding does not decide how long something lasts.
    steady_inputs: Callable[[Stage, Engine, dict[str, Array]], dict[str, Array]] = (
        lambda stage, engine, inputs: inputs
    )


def random_repeats(
    frames: np.ndarray, lengths: np.ndarray, symbols: int, rng: np.random.Generator
) -> np.ndarray:
    """Frames of each symbol, int64 (B, symbols), that add up to each item's frames (B,)."""
    drawn = (rng.multinomial(n, np.full(count, 1 / count)) for n, count in zip(frames, lengths, strict=True))
    return np.stack([np.pad(row, (0, symbols - len(row))) for row in drawn])


def examples_of(model: str) -> ExampleInputs:
    """The examples of a model by its name."""
    return get_model(model).module("examples").EXAMPLES
