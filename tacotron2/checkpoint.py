"""Published Tacotron 2 checkpoints: a training file with its config, one without it, or a bare state dict."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from melforge.common.errors import InputError
from melforge.common.weights import checkpoint as weights
from melforge.tacotron2.config import Tacotron2Config
from melforge.tacotron2.model import Tacotron2

ADVICE = ".\nGive the file of an acoustic model, as training saved it."


def load_checkpoint(
    path: str | Path, ema: bool = False, *, content: Mapping[str, Any] | None = None
) -> weights.Checkpoint:
    """Sizes, weights and settings of a Tacotron 2 file, which never has averaged weights (`ema`).

    `info` holds `ema_available`, and `epoch` and `iteration` where known.
    `content` is what `read_pt` gave of the file, where it is read already.
    """
    content = weights.read_pt(path) if content is None else content
    if ema:
        raise InputError(f"checkpoint {path} holds no averaged weights: load it without EMA")
    state = weights.find_state(content, path, "Tacotron 2 checkpoint", "state_dict", advice=ADVICE)
    weights.check_finite(state, path)
    config = weights.find_config(Tacotron2Config, content, infer_sizes(state), path)
    expected = weights.expected_shapes(lambda: Tacotron2(config), path)
    # Batch norm counters, missing in older files; inference does not use them.
    counters = {name: torch.zeros((), dtype=torch.int64) for name in expected if name.endswith("_tracked")}
    state = {**counters, **state}
    weights.check_keys(expected, state, path)
    info = {key: content[key] for key in ("epoch", "iteration") if key in content}
    return weights.Checkpoint(config, state, {"ema_available": False, **info})


def infer_sizes(state: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """The sizes that names and shapes determine."""
    read = partial(weights.read_axes, state)
    sizes = read("embedding.weight", n_symbols=0, symbols_embedding_dim=1, encoder_embedding_dim=1)
    sizes |= read("encoder.lstm.weight_ih_l0", encoder_embedding_dim=1)
    sizes |= read("encoder.convolutions.0.0.conv.weight", encoder_kernel_size=2)
    postnet = "postnet.convolutions.0.0.conv.weight"
    sizes |= read(postnet, postnet_embedding_dim=0, n_mel_channels=1, postnet_kernel_size=2)
    for side in ("encoder", "postnet"):
        sizes |= weights.count_layers(state, f"{side}.convolutions.", f"{side}_n_convolutions")
    sizes |= read("decoder.prenet.layers.0.linear_layer.weight", prenet_dim=0)
    sizes |= read("decoder.attention_rnn.weight_hh", attention_rnn_dim=1)
    sizes |= read("decoder.decoder_rnn.weight_hh", decoder_rnn_dim=1)
    sizes |= read("decoder.attention_layer.memory_layer.linear_layer.weight", attention_dim=0)
    location = "decoder.attention_layer.location_layer.location_conv.conv.weight"
    sizes |= read(location, attention_location_n_filters=0, attention_location_kernel_size=2)
    values = state.get("decoder.linear_projection.linear_layer.bias")
    if values is not None and sizes.get("n_mel_channels"):
        sizes["n_frames_per_step"] = values.numel() // sizes["n_mel_channels"]
    return sizes
