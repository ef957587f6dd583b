"""Errors that a user can mend, and the sentences that name the way out."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType


class InputError(ValueError):
    """What was asked for or given cannot be: the message names it and the way out. Exit status 2."""


def unknown(what: str, name: object, available: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the nearest one that does."""
    available = list(available)
    near = difflib.get_close_matches(str(name), available, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}: {hint}available: {', '.join(available) or 'none'}"


def require_package(module: str, title: str, extra: str, what: str) -> ModuleType:
    """An optional package's module; where it is not there, an InputError that says how `what` gets it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{what} needs {title}: pip install -e '.[{extra}]'") from None


def require_torch(what: str) -> None:
    require_package("torch", "PyTorch", "torch", what)


def require_matplotlib(what: str) -> None:
    require_package("matplotlib", "matplotlib", "plot", what)
