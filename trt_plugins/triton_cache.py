"""What Triton keeps of the kernels that it compiles, and how it loads it again."""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from melforge.common.files import cache_folder, write_bytes

_launchers = itertools.count()


def keep_kernels() -> None:
    """Triton keeps what it compiles in Melforge's cache, unless $TRITON_CACHE_DIR names another folder."""
    os.environ["TRITON_CACHE_DIR"] = str(_kernels_folder())
    with contextlib.suppress(ImportError):
        cast(Any, importlib.import_module("triton.runtime.build"))._load_module_from_path = load_launcher
        naming: Any = importlib.import_module("triton.runtime.cache")
        made = getattr(naming, "triton_key", None)  # Triton's older versions have it elsewhere
        if made and not isinstance(made, KeptKey):
            naming.triton_key = KeptKey(made)


def _kernels_folder() -> Path:
    return Path(os.environ.get("TRITON_CACHE_DIR") or cache_folder() / "triton")


class KeptKey:
    """What Triton's compiler is called in the names of compiled kernels: Triton reads all of it for that,
    for 0.4 s. So it is kept beside the kernels, by what the package's record says of its files.
    """

    def __init__(self, made: Callable[[], str]):
        self._made, self._key, self._turn = made, "", threading.Lock()

    def __call__(self) -> str:
        with self._turn:
            self._key = self._key or self._find()
        return self._key

    def _find(self) -> str:
        try:
            record = importlib.metadata.distribution("triton").read_text("RECORD") or ""
        except importlib.metadata.PackageNotFoundError:
            record = ""
        lines = [line for line in record.splitlines() if line.startswith("triton/") and ",sha256=" in line]
        if not any("/libtriton." in line for line in lines):  # built in place
            return self._made()
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
        kept = _kernels_folder() / f"compiler-{digest}"
        if kept.is_file():
            return kept.read_text()
        key = self._made()
        with contextlib.suppress(OSError):  # a folder that others made, which only they may write to
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(kept, key.encode())
        return key


def load_launcher(name: str, path: str) -> ModuleType:
    """In place of Triton's loader of its C modules, whose launchers all have one name: of one that is loaded
    again, Python puts the functions into the module of that name, which another thread may be about to read.
    """
    own = f"melforge_launcher_{next(_launchers)}.{name}"
    spec = importlib.util.spec_from_file_location(own, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module of Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
