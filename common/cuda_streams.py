"""CUDA's bindings for Python, and streams of a GPU that one engine has for itself."""

import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any

import torch

from melforge.common.errors import InputError

_unused_streams: dict[int, list[int]] = {}  # by the GPU's index
# By CUDA's number of each. Not weakly: PyTorch leaves weak references to its streams dangling.
_known_streams: dict[int, torch.cuda.Stream] = {}

Handle = Any  # of cuda.bindings, which has no types: a module, or what its functions take and give


def bindings(name: str) -> Handle:
    """A module of `cuda.bindings`; an InputError where it is not installed."""
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError:
        raise InputError(
            "this needs cuda.bindings, which PyTorch's CUDA builds bring along: "
            "pip install cuda-bindings, of the version of CUDA that PyTorch was built for"
        ) from None


def checked(answer: tuple) -> Handle:
    """What a CUDA function returns behind its status: nothing, one value, or a tuple of several.

    A RuntimeError where the status is not success.
    """
    status, *values = answer
    if status != 0:
        raise RuntimeError(f"CUDA says {status.name}")
    return tuple(values) if len(values) > 1 else values[0] if values else None


class OwnStream(torch.cuda.ExternalStream):
    """Gives its stream back. Work may still be on it: it is used again, and never destroyed."""

    unused: list[int] | None = None

    def __del__(self) -> None:
        if self.unused is not None:
            self.unused.append(self.cuda_stream)


def new_stream(device: torch.device | str) -> torch.cuda.Stream:
    """A stream that nobody else gets while this object is there.

    PyTorch's own are 32, given in turn: what one engine launches would be captured by another.
    """
    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    unused = _unused_streams.setdefault(index, [])
    try:
        pointer = unused.pop()
    except IndexError:
        runtime = bindings("runtime")
        with torch.cuda.device(index):
            pointer = int(checked(runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking)))
        _known_streams[pointer] = torch.cuda.ExternalStream(pointer, torch.device("cuda", index))
    stream = OwnStream(pointer, torch.device("cuda", index))
    stream.unused = unused
    return stream


_default_stream = functools.cache(torch.cuda.default_stream)


def current_stream(index: int) -> torch.cuda.Stream:
    """That of a GPU. `torch.cuda.current_stream` makes a new object each time, which takes microseconds."""
    pointer = torch._C._cuda_getCurrentRawStream(index)
    known = _known_streams.get(pointer) if pointer else _default_stream(index)
    return torch.cuda.current_stream(index) if known is None else known


@contextlib.contextmanager
def own_stream(stream: torch.cuda.Stream) -> Iterator[torch.cuda.Stream]:
    """The caller's stream, or for a caller on the default one `stream`, ordered after and before it.

    On the default stream TensorRT would make the host wait, and nothing can be captured.
    """
    current = current_stream(stream.device_index)
    if current.cuda_stream:
        yield current
        return
    device = torch.cuda.current_device()
    stream.wait_stream(current)
    torch.cuda.set_stream(stream)  # and its GPU: `torch.cuda.stream` does the same in several times the time
    try:
        yield stream
    finally:
        torch.cuda.set_stream(current)
        if device != stream.device_index:
            torch.cuda.set_device(device)
    current.wait_stream(stream)
