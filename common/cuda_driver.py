"""CUDA itself, through `cuda.bindings`, which PyTorch's CUDA builds bring along."""

from __future__ import annotations

import importlib
from typing import Any


def bindings(name: str) -> Any:
    """A module of `cuda.bindings`; a ValueError where it is not installed."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError:
        raise ValueError(
            "this needs cuda.bindings, which PyTorch's CUDA builds bring along: "
            "pip install cuda-bindings, of the version of CUDA that PyTorch was built for"
        ) from None


def checked(answer: tuple) -> Any:
    """What a call of CUDA's gives behind its status, once the status says that all is well.

    Nothing, one value, or a tuple of several.
    """
    status, *values = answer
    if status != 0:
        raise RuntimeError(f"CUDA says {status.name}")
    return tuple(values) if len(values) > 1 else values[0] if values else None
