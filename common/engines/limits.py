"""What GPUs have, what kernels need of them, and whether the one is enough for the other."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

import torch

from melforge.common.cuda_streams import bindings, checked
from melforge.common.errors import InputError

OLDEST = (7, 5)  # the first compute capability of CUDA 13, and so of PyTorch's builds for it


class Limits(NamedTuple):
    """What a GPU has."""

    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int  # the most that a block can have
    cooperative: bool
    l2_bytes: int = 0

    @property
    def architecture(self) -> int:
        """As in sm_86."""
        return self.capability[0] * 10 + self.capability[1]

    @property
    def copies_tiles(self) -> bool:
        """Whether its tensor memory accelerator copies what a tensor descriptor describes."""
        return self.capability >= (9, 0)

    @property
    def multiplies_shared(self) -> bool:
        """Whether its tensor cores read shared memory themselves: elsewhere registers hold the operands."""
        return 9 <= self.capability[0] < 12

    def __str__(self) -> str:
        first = "compute capability {}.{}, {} multiprocessors".format(*self.capability, self.multiprocessors)
        l2 = f", {self.l2_bytes >> 20} MiB of L2" if self.l2_bytes else ""
        return f"{first}, {self.shared_bytes >> 10} KiB of shared memory a block{l2}"


# The largest blocks of shared memory by compute capability, of those that a kernel is compiled for elsewhere.
SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}
# The multiprocessors of GPUs that people own, from a laptop's to a data centre's.
MULTIPROCESSORS: dict[int, tuple[int, ...]] = {
    75: (14, 24, 30, 40, 48, 72),
    80: (56, 98, 108),
    86: (16, 20, 28, 30, 38, 46, 58, 68, 72, 80, 84),
    87: (8, 16),
    89: (24, 34, 46, 58, 66, 80, 128, 142),
    90: (114, 132),
    100: (148,),
    103: (160,),
    120: (20, 36, 50, 70, 84, 170, 188),
    121: (48,),
}
H200 = Limits((9, 0), 132, SHARED_KIB[90] << 10, True, 50 << 20)


class Needs(NamedTuple):
    """What the kernels of a stage need of a GPU, beside PyTorch."""

    capability: tuple[int, int] = OLDEST
    shared_bytes: int = 0  # of a block
    multiprocessors: int = 1
    cooperative: bool = False  # all blocks are resident, so that they may wait for each other
    triton: bool = True

    def lacking(self, device: str) -> str | None:
        """What a device lacks for them, in words; None: they run. An InputError of one before OLDEST."""
        limits = limits_of(device)
        if limits.capability < OLDEST:
            needed = ", ".join(Needs().unmet(limits))
            raise InputError(f"device {device!r}: --backend cuda needs {needed}; use --backend torch")
        if self.triton and not can_launch():
            return "ours need Triton"
        unmet = ", ".join(self.unmet(limits))
        return f"ours need {unmet}" if unmet else None

    def unmet(self, limits: Limits) -> Iterator[str]:
        """What a GPU lacks, each as "compute capability 8.0, not 7.5"."""
        if limits.capability < self.capability:
            wanted, found = ("{}.{}".format(*each) for each in (self.capability, limits.capability))
            yield f"compute capability {wanted}, not {found}"
        if limits.shared_bytes < self.shared_bytes:
            yield f"{self.shared_bytes >> 10} KiB of shared memory a block, not {limits.shared_bytes >> 10}"
        if limits.multiprocessors < self.multiprocessors:
            yield f"{self.multiprocessors} multiprocessors, not {limits.multiprocessors}"
        if self.cooperative and not limits.cooperative:
            yield "cooperative launches"


# Kernels of sums and exact products run everywhere. Products of float16 have tensor cores in Triton from 8.0
# on; without them they spill. GPUs from there on have this much shared memory, and tiles are chosen to fit.
PLAIN = Needs()
PRODUCTS = Needs(capability=(8, 0), shared_bytes=99 << 10)


@functools.cache
def can_launch() -> bool:
    """Whether Triton is here."""
    return importlib.util.find_spec("triton") is not None


@functools.cache
def device_limits(device: int) -> Limits:
    """Those of the GPU of this index. An InputError where PyTorch sees none."""
    _require_gpu(f"cuda:{device}")
    driver = bindings("driver")
    checked(driver.cuInit(0))
    handle, kinds = checked(driver.cuDeviceGet(device)), driver.CUdevice_attribute

    def ask(kind: str) -> int:
        return checked(driver.cuDeviceGetAttribute(getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{kind}"), handle))

    return Limits(
        (ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
        ask("MULTIPROCESSOR_COUNT"),
        ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        bool(ask("COOPERATIVE_LAUNCH")),
        ask("L2_CACHE_SIZE"),
    )


def limits_like(text: str) -> list[Limits]:
    """Of GPUs that are not here: "sm_86:46", by architecture and multiprocessors, or "sm_86" for many."""
    found = re.fullmatch(r"sm_(\d+)(?::(\d+))?", text)
    architecture = int(found[1]) if found else 0
    if not found or architecture not in SHARED_KIB:
        known = ", ".join(f"sm_{one}" for one in SHARED_KIB)
        raise InputError(f"{text!r} is no architecture: use one of {known}, or with multiprocessors sm_86:46")
    counts = (int(found[2]),) if found[2] else MULTIPROCESSORS[architecture]
    shared = SHARED_KIB[architecture] << 10
    return [Limits(divmod(architecture, 10), max(1, count), shared, cooperative=True) for count in counts]


_elsewhere: ContextVar[Limits] = ContextVar("elsewhere", default=H200)


@contextlib.contextmanager
def elsewhere(limits: Limits) -> Iterator[None]:
    """Kernels of tensors that are on no GPU are for one of these limits."""
    token = _elsewhere.set(limits)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def limits_of(device: str | torch.device) -> Limits:
    """A GPU's; on a CPU, where kernels are interpreted or compiled for elsewhere, an H200's or as given."""
    place = torch.device(device)
    if place.type != "cuda":
        return _elsewhere.get()
    if place.index is not None:
        return device_limits(place.index)
    _require_gpu(device)
    return device_limits(torch.cuda.current_device())


def _require_gpu(device: str | torch.device) -> None:
    if not torch.cuda.is_available():
        raise InputError(f"device {str(device)!r}: PyTorch sees no GPU here")
