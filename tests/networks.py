"""The networks of published files, for tests that compute with them."""

import importlib
from pathlib import Path
from typing import Any

import torch

from melforge.common.weights.checkpoint import Checkpoint

NETWORKS = {
    "tacotron2": ("Tacotron2", {}),
    "waveglow": ("Waveglow", {"weight_norm": False}),
    "fastpitch": ("FastPitch", {}),
    "fastspeech": ("FastSpeech", {}),
    "jasper": ("Jasper", {}),
    "hifigan": ("HifiganGenerator", {"weight_norm": False}),
}


def load_network(model: str, path: str | Path, *others: Any) -> tuple[torch.nn.Module, Checkpoint]:
    """The network of a published file in eval mode; `others` are further arguments of load_checkpoint."""
    checkpoint = importlib.import_module(f"{model}.checkpoint").load_checkpoint(path, *others)
    name, options = NETWORKS[model]
    network = getattr(importlib.import_module(f"{model}.model"), name)(checkpoint.config, **options)
    network.load_state_dict(checkpoint.state)
    return network.eval(), checkpoint
