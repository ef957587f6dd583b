"""How Triton compiles for Melforge: where it keeps the kernels, and what it asks of the GPU."""

import contextlib
import hashlib
import importlib
import importlib.metadata
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from melforge.common.engines.limits import Limits
from melforge.common.files import cache_folder, write_bytes


def set_up() -> None:
    """Triton keeps what it compiles in Melforge's cache, unless $TRITON_CACHE_DIR names another folder."""
    os.environ["TRITON_CACHE_DIR"] = str(_kernels_folder())
    with contextlib.suppress(ImportError):
        config: Any = importlib.import_module("triton.runtime.driver").driver
        if getattr(config, "_active", True) is None:
            config.set_active(GPU(config))
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


class GPU:
    """In place of Triton's driver, for which a C compiler makes a module: of that one only what is asked
    beyond the GPU's name. With `limits` another GPU is named, for which kernels are only compiled.
    """

    def __init__(self, config: Any, limits: Limits | None = None):
        self._config, self._limits = config, limits

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        capability = self._limits.capability if self._limits else torch.cuda.get_device_capability()
        return GPUTarget("cuda", 10 * capability[0] + capability[1], 32)

    def get_current_device(self) -> int:
        """By which Triton keeps kernels."""
        return self._limits.architecture if self._limits else torch.cuda.current_device()

    def get_current_stream(self, device: int) -> int:
        return 0 if self._limits else torch.cuda.current_stream(device).cuda_stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config.default, name)


@contextlib.contextmanager
def compiling_for(limits: Limits) -> Iterator[None]:
    """Triton takes a GPU of these limits for the one at hand."""
    set_up()
    config: Any = importlib.import_module("triton.runtime.driver").driver
    before = config.active
    config.set_active(GPU(config, limits))
    try:
        yield
    finally:
        config.set_active(before)
