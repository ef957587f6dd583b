"""Published FastPitch checkpoints: a training file with its config, one without it, or a bare state dict."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from melforge.common.weights import checkpoint as weights
from melforge.fastpitch.config import DEFAULT_PITCH, FastPitchConfig
from melforge.fastpitch.model import FastPitch

# Settings of the training that inference needs: the text frontend and the mel contract.
TEXT_SETTINGS = ("symbol_set", "text_cleaners", "p_arpabet", "prepend_space_to_text", "append_space_to_text")
AUDIO_SETTINGS = ("sampling_rate", "filter_length", "hop_length", "win_length", "mel_fmin", "mel_fmax")
# The aligner is used in training only; files for inference do not have it.
OPTIONAL = ("attention.",)
PUBLISHED_HEAD_SIZE = 64
ADVICE = ".\nGive the file of an acoustic model, as training saved it."


def load_checkpoint(
    path: str | Path, ema: bool = False, *, content: Mapping[str, Any] | None = None
) -> weights.Checkpoint:
    """Sizes, weights and settings of a FastPitch file; `ema` asks for the averaged weights.

    `info` holds `ema_available`, `pitch_mean` and `pitch_std` in Hz, `epoch` and `iteration` where known, and
    of TEXT_SETTINGS and AUDIO_SETTINGS those that the file states.
    `content` is what `read_pt` gave of the file, where it is read already.
    """
    content = weights.read_pt(path) if content is None else content
    average = "ema_state_dict" if ema else None
    state = weights.find_state(
        content, path, "FastPitch checkpoint", "state_dict", average=average, advice=ADVICE
    )
    weights.check_finite(state, path)
    config = weights.find_config(FastPitchConfig, content, infer_sizes(state), path)
    weights.check_keys(weights.expected_shapes(lambda: FastPitch(config), path), state, path, OPTIONAL)
    return weights.Checkpoint(config, state, _info(content, state))


def infer_sizes(state: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The sizes that names and shapes determine. No shape gives the number of heads: heads have 64
    channels, as published, where these divide evenly, else there is one head."""
    read, count = partial(weights.read_axes, state), partial(weights.count_layers, state)
    sizes: dict[str, Any] = {"energy_conditioning": any(name.startswith("energy_") for name in state)}
    sizes |= read("encoder.word_emb.weight", n_symbols=0, symbols_embedding_dim=1)
    sizes |= read("speaker_emb.weight", n_speakers=0)
    sizes |= read("proj.weight", n_mel_channels=0, out_fft_output_size=1)
    sizes |= read("pitch_emb.weight", pitch_embedding_kernel_size=2)
    sizes |= read("energy_emb.weight", energy_embedding_kernel_size=2)
    sizes |= read("duration_predictor.layers.0.conv.weight", in_fft_output_size=1)
    for name, word in (("dur", "duration"), ("pitch", "pitch"), ("energy", "energy")):
        sizes |= count(f"{word}_predictor.layers.", f"{name}_predictor_n_layers")
        filters, kernel = f"{name}_predictor_filter_size", f"{name}_predictor_kernel_size"
        sizes |= read(f"{word}_predictor.layers.0.conv.weight", **{filters: 0, kernel: 2})
    for side, prefix in (("in", "encoder.layers."), ("out", "decoder.layers.")):
        sizes |= count(prefix, f"{side}_fft_n_layers")
        filters, kernel = f"{side}_fft_conv1d_filter_size", f"{side}_fft_conv1d_kernel_size"
        sizes |= read(f"{prefix}0.pos_ff.CoreNet.0.weight", **{filters: 0, kernel: 2})
        if (output := state.get(f"{prefix}0.dec_attn.o_net.weight")) is not None and output.dim() == 2:
            channels = output.shape[1]
            heads = channels // PUBLISHED_HEAD_SIZE if channels % PUBLISHED_HEAD_SIZE == 0 else 1
            sizes |= {f"{side}_fft_n_heads": heads, f"{side}_fft_d_head": channels // heads}
    return sizes


def _info(content: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    mean, std = (float(state[name][0]) for name in ("pitch_mean", "pitch_std"))
    if std == 0:
        mean, std = DEFAULT_PITCH
    setup = content.get("train_setup")
    settings = setup if isinstance(setup, Mapping) else {}
    found = {"ema_available": bool(content.get("ema_state_dict")), "pitch_mean": mean, "pitch_std": std}
    found |= {key: content[key] for key in ("epoch", "iteration") if key in content}
    names = (*TEXT_SETTINGS, *AUDIO_SETTINGS, "max_wav_value")
    return found | {key: settings[key] for key in names if key in settings}
