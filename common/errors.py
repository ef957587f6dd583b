"""Errors that a user can mend, and the sentences that name the way out."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType


class InputError(ValueError):
    """What was asked for or given cannot be: the message names it and the way out. Exit status 2."""


def close_matches(word: str, names: Iterable[str], cutoff: float, most: int = 1) -> list[str]:
    """The names most like a word in any case, the nearest first; `cutoff` is the least ratio of difflib."""
    import difflib  # for errors only: it takes a while to import

    folded = {name.casefold(): name for name in names}
    return [folded[one] for one in difflib.get_close_matches(word.casefold(), folded, most, cutoff)]


LONGEST_NAME = 200  # characters of one that does not exist: comparing a longer one takes long


def unknown(what: str, name: object, available: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the nearest one that does."""
    available, name = list(available), name[:LONGEST_NAME] if isinstance(name, str) else name
    near = close_matches(str(name), available, 0.5)  # of short words less is chance: "nope", "jasper"
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}: {hint}available: {', '.join(available) or 'none'}"


def with_article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


def counted(number: int, noun: str) -> str:
    """ "1 tensor", "2 tensors"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


IN_CHECKOUT = Path(__file__).resolve().parents[1].joinpath("setup.py").exists()
INSTALL = (
    "run python3 -m venv .venv && .venv/bin/pip install -e . in the checkout, then use .venv/bin/python"
    if IN_CHECKOUT
    else "pip install --force-reinstall melforge"
)
# Each package that may be missing, and the extra of pyproject.toml that brings it ("": the base install).
PACKAGES = {
    **dict.fromkeys(("numpy", "onnxruntime", "soundfile", "yaml", "safetensors"), ""),
    **dict.fromkeys(("anyascii", "soxr", "tqdm"), ""),
    **dict.fromkeys(("torch", "onnx", "onnxscript", "inflect"), "torch"),
    "matplotlib": "plot",
    **dict.fromkeys(("hibari", "pocketsphinx", "pyworld"), "train"),
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client", "websockets"), "serve"),
    "python_multipart": "serve",
    "sounddevice": "play",
    "tritonclient": "triton-client",
    "pyarrow": "parquet",
    "fsspec": "remote",
    "wyoming": "wyoming",
    "riva.client": "riva",
    "mcp": "mcp",
    "pg8000": "postgres",
    "opentelemetry": "otel",
    "ray": "ray",
    "jiwer": "eval",
}


def install_command(extra: str) -> str:
    """How to install what an extra of pyproject.toml brings, in a checkout or from PyPI."""
    return f"pip install -e '.[{extra}]'" if IN_CHECKOUT else f"pip install 'melforge[{extra}]'"


def install_advice(package: str, what: str = "this", extra: str | None = None) -> str:
    """The sentence about a package that is missing; `extra` brings it with others that `what` needs."""
    title = {"torch": "PyTorch"}.get(package, package)
    if extra is None and package not in PACKAGES:  # a recipe's
        return f"{what} needs {title}: pip install {title}"
    extra = PACKAGES[package] if extra is None else extra
    return f"{what} needs {title}: " + (install_command(extra) if extra else INSTALL)


def require_package(package: str, what: str, extra: str | None = None) -> ModuleType:
    """An optional package; where it is not there, an InputError that says how `what` gets it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError(install_advice(package, what, extra)) from None


def require_torch(what: str) -> None:
    require_package("torch", what)
