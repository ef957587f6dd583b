"""Published WaveGlow files: NVIDIA's training checkpoints and state dicts, in float32 or float16, with every
prefix and kernel rank they were saved with. Weight norm is folded and the 1x1 convolutions are inverted when
loading. Files with a pickled module are refused: opening them would run code.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from melforge.common.errors import InputError
from melforge.common.weights import checkpoint as weights
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.model import Waveglow, invert

STATED_SIZES = ("n_mel_channels", "n_flows", "n_group", "n_early_every", "n_early_size")
STATED_WN_SIZES = {"n_layers": "wn_layers", "kernel_size": "wn_kernel_size", "n_channels": "wn_channels"}
# Second copies of the flows that NVIDIA's TorchScript preparation leaves in the state dict.
COPIES = ("WN_rev.", "convinv_rev.")


def load_checkpoint(path: str | Path, *, content: Mapping[str, Any] | None = None) -> weights.Checkpoint:
    """Sizes, folded weights with the inverses of the 1x1 convolutions, and facts of a published file.

    The hop, which shapes do not determine, is the published one. A file whose weights have other sizes than
    its own config states is refused.

    `info` holds `mel` (None: no file states its mel) and `epoch` where known.
    `content` is what `read_pt` gave of the file, where it is read already.
    """
    path = Path(path)
    content = weights.read_pt(path) if content is None else content
    state = weights.find_state(content, path, "WaveGlow", "state_dict", "model")
    state = current_names(weights.fold_weight_norm(state, path))
    weights.check_finite(state, path)
    sizes = _build_config(content, state, path)
    state = _with_inverses(state, path)
    weights.check_keys(weights.expected_shapes(lambda: Waveglow(sizes, weight_norm=False), path), state, path)
    epoch = content.get("epoch")
    return weights.Checkpoint(sizes, state, {"mel": None, **({} if epoch is None else {"epoch": epoch})})


def current_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Names as `Waveglow` has them.

    The authors' own later files have one conditioning layer for all layers of a coupling net.
    """
    renamed = {}
    for name, value in state.items():
        if name.startswith(COPIES):
            continue
        if match := re.fullmatch(r"(WN\.\d+)\.cond_layer\.(.*)", name):
            layers = sum(1 for n in state if re.fullmatch(rf"{re.escape(match[1])}\.in_layers\.\d+\.bias", n))
            for layer, part in enumerate(value.chunk(layers) if layers else ()):
                renamed[f"{match[1]}.cond_layers.{layer}.{match[2]}"] = part.clone()
        else:
            renamed[name] = value
    return renamed


def infer_sizes(state: Mapping[str, torch.Tensor], path: str | Path) -> dict[str, int]:
    """The sizes that names and shapes determine: not the hop, and not `n_early_*` without early outputs."""

    def numbers(pattern: str) -> int:
        return len({match[1] for name in state if (match := re.fullmatch(pattern, name))})

    upsample, start, first = (
        state.get(name) for name in ("upsample.weight", "WN.0.start.weight", "WN.0.in_layers.0.weight")
    )
    flows = [state.get(f"convinv.{k}.conv.weight") for k in range(numbers(r"convinv\.(\d+)\.conv\.weight"))]
    named = (upsample, start, first, *flows)
    kernels = [kernel for kernel in named if kernel is not None and kernel.dim() == 3]
    if not flows or len(kernels) < len(named):
        raise InputError(
            f"checkpoint {path} is no WaveGlow: its weights have other names ({', '.join(state)[:80]})"
        )
    upsample, start, first, *flows = kernels
    channels = [kernel.shape[0] for kernel in flows]
    sizes = {
        "n_mel_channels": upsample.shape[0],
        "n_flows": len(flows),
        "n_group": channels[0],
        "wn_layers": numbers(r"WN\.0\.in_layers\.(\d+)\.weight"),
        "wn_kernel_size": first.shape[2],
        "wn_channels": start.shape[0],
        "upsample_kernel_size": upsample.shape[2],
    }
    drop = next((flow for flow, count in enumerate(channels) if count != channels[0]), None)
    if drop is not None:
        sizes |= {"n_early_every": drop, "n_early_size": channels[0] - channels[drop]}
    return sizes


def _build_config(
    content: Mapping[str, Any], state: Mapping[str, torch.Tensor], path: Path
) -> WaveglowConfig:
    found, stated = infer_sizes(state, path), _stated_sizes(content, path)
    different = [
        f"{name} {stated[name]} instead of {value}"
        for name, value in found.items()
        if name in stated and stated[name] != value
    ]
    if different:
        raise InputError(
            f"checkpoint {path} does not fit: its config says {', '.join(different)}.\n"
            "Give the configuration that it was trained with, or none: its weights show their sizes."
        )
    sizes: dict[str, Any] = {**found, **stated}
    sizes.setdefault("n_early_every", sizes["n_flows"])  # no early outputs
    try:
        return WaveglowConfig(**sizes)
    except InputError as error:
        raise InputError(f"checkpoint {path}: {error}") from None


def _stated_sizes(content: Mapping[str, Any], path: Path) -> dict[str, int]:
    stated = content.get("config")
    if stated is None:
        return {}
    nested = stated.get("WN_config", {}) if isinstance(stated, Mapping) else None
    if not isinstance(nested, Mapping):
        raise InputError(f"checkpoint {path}: its config, or WN_config in it, is no mapping of sizes")
    sizes = {name: stated[name] for name in STATED_SIZES if name in stated}
    sizes |= {ours: nested[name] for name, ours in STATED_WN_SIZES.items() if name in nested}
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                f"checkpoint {path}: its config says {name}: {value!r}, which is not a positive whole number"
            )
    return sizes


def _with_inverses(state: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """The state with each 1x1 convolution's inverse; an InputError names the first singular one."""
    complete = dict(state)
    for name, value in state.items():
        if match := re.fullmatch(r"convinv\.(\d+)\.conv\.weight", name):
            if value.dim() != 3 or value.shape[0] != value.shape[1]:
                raise InputError(f"checkpoint {path}: {name} {tuple(value.shape)} is not square")
            what = f"checkpoint {path}: the 1x1 convolution of flow {match[1]}"
            complete[f"convinv.{match[1]}.inverse"] = invert(value[:, :, 0], what)[:, :, None]
    return complete
