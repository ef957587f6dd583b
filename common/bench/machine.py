"""The machine that is measured: what it is, and how much of its memory is taken."""

import importlib
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from melforge.common.engines import Engine
from melforge.common.stages.choose import KERNELS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "torch", "tensorrt-rtx-cu13-bindings", "tensorrt")
SMI = "nvidia-smi"  # the driver's own program
DRIVER = {  # what it is asked for
    "driver": "driver_version",
    "gpu memory": "memory.total",
    "largest SM clock": "clocks.max.sm",
    "largest memory clock": "clocks.max.memory",
}
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of `ru_maxrss`'s unit


def child_environment() -> dict[str, str]:
    """The variables of a child process that imports this copy of the packages."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}


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
        found |= {"gpu": torch.cuda.get_device_name(device), **gpu_details(device)}
        found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        with suppress(Exception):
            trt = importlib.import_module("melforge.common.engines.tensorrt.api").load_tensorrt()
            found[trt.flavour] = trt.version
    return found


def gpu_details(device: str) -> dict[str, str]:
    """What the driver says of the GPU; only its UUID where it says nothing."""
    uuid = importlib.import_module("torch").cuda.get_device_properties(device).uuid
    found = {"uuid": f"GPU-{str(uuid).removeprefix('GPU-')}"}  # PyTorch's versions differ in its beginning
    words = [
        SMI,
        f"--id={found['uuid']}",
        f"--query-gpu={','.join(DRIVER.values())}",
        "--format=csv,noheader",
    ]
    with suppress(OSError, subprocess.CalledProcessError):
        made = subprocess.run(words, capture_output=True, text=True, check=True)
        found |= zip(DRIVER, (word.strip() for word in made.stdout.split(",")), strict=True)
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
