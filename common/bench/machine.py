"""The machine that is measured: what it is, how fast it can be, and how much of its memory is taken."""

import ctypes
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.bench.timer import timed
from melforge.common.engines import Engine
from melforge.common.stages.choose import KERNELS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "torch", "tensorrt-rtx-cu13-bindings", "tensorrt")
GPU_MATRIX, CPU_MATRIX = 8192, 2048
GPU_COPY, CPU_COPY = 1 << 30, 1 << 28  # bytes
BUSY_PERIOD = 0.05  # seconds between looks at how busy a GPU is
CLOCKS = {"SM": 1, "memory": 2}  # NVML's kinds of clocks
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of `ru_maxrss`'s unit


def child_environment() -> dict[str, str]:
    """The variables of a child process that imports this copy of the packages."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}


def describe(device: str) -> Iterator[dict[str, Any]]:
    """In a worker: `versions`, with `peaks`: FLOP/s by precision, and bytes/s of memory."""
    found = versions(device)
    yield found | {"peaks": cpu_peaks() if device == "cpu" else gpu_peaks(device) if "gpu" in found else {}}


def versions(device: str) -> dict[str, Any]:
    found: dict[str, Any] = {"date": date.today().isoformat(), "commit": commit()}
    found |= {"cpu": cpu_name(), "cores": os.cpu_count(), "python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    if device == "cpu":
        return found
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        found |= {
            "gpu": torch.cuda.get_device_name(device),
            **gpu_details(device),
            "torch": torch.__version__,
        }
        found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        with suppress(Exception):
            trt = importlib.import_module("melforge.common.engines.tensorrt.api").load_tensorrt()
            found[trt.flavour] = trt.version
    return found


def gpu_details(device: str) -> dict[str, str]:
    """What the driver says of the GPU: its own version, UUID, memory and largest clocks."""
    properties = importlib.import_module("torch").cuda.get_device_properties(device)
    found = {"uuid": _uuid(properties), "gpu memory": f"{properties.total_memory / (1 << 20):.0f} MiB"}
    opened = open_nvml(device)
    if opened is None:
        return found
    nvml, handle = opened
    version, clock = ctypes.create_string_buffer(80), ctypes.c_uint()
    if not nvml.nvmlSystemGetDriverVersion(version, len(version)):
        found["driver"] = version.value.decode()
    for name, kind in CLOCKS.items():
        if not nvml.nvmlDeviceGetMaxClockInfo(handle, kind, ctypes.byref(clock)):
            found[f"largest {name} clock"] = f"{clock.value} MHz"
    return found


def cpu_name() -> str:
    return proc_value("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def proc_value(path: str, key: str) -> str:
    """The value of a key in a file of Linux's /proc, or "" where there is none."""
    with suppress(OSError):
        lines = (line.partition(":") for line in Path(path).read_text().splitlines())
        return next((value.strip() for name, _, value in lines if name.strip() == key), "")
    return ""


def commit() -> str:
    """The commit that runs, or what $MELFORGE_COMMIT says where there is no repository."""
    if os.environ.get("MELFORGE_COMMIT"):
        return os.environ["MELFORGE_COMMIT"]
    with suppress(OSError, subprocess.CalledProcessError):
        command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=7", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return "unknown"


def cpu_peaks() -> dict[str, float]:
    """By numpy, on as many threads as it takes."""
    matrix = np.random.default_rng(0).standard_normal((CPU_MATRIX, CPU_MATRIX), np.float32)
    source, target = np.ones(CPU_COPY, np.uint8), np.empty(CPU_COPY, np.uint8)
    flops = 2 * CPU_MATRIX**3 / fastest(lambda: matrix @ matrix)
    return {"fp32": flops, "bytes": 2 * CPU_COPY / fastest(lambda: np.copyto(target, source))}


def gpu_peaks(device: str) -> dict[str, float]:
    """By PyTorch, with TF32 and without it, and in half precision."""
    torch = importlib.import_module("torch")
    peaks = {}
    for precision, dtype in (("fp16", torch.half), ("tf32", torch.float32), ("fp32", torch.float32)):
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        matrix = torch.randn(GPU_MATRIX, GPU_MATRIX, device=device, dtype=dtype)
        peaks[precision] = 2 * GPU_MATRIX**3 / fastest(lambda matrix=matrix: matrix @ matrix, device)
    source = torch.ones(GPU_COPY, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return peaks | {"bytes": 2 * GPU_COPY / fastest(lambda: target.copy_(source), device)}


def fastest(run: Callable[[], Any], device: str = "cpu") -> float:
    return min(timed(run, 5, device, warm_up=1))


def reset_peak(device: str) -> None:
    """Restarts the count behind `peak_bytes`."""
    if device != "cpu":
        importlib.import_module("torch").cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # Linux: the highest resident set
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(device: str, engines: Sequence[Engine]) -> int:
    """On a GPU, PyTorch's allocations and what other runtimes' engines hold; on the CPU the whole process."""
    if device != "cpu":
        torch = importlib.import_module("torch")
        others = {id(e.memory_owner): e.memory_bytes for e in engines if e.backend not in ("torch", KERNELS)}
        return torch.cuda.max_memory_allocated(device) + sum(others.values())
    if held := proc_value("/proc/self/status", "VmHWM"):  # in kB
        return int(held.split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT


def held_bytes(device: str) -> int:
    """What is taken now: of a GPU's memory, by whatever process, or of the host's by this one."""
    if device != "cpu":
        free, total = importlib.import_module("torch").cuda.mem_get_info(device)
        return total - free
    held = proc_value("/proc/self/status", "VmRSS")  # in kB
    return int(held.split()[0]) * 1024 if held else peak_bytes(device, ())


@contextmanager
def busy_share(device: str) -> Iterator[Callable[[], float | None]]:
    """Within it the GPU's driver is asked how busy it is; what it gives says the mean share afterwards.

    That is the share of time in which any kernel ran. None on a CPU, and where the driver says nothing.
    """
    shares: list[float] = []
    read, over = utilisation(device), threading.Event()

    def watch() -> None:
        while read and (share := read()) is not None and not over.wait(BUSY_PERIOD):
            shares.append(share)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: sum(shares) / len(shares) if shares else None
    finally:
        over.set()
        thread.join()


class Utilisation(ctypes.Structure):
    """`nvmlUtilization_t`: in how many % of the time kernels ran, and memory was accessed."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def open_nvml(device: str) -> tuple[ctypes.CDLL, ctypes.c_void_p] | None:
    """NVML, the driver's library, and its handle of a GPU; None where there is none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle = ctypes.c_void_p()
    uuid = _uuid(importlib.import_module("torch").cuda.get_device_properties(device))
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
        return None
    return nvml, handle


def _uuid(properties: Any) -> str:
    """As NVML writes it; PyTorch's versions differ in its beginning."""
    return f"GPU-{str(properties.uuid).removeprefix('GPU-')}"


def utilisation(device: str) -> Callable[[], float | None] | None:
    """What asks the driver; None where it says nothing."""
    opened = None if device == "cpu" else open_nvml(device)
    if opened is None:
        return None
    (nvml, handle), found = opened, Utilisation()

    def read() -> float | None:
        failed = nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(found))
        return None if failed else found.gpu / 100

    return read
