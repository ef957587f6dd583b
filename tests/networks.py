"""Networks by their model's name, for tests that compute with them."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from melforge.common.weights.checkpoint import Checkpoint

# model -> a module of its package and what makes the network of a configuration there
NETWORKS = {
    "tacotron2": ("model", "Tacotron2", {}),
    "waveglow": ("model", "Waveglow", {"weight_norm": False}),
    "fastpitch": ("model", "FastPitch", {}),
    "fastspeech": ("model", "FastSpeech", {}),
    "jasper": ("model", "Jasper", {}),
    "hifigan": ("source_filter", "make_generator", {"weight_norm": False}),
}


def make_network(model: str, config: Any) -> torch.nn.Module:
    module, name, options = NETWORKS[model]
    return getattr(importlib.import_module(f"melforge.{model}.{module}"), name)(config, **options)


def load_network(model: str, path: str | Path, *others: Any) -> tuple[torch.nn.Module, Checkpoint]:
    """The network of a published file in eval mode; `others` are further arguments of load_checkpoint."""
    checkpoint = importlib.import_module(f"melforge.{model}.checkpoint").load_checkpoint(path, *others)
    network = make_network(model, checkpoint.config)
    network.load_state_dict(checkpoint.state)
    return network.eval(), checkpoint


def batch_of_text(n_symbols: int, lengths: Sequence[int] = (9, 6, 1)) -> tuple[torch.Tensor, torch.Tensor]:
    """Random symbols, padded with 0, and their lengths."""
    symbols = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in zip(symbols, lengths, strict=True):
        row[:length] = torch.randint(1, n_symbols, (length,))
    return symbols, torch.tensor(lengths)


def assert_close(name: str, actual: torch.Tensor, golden: np.ndarray) -> None:
    """To a ten-thousandth of the largest value."""
    actual = actual.detach().numpy()
    assert actual.shape == golden.shape, name
    if golden.dtype.kind in "bi":
        assert np.array_equal(actual, golden), name
    else:
        assert np.abs(actual - golden).max() <= 1e-4 * max(1, np.abs(golden).max()), name
