"""Networks by their model's name, for tests that compute with them."""

import importlib
from pathlib import Path
from typing import Any

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
