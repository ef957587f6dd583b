"""Inputs as the stages would meet them, for exporting and checking: the repeat index must fit its lengths."""

from __future__ import annotations

import numpy as np

from common.arrays import random_lengths, repeat_index, valid
from common.engines import make_engine
from common.stages import Stage
from common.voices import ModelSource
from fastspeech.config import FastSpeechConfig
from fastspeech.stages import stages

PACES = 64  # that are tried for one at which no duration lies near a half


def example_inputs(
    stage: Stage, config: FastSpeechConfig, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Random inputs of these sizes; the first item is as long as the batch, the others may be shorter."""
    batch, text = sizes["batch"], sizes["text"]
    lengths = random_lengths(batch, text, rng)
    inside = valid(lengths, text)
    if stage.name != "decoder":
        inputs = {"symbols": rng.integers(1, config.n_symbols, (batch, text)) * inside, "lengths": lengths}
        if stage.name == "synthesis":
            inputs["alpha"] = np.ones(1, np.float32)
            inputs["frames"] = np.arange(sizes["mel"])
        return inputs
    mel_lengths = random_lengths(batch, sizes["mel"], rng)
    repeats = np.stack(
        [
            np.pad(rng.multinomial(frames, np.full(count, 1 / count)), (0, text - count))
            for frames, count in zip(mel_lengths, lengths, strict=True)
        ]
    )
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
    alphas = (fills * np.linspace(0.8, 1.1, PACES)).astype(np.float32)
    frames = duration[None] * alphas[:, None, None]
    margins = np.abs(frames % 1 - 0.5).min(axis=(1, 2))
    return inputs | {"alpha": alphas[margins.argmax()][None]}
