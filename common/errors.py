"""Errors that a user can mend, and the sentences that name the way out."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable


class InputError(ValueError):
    """What was asked for or given cannot be: the message names it and the way out. Exit status 2."""


def unknown(what: str, name: object, available: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the nearest one that does."""
    available = list(available)
    near = difflib.get_close_matches(str(name), available, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}: {hint}available: {', '.join(available) or 'none'}"


def require_torch(what: str) -> None:
    """An InputError that says how to install PyTorch, where `what` needs it and it is not there."""
    try:
        importlib.import_module("torch")
    except ImportError:
        raise InputError(f"{what} needs PyTorch: pip install -e '.[torch]'") from None
