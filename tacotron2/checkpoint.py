"""Published Tacotron 2 checkpoints: a training file with its config, one without it, or a bare state dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from common.checkpoint import (
    Checkpoint,
    check_finite,
    check_keys,
    check_tensors,
    read_pt,
    strip_prefix,
    widen,
)
from tacotron2.config import Tacotron2Config
from tacotron2.model import Tacotron2


def load_checkpoint(path: str | Path, ema: bool = False) -> Checkpoint:
    """Sizes, weights and settings of a Tacotron 2 file, which never holds averaged weights (`ema`).

    `info` holds `ema_available`, and `epoch` and `iteration` where known.
    """
    content = read_pt(path)
    if ema:
        raise ValueError(f"checkpoint {path} holds no averaged weights: load it without EMA")
    state = widen(strip_prefix(_find_state(content, path)))
    check_finite(state, path)
    config = _find_config(content, state, path)
    expected = _expected_state(config, path)
    # Files older than these counters leave them out; they matter to nobody who speaks.
    counters = {name: torch.zeros((), dtype=torch.int64) for name in expected if name.endswith("_tracked")}
    state = {**counters, **state}
    check_keys({name: value.shape for name, value in expected.items()}, state, path)
    info = {key: content[key] for key in ("epoch", "iteration") if key in content}
    return Checkpoint(config, state, {"ema_available": False, **info})


def load_network(path: str | Path, ema: bool = False) -> tuple[Tacotron2, Checkpoint]:
    """The network of a Tacotron 2 file in eval mode."""
    checkpoint = load_checkpoint(path, ema)
    network = Tacotron2(checkpoint.config)
    network.load_state_dict(checkpoint.state)
    return network.eval(), checkpoint


def _expected_state(config: Tacotron2Config, path: str | Path) -> Mapping[str, torch.Tensor]:
    try:
        with torch.device("meta"):
            return Tacotron2(config).state_dict()
    except (RuntimeError, ValueError, AssertionError, ZeroDivisionError) as error:
        raise ValueError(f"checkpoint {path}: no network has the sizes in its config ({error})") from None


def _find_state(content: Mapping[str, Any], path: str | Path) -> Mapping[str, torch.Tensor]:
    if all(isinstance(value, torch.Tensor) for value in content.values()):
        content = {"state_dict": content}
    state = content.get("state_dict")
    if not isinstance(state, Mapping):
        found = ", ".join(map(str, content))[:80]
        raise ValueError(
            f"checkpoint {path} is no Tacotron 2 checkpoint: it has no 'state_dict' but {found}.\n"
            "Give the file of an acoustic model, as training saved it."
        )
    check_tensors(state, path)
    return state


def _find_config(
    content: Mapping[str, Any], state: Mapping[str, torch.Tensor], path: str | Path
) -> Tacotron2Config:
    """The file's own config; what it leaves out is read from the weights. Foreign keys are ignored."""
    stated = content.get("config") or {}
    if not isinstance(stated, Mapping):
        raise ValueError(
            f"checkpoint {path}: its config is a {type(stated).__name__}, not a dictionary of sizes"
        )
    values = {}
    for size in fields(Tacotron2Config):
        value = stated.get(size.name)
        if value is None:
            continue
        wanted = type(size.default)
        if not isinstance(value, (int, float) if wanted is float else wanted):
            raise ValueError(
                f"checkpoint {path}: config says {size.name}: {value!r}, which is no {wanted.__name__}"
            )
        values[size.name] = value
    try:
        return Tacotron2Config(**{**infer_sizes(state), **values})
    except ValueError as error:
        raise ValueError(f"checkpoint {path}: no network has the sizes in its config ({error})") from None


def infer_sizes(state: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """What names and shapes tell of the sizes."""
    sizes: dict[str, int] = {}

    def read(tensor: str, **names_and_axes: int) -> None:
        shape = state[tensor].shape if tensor in state else ()
        sizes.update({name: shape[axis] for name, axis in names_and_axes.items() if axis < len(shape)})

    read("embedding.weight", n_symbols=0, symbols_embedding_dim=1, encoder_embedding_dim=1)
    read("encoder.lstm.weight_ih_l0", encoder_embedding_dim=1)
    read("encoder.convolutions.0.0.conv.weight", encoder_kernel_size=2)
    read(
        "postnet.convolutions.0.0.conv.weight",
        postnet_embedding_dim=0,
        n_mel_channels=1,
        postnet_kernel_size=2,
    )
    for prefix, name in (
        ("encoder.convolutions.", "encoder_n_convolutions"),
        ("postnet.convolutions.", "postnet_n_convolutions"),
    ):
        layers = {tensor.removeprefix(prefix).split(".")[0] for tensor in state if tensor.startswith(prefix)}
        if layers:
            sizes[name] = len(layers)
    read("decoder.prenet.layers.0.linear_layer.weight", prenet_dim=0)
    read("decoder.attention_rnn.weight_hh", attention_rnn_dim=1)
    read("decoder.decoder_rnn.weight_hh", decoder_rnn_dim=1)
    read("decoder.attention_layer.memory_layer.linear_layer.weight", attention_dim=0)
    read(
        "decoder.attention_layer.location_layer.location_conv.conv.weight",
        attention_location_n_filters=0,
        attention_location_kernel_size=2,
    )
    values = state.get("decoder.linear_projection.linear_layer.bias")
    if values is not None and sizes.get("n_mel_channels"):
        sizes["n_frames_per_step"] = values.numel() // sizes["n_mel_channels"]
    return sizes
