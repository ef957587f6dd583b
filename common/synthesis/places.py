"""Where several workers of one machine speak: `--device cuda:all`, or a list as in cuda:0,cuda:2."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from melforge.common.errors import InputError, require_torch

ALL = "cuda:all"
MEMORY_SHARE = 0.9  # of a GPU's that all its workers together may take
WORKER_BYTES = 4 << 30
WORKER_CORES = 2
MOST_ON_A_GPU = 16


@dataclass(frozen=True)
class WorkerPlace:
    """The device of a worker, and the share of a GPU's memory that PyTorch may take there (1: no limit)."""

    device: str
    share: float = 1.0
    memory: int = 0  # bytes of that share, where it is known

    def claim(self) -> str:
        """The device as this process calls it from then on. With a share it is the only GPU that the process
        sees: call it before CUDA is in use.
        """
        if self.share == 1:
            return self.device
        number, visible = self.device.partition(":")[2], os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[int(number)] if visible else number
        torch = importlib.import_module("torch")
        torch.cuda.set_per_process_memory_fraction(self.share)
        torch.set_num_threads(1)  # the processes beside it take the other cores
        return "cuda"


def is_several(device: str, per_gpu: int | None) -> bool:
    """Whether what is given for --device and --workers-per-gpu asks for places (`places_of`)."""
    return device == ALL or "," in device or per_gpu is not None


def places_of(device: str, per_gpu: int | None, **others: bool) -> tuple[WorkerPlace, ...]:
    """A place for each worker: of a list one on each CPU and `per_gpu` on each GPU (None: as many as
    `workers_per_gpu` says). Neighbours are on different devices. InputErrors, one of them for each of the
    `others`, options that say otherwise how many there are, that is given.
    """
    for name in filter(others.get, others):
        raise InputError(f"--{name} is not for several devices, nor for --workers-per-gpu: leave it out")
    devices = [word.strip() for word in device.replace("auto", "cuda").split(",")]
    if not all(re.fullmatch(r"cpu|cuda(:\d+|:all)?", one) for one in devices):
        raise InputError(f"unknown device {device!r}: use cpu, cuda, cuda:N, {ALL}, or several with commas")
    if "cpu" in devices:
        if per_gpu is not None or set(devices) != {"cpu"}:
            raise InputError(f"--device {device}: either the CPU or GPUs, which --workers-per-gpu is for")
        return tuple(map(WorkerPlace, devices))
    sizes = memory_of_gpus()
    if devices == [ALL]:
        devices = [f"cuda:{number}" for number in range(len(sizes))]
    numbers = [int(one.partition(":")[2] or 0) for one in devices if one != ALL]
    if len(set(numbers)) < len(devices):
        raise InputError(f"--device {device}: of several GPUs each can be named once")
    if not sizes:
        raise InputError(f"--device {device}: PyTorch sees no GPU here; use --device cpu")
    if max(numbers) >= len(sizes):
        raise InputError(f"--device {device}: PyTorch sees {len(sizes)} GPUs here, from cuda:0 on")
    smallest = min(sizes[number] for number in numbers)
    count = per_gpu or workers_per_gpu(smallest, usable_cores(), len(devices))
    share = MEMORY_SHARE / count
    places = [WorkerPlace(f"cuda:{number}", share, round(share * sizes[number])) for number in numbers]
    return tuple(places * count)


def workers_per_gpu(memory: int, cores: int, gpus: int) -> int:
    """How many workers share a GPU of so many bytes, on a machine of so many cores and GPUs.

    As many as have 4 GiB of the GPU and two cores each, 16 at most, and one at least. On an H200 with 16
    cores 1, 2, 4 and 8 processes spoke 1,570, 3,163, 5,682 and 6,348 texts a second (the voice's FastPitch
    and HiFi-GAN on CUDA kernels, batches of 32), with 2.3 GB each. One alone kept the GPU busy a quarter of
    the time, and 1.3 cores. With 32 cores, 64 streams of a server heard their first audio after 19 ms from
    16 and after 30 ms from 8.
    """
    return max(
        1, min(int(MEMORY_SHARE * memory) // WORKER_BYTES, cores // gpus // WORKER_CORES, MOST_ON_A_GPU)
    )


def memory_of_gpus() -> list[int]:
    """Bytes of each GPU that programs of this process's environment see, without beginning to use one."""
    require_torch(f"--device {ALL} and --workers-per-gpu")
    if not importlib.import_module("torch").cuda.device_count():
        return []
    cuda = importlib.import_module("melforge.common.cuda_streams")
    driver = cuda.bindings("driver")
    cuda.checked(driver.cuInit(0))
    handles = [cuda.checked(driver.cuDeviceGet(n)) for n in range(cuda.checked(driver.cuDeviceGetCount()))]
    return [cuda.checked(driver.cuDeviceTotalMem(handle)) for handle in handles]


def usable_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(places: Sequence[WorkerPlace]) -> str:
    """The line that says what was chosen."""
    devices = list(dict.fromkeys(place.device for place in places))
    each = f", {len(places) // len(devices)} each" if len(devices) > 1 else ""
    words = f"{len(places)} workers{each} on {', '.join(devices)}"
    smallest = min(place.memory for place in places)
    return f"{words}; PyTorch takes at most {smallest / 1e9:.1f} GB a worker" if smallest else words
