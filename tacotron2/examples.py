"""Inputs as the stages would meet them, for exporting and checking: states, an attention, gates that fire."""

from itertools import pairwise

import numpy as np

from melforge.common.arrays import length_mask, random_lengths
from melforge.common.engines.backends import make_engine
from melforge.common.export.examples import ExampleInputs
from melforge.common.stages import Stage
from melforge.common.weights.voices import ModelSource
from melforge.tacotron2.config import PRENET_DROPOUT, PRENET_LAYERS, Tacotron2Config
from melforge.tacotron2.decode import sigmoid
from melforge.tacotron2.stages import stages
from melforge.tacotron2.state import state_tensors

# Between gate logits: far above what rounding moves them by.
SMALLEST_GAP = 1e-4
# Texts that are tried for one at which gates fire.
TEXTS = 4


def example_inputs(
    stage: Stage, config: Tacotron2Config, sizes: dict[str, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Random inputs of these sizes; the first item is as long as the batch, the others may be shorter."""
    batch = sizes["batch"]
    if stage.name == "postnet":
        mel = rng.standard_normal((batch, config.n_mel_channels, sizes["mel"]), np.float32)
        masks = {"lengths": random_lengths(batch, sizes["mel"], rng)} if config.mask_text_padding else {}
        return {"mel": mel * 2 - 5, **masks}
    text = sizes["text"]
    lengths = random_lengths(batch, text, rng)
    inside = length_mask(lengths, text)
    if stage.name == "encoder":
        return {"symbols": rng.integers(1, config.n_symbols, (batch, text)) * inside, "lengths": lengths}
    inputs = {
        name: rng.uniform(-1, 1, (batch, text, size)).astype(np.float32) * inside[:, :, None]
        for name, size in (
            ("memory", config.encoder_embedding_dim),
            ("processed_memory", config.attention_dim),
        )
    }
    inputs |= {
        "lengths": lengths,
        "prenet_dropout": np.full(1, rng.choice([PRENET_DROPOUT, 0.0]), np.float32),
    }
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
            size = tensor.dims[1]
            assert isinstance(size, int)
            inputs[tensor.name] = rng.uniform(-1, 1, (batch, size)).astype(np.float32)
    return inputs


def settle_inputs(stage: Stage, source: ModelSource, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A decoder's inputs with the memory of a random text, and a threshold at which the loop's gates fire."""
    if "memory" not in inputs:
        return inputs
    encoder, *_ = stages(source.config)
    encode, decode = (make_engine(one, source, "torch") for one in (encoder, stage))
    batch, text, _ = inputs["memory"].shape
    lengths, rng = inputs["lengths"], np.random.default_rng(text)
    for attempt in range(TEXTS):
        symbols = rng.integers(0, source.config.n_symbols, (batch, text)) * length_mask(lengths, text)
        inputs = inputs | encode(symbols=symbols, lengths=lengths)
        if stage.name != "decoder_loop":
            break
        never = inputs | {"gate_threshold": np.ones(1, np.float32)}
        threshold = firing_threshold(decode(**never)["gate"])
        inputs["gate_threshold"] = np.full(1, threshold, np.float32)
        if threshold < 1 or inputs["prenet_noise"].shape[0] == 1:
            break
        if attempt:  # a gate that falls from the first step on rises again at times where noise moves it
            inputs["prenet_dropout"] = np.full(1, PRENET_DROPOUT, np.float32)
    return inputs


def firing_threshold(gate: np.ndarray) -> float:
    """A threshold that these gate logits [B, S] exceed late, and each item's at a step of its own.

    It lies in the middle of a gap between the values at which an item first exceeds all its former ones, so
    that rounding does not move a stop to another step. 1, which never stops, where there is no such gap.
    """
    steps = gate.shape[1]
    # Logits tell small certainties apart; large ones are all the same certainty to float32.
    highest = np.maximum.accumulate(gate.astype(np.float64).clip(-30, 8), axis=1)
    values = np.unique(highest)
    best, threshold = (False, 0.0), 1.0
    for low, high in pairwise(values):
        middle = (low + high) / 2
        stops = np.where((highest > middle).any(1), (highest > middle).argmax(1), steps)
        # Best where all items stop, the last of them late; if that cannot be, some that stop and some not.
        merit = (0 < stops.max() < steps - 1, (high - low) * stops.max() * len(np.unique(stops)))
        if high - low > SMALLEST_GAP and merit > best:
            best, threshold = merit, float(sigmoid(middle))
    return threshold


EXAMPLES = ExampleInputs(example_inputs, settle_inputs)
