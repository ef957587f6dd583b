"""Errors that a user can mend, and the sentences that name the way out."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable


def unknown(what: str, name: object, available: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the nearest one that does."""
    available = list(available)
    near = difflib.get_close_matches(str(name), available, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}: {hint}available: {', '.join(available) or 'none'}"


def require_torch(what: str) -> None:
    """A ValueError that says how to install PyTorch, where `what` needs it and it is not there."""
    try:
        importlib.import_module("torch")
    except ImportError:
        raise ValueError(f"{what} needs PyTorch: pip install -e '.[torch]'") from None
