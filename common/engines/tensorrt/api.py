"""Finds TensorRT: the full one (`tensorrt`) or TensorRT for RTX, whichever is installed or asked for.

All other code is written once, for the API that both share; features of only one are tested with hasattr.
Precision is never a builder flag: networks are strongly typed, the only kind in TensorRT 11 and RTX.
"""

import functools
import importlib
import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from melforge.common.errors import InputError, install_command, unknown

# Flavours in the order of preference, and the modules that may hold them.
MODULES = {"tensorrt": ("tensorrt",), "tensorrt_rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings")}
TITLES = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT for RTX"}
OLDEST = {"tensorrt": (10, 13), "tensorrt_rtx": (1, 4)}  # whose parsers take weights from memory
VARIABLE = "MELFORGE_TENSORRT"
INSTALL = f"{install_command('trt')} (TensorRT for RTX), or pip install 'tensorrt>=10.13'"
ApiObject = Any  # of TensorRT's Python API, which has no types


@dataclass(frozen=True, eq=False)
class TensorRT:
    """One of the two flavours, imported."""

    flavour: str
    api: ModuleType

    @property
    def version(self) -> str:
        return self.api.__version__

    @property
    def title(self) -> str:
        return f"{TITLES[self.flavour]} {self.version}"

    @property
    def portable(self) -> bool:
        """Whether an engine runs on any GPU: it is then compiled for the GPU at its first run."""
        return self.flavour == "tensorrt_rtx"


def load_tensorrt(flavour: str | None = None) -> TensorRT:
    """The flavour asked for, else that of $MELFORGE_TENSORRT, else the first that is installed."""
    wanted = flavour or os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in MODULES:
        where = "--tensorrt" if flavour else f"${VARIABLE}"
        raise InputError(f"{where}: {unknown('flavour', wanted, MODULES)}")
    return _load(wanted)


@functools.cache
def _load(wanted: str | None) -> TensorRT:
    for flavour in [wanted] if wanted else MODULES:
        for name in MODULES[flavour]:
            try:
                api = importlib.import_module(name)
            except ImportError:
                continue
            if hasattr(api, "Builder"):  # a folder of that name is a module too
                return _checked(TensorRT(flavour, api))
    raise InputError(f"{TITLES[wanted or 'tensorrt']} is not installed: {INSTALL}")


def _checked(found: TensorRT) -> TensorRT:
    oldest = OLDEST[found.flavour]
    numbers = tuple(int(part) for part in found.version.split(".")[:2] if part.isdecimal())
    if numbers < oldest:
        raise InputError(f"{found.title} is too old: {'.'.join(map(str, oldest))} or later is needed")
    return found


class Messages:
    """TensorRT's errors and warnings, as (severity's name, text)."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []

    def reason(self) -> str:
        """The first error. Without a GPU each is followed by one about CUDA, which is no reason."""
        errors = [text for severity, text in self.messages if severity != "WARNING"]
        reasons = [text for text in errors if "catchCudaError" not in text] or errors
        return reasons[0][:400] if reasons else "it gives no reason"

    def warnings(self) -> list[str]:
        texts = (text[:400] for severity, text in self.messages if severity == "WARNING")
        # Inputs are int64 where their stage declares so.
        return list(dict.fromkeys(text for text in texts if "Int64 binding" not in text))


def make_logger(found: TensorRT) -> Messages:
    """A logger for TensorRT that keeps its messages."""

    class Logger(found.api.ILogger, Messages):
        def __init__(self) -> None:
            found.api.ILogger.__init__(self)
            Messages.__init__(self)

        def log(self, severity: ApiObject, message: str) -> None:
            if severity.name in ("INTERNAL_ERROR", "ERROR", "WARNING"):
                self.messages.append((severity.name, " ".join(message.split())))

    return Logger()
