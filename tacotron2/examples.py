"""Inputs as the stages would meet them, for exporting and checking: states, an attention, gates that fire."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from common.arrays import valid
from common.engines import make_engine
from common.stages import Stage
from common.voices import ModelSource
from tacotron2.config import PRENET_LAYERS, Tacotron2Config
from tacotron2.infer import sigmoid
from tacotron2.stages import stages, state_tensors


def example_inputs(
    stage: Stage, config: Tacotron2Config, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Random inputs of these sizes; the first item is as long as the batch, the others may be shorter."""
    batch = sizes["batch"]
    if stage.name == "postnet":
        mel = rng.standard_normal((batch, config.n_mel_channels, sizes["mel"]), np.float32)
        return {"mel": mel * 2 - 5}
    text = sizes["text"]
    lengths = rng.integers((text + 1) // 2, text + 1, batch)
    lengths[0] = text
    inside = valid(lengths, text)
    if stage.name == "encoder":
        return {"symbols": rng.integers(1, config.n_symbols, (batch, text)) * inside, "lengths": lengths}
    inputs = {
        name: rng.uniform(-1, 1, (batch, text, size)).astype(np.float32) * inside[:, :, None]
        for name, size in (
            ("memory", config.encoder_embedding_dim),
            ("processed_memory", config.attention_dim),
        )
    }
    inputs |= {"lengths": lengths, "prenet_dropout": np.full(1, rng.choice([0.5, 0.0]), np.float32)}
    noise = (PRENET_LAYERS, batch, config.prenet_dim)
    if stage.name == "decoder_loop":
        inputs["prenet_noise"] = rng.random((sizes["steps"], *noise), np.float32)
        inputs["gate_threshold"] = np.full(1, config.gate_threshold, np.float32)
        return inputs
    inputs["prenet_noise"] = rng.random(noise, np.float32)
    attention = rng.dirichlet(np.ones(text), batch).astype(np.float32) * inside
    for tensor in state_tensors(config):
        if tensor.name.startswith("attention_weights"):
            inputs[tensor.name] = attention
        elif tensor.name == "attention_cumulative":
            inputs[tensor.name] = attention * 3
        else:
            inputs[tensor.name] = rng.uniform(-1, 1, (batch, tensor.dims[1])).astype(np.float32)
    return inputs


def settle_inputs(stage: Stage, source: ModelSource, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A decoder's inputs with the memory of a random text, and a threshold at which the loop's gates fire."""
    if "memory" not in inputs:
        return inputs
    encoder, *_ = stages(source.config)
    batch, text, _ = inputs["memory"].shape
    rng = np.random.default_rng(text)
    symbols = rng.integers(0, source.config.n_symbols, (batch, text)) * valid(inputs["lengths"], text)
    inputs = inputs | make_engine(encoder, source, "torch")(symbols=symbols, lengths=inputs["lengths"])
    if stage.name == "decoder_loop":
        never = inputs | {"gate_threshold": np.ones(1, np.float32)}
        gate = make_engine(stage, source, "torch")(**never)["gate"]
        inputs["gate_threshold"] = np.full(1, firing_threshold(gate), np.float32)
    return inputs


def firing_threshold(gate: np.ndarray) -> float:
    """A threshold that these gate logits [B, S] exceed at steps as late as can be told apart.

    It lies in the middle of a gap between the values at which an item first exceeds all its former ones, so
    that rounding does not move a stop to another step. 1, which never stops, where there is no such gap.
    """
    steps = gate.shape[1]
    highest = np.maximum.accumulate(sigmoid(gate), axis=1).astype(np.float64)
    values = np.unique(highest)
    best, threshold = 0.0, 1.0
    for low, high in pairwise(values):
        middle = (low + high) / 2
        stops = np.where((highest > middle).any(1), (highest > middle).argmax(1), steps)
        # All items stop before the limit, the last of them late, and some at steps of their own.
        merit = (high - low) * stops.max() * len(np.unique(stops)) * (stops.max() < steps - 1)
        if high - low > 1e-5 and merit > best:
            best, threshold = merit, middle
    return float(threshold)
