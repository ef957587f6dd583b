"""FastSpeech checkpoints of NVIDIA's CUDA-Optimized project: weights and a step, no sizes."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from melforge.common.errors import InputError
from melforge.common.weights import checkpoint as weights
from melforge.fastspeech.config import HEAD_SIZE, FastSpeechConfig
from melforge.fastspeech.model import FastSpeech, sinusoids

ADVICE = ".\nGive the checkpoint_*.pt that FastSpeech's training saved."
SIDES = ("phoneme_side", "mel_side")
TABLE_TOLERANCE = 1e-3  # above the rounding of a sinusoid in half precision


def load_checkpoint(path: str | Path, *, content: Mapping[str, Any] | None = None) -> weights.Checkpoint:
    """Sizes and weights of a published file; `info` holds the training `step` where the file states it.

    An InputError where the file is damaged, another model's, or has position tables that are not the
    published network's.
    `content` is what `read_pt` gave of the file, where it is read already.
    """
    content = weights.read_pt(path) if content is None else content
    state = dict(
        weights.find_state(content, path, "FastSpeech checkpoint", "model", "state_dict", advice=ADVICE)
    )
    weights.check_finite(state, path)
    config = weights.find_config(FastSpeechConfig, content, infer_sizes(state), path)
    _share_table(state, config, path)
    weights.check_keys(weights.expected_shapes(lambda: FastSpeech(config), path), state, path)
    return weights.Checkpoint(config, state, {key: content[key] for key in ("step",) if key in content})


def infer_sizes(state: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The sizes that names and shapes determine; heads have 64 channels each."""
    read, count = partial(weights.read_axes, state), partial(weights.count_layers, state)
    sizes: dict[str, Any] = read("word_emb.weight", n_symbols=0, d_model=1)
    sizes |= read("word_emb.weight", phoneme_side_output_size=1, mel_side_output_size=1)
    sizes |= read("mel_linear.weight", n_mel_channels=0)
    predictor = "length_regulator.duration_predictor.conv1d_1.weight"
    sizes |= read(predictor, duration_predictor_filter_size=0, duration_predictor_kernel_size=2)
    table = state.get(f"{SIDES[0]}.position.weight")
    if table is not None and table.dim() == 2:
        sizes["max_seq_len"] = len(table) - 1
    for side in SIDES:
        prefix = f"{side}.layer_stack."
        sizes |= count(prefix, f"{side}_n_layer")
        sizes |= read(f"{prefix}0.pos_ffn.w_1.weight", **{f"{side}_conv1d_filter_size": 0})
        sizes |= read(f"{prefix}0.pos_ffn.w_1.weight", fft_conv1d_kernel=2)
        output = state.get(f"{prefix}0.slf_attn.fc.weight")
        if output is not None and output.dim() == 2:
            sizes[f"{side}_head"] = output.shape[1] // HEAD_SIZE
    if "fft_conv1d_kernel" in sizes:
        sizes["fft_conv1d_padding"] = sizes["fft_conv1d_kernel"] // 2
    return sizes


def _share_table(state: dict[str, torch.Tensor], config: FastSpeechConfig, path: str | Path) -> None:
    """Replaces the two position tables, which are constant, by the shared one."""
    expected = sinusoids(config.max_seq_len, config.d_model)
    for side in SIDES:
        table = state.pop(f"{side}.position.weight", None)
        if table is None:
            continue  # check_keys reports it
        if table.shape != expected.shape or (table.float() - expected).abs().max() > TABLE_TOLERANCE:
            raise InputError(f"{path}: {side}.position.weight is not the sinusoid table of this network")
        state["position.weight"] = table
