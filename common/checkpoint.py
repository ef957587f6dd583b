"""Reading published `.pt` files safely: no code in them is run, and a file that does not fit is refused."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

PREFIX = re.compile(r"^(module\.)+(\d+\.)?")
NAMES_SHOWN = 4


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a model's checkpoint.py reads from a file: sizes, checked float32 weights, and further facts."""

    config: Any
    state: Mapping[str, torch.Tensor]
    info: Mapping[str, Any] = field(default_factory=dict)

    def numpy_state(self) -> dict[str, np.ndarray]:
        return {name: value.numpy() for name, value in self.state.items()}


def read_pt(path: str | Path) -> dict:
    """Load a checkpoint on the CPU without running code in it; a ValueError says why a file is refused."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the checkpoint file in it")
    if not path.exists():
        raise FileNotFoundError(f"checkpoint {path} not found")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's thoughts on old files are not for our users
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(_refusal(path, str(error))) from None
    except OSError as error:
        raise ValueError(f"checkpoint {path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # a damaged file can fail anywhere inside the unpickler
        raise ValueError(_refusal(path, str(error))) from None
    if not isinstance(content, dict):
        raise ValueError(
            f"checkpoint {path} holds a {type(content).__name__}, not a dictionary: "
            "give a file that holds a state dict or a training checkpoint"
        )
    return content


def _refusal(path: Path, reason: str) -> str:
    refused_global = re.search(r"(?:GLOBAL:?|class) ([a-z_]\w*\.[\w.]*\w)", reason)
    if refused_global:
        return (
            f"checkpoint {path} wants to run code when it is opened ({refused_global[1]}) and is refused.\n"
            "If you trust where it came from, save its state dict alone with torch.save and give that file."
        )
    if "TorchScript" in reason:
        return (
            f"checkpoint {path} is a TorchScript program, which holds code, and is refused.\n"
            "Give the training checkpoint that it was made from."
        )
    return (
        f"checkpoint {path} is not a complete PyTorch file ({path.stat().st_size} bytes).\n"
        "Download or copy it again and compare its size with the original."
    )


def strip_prefix(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Names without the wrappers' `module.` (also `module.1.`, which files of 2019 carry)."""
    return {PREFIX.sub("", name): value for name, value in state.items()}


def widen(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Half-precision tensors as float32; all others as they are."""
    half = (torch.float16, torch.bfloat16)
    return {name: value.float() if value.dtype in half else value for name, value in state.items()}


def one_dimensional(name: str, value: torch.Tensor) -> torch.Tensor:
    """Kernels trained as two-dimensional (channels-last) convolutions carry a last axis of size 1."""
    if name.endswith("bias"):
        return value.flatten() if value.numel() == value.shape[0] else value
    if value.dim() == 4 and value.shape[3] == 1:
        return value.squeeze(3)
    return value.unsqueeze(2) if value.dim() == 2 else value


def fold_weight_norm(state: Mapping[str, torch.Tensor], path: str | Path) -> dict[str, torch.Tensor]:
    """weight_g and weight_v -> weight; all else as it is. The norm is over all axes but the first."""
    folded = {}
    for name, value in state.items():
        stem, _, part = name.rpartition(".")
        if part == "weight_g" and f"{stem}.weight_v" in state:
            continue
        if part == "weight_v" and f"{stem}.weight_g" in state:
            length, axes = state[f"{stem}.weight_g"], tuple(range(1, value.dim()))
            if length.numel() != value.shape[0]:
                raise ValueError(
                    f"checkpoint {path}: {stem}.weight_g {tuple(length.shape)} does not fit "
                    f"weight_v {tuple(value.shape)}"
                )
            norm = torch.linalg.vector_norm(value, dim=axes, keepdim=True)
            name, value = f"{stem}.weight", value * (length.reshape(norm.shape) / norm)
        folded[name] = value
    return folded


def check_tensors(state: Mapping, path: str | Path) -> None:
    """A ValueError if `state` is not a dictionary of named tensors."""
    foreign = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if foreign or not state:
        what = f"{foreign[0]!r} is a {type(state[foreign[0]]).__name__}" if foreign else "it is empty"
        raise ValueError(f"checkpoint {path} holds no state dict ({what}, not a tensor)")


def check_finite(state: Mapping[str, torch.Tensor], path: str | Path) -> None:
    """A ValueError naming the first tensor that holds NaN or infinity."""
    for name, value in state.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            bad = int((~torch.isfinite(value)).sum())
            raise ValueError(
                f"checkpoint {path}: {name} holds {bad} NaN or infinite values of {value.numel()}; "
                "the weights are damaged or the training had diverged: use an earlier checkpoint"
            )


def check_keys(
    expected_shapes: Mapping[str, Sequence[int]],
    state: Mapping[str, torch.Tensor],
    path: str | Path,
    optional_prefixes: Iterable[str] = (),
) -> None:
    """A ValueError that lists missing and unexpected names, or else shapes that differ.

    Names that begin with one of `optional_prefixes` may be missing or too many; where they are in both,
    their shapes must agree as well.
    """
    optional = tuple(optional_prefixes)
    missing = [n for n in expected_shapes if n not in state and not n.startswith(optional)]
    unexpected = [n for n in state if n not in expected_shapes and not n.startswith(optional)]
    if missing or unexpected:
        parts = [
            _some(f"{len(n)} {what}", n)
            for what, n in (("missing", missing), ("unexpected", unexpected))
            if n
        ]
        raise ValueError(
            f"checkpoint {path} does not fit: {'; '.join(parts)}.\n"
            "It belongs to another model, or to other sizes than its config says."
        )
    wrong = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(shape)}"
        for name, shape in expected_shapes.items()
        if name in state and tuple(state[name].shape) != tuple(shape)
    ]
    if wrong:
        raise ValueError(f"checkpoint {path}: " + _some(f"{len(wrong)} tensors have other sizes", wrong))


def _some(title: str, names: Sequence[str]) -> str:
    return f"{title}: {', '.join(names[:NAMES_SHOWN])}{', ...' if len(names) > NAMES_SHOWN else ''}"
