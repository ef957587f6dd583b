"""The machine that figures are from, with its peaks: measured in the same run by products of matrices."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "torch", "tensorrt-rtx-cu13-bindings", "tensorrt")
GPU_MATRIX, CPU_MATRIX = 8192, 2048
GPU_COPY, CPU_COPY = 1 << 30, 1 << 28  # bytes
BEST_OF = 5


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """Date, hardware, versions, and `peaks`: FLOP/s by precision, and bytes/s of memory."""
    found: dict[str, Any] = {"date": date.today().isoformat(), "commit": commit()}
    found |= {"cpu": cpu_name(), "cores": os.cpu_count(), "python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    if device == "cpu":
        return found | {"peaks": cpu_peaks()}
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return found | {"peaks": {}}
    found["gpu"] = torch.cuda.get_device_name(device)
    found |= {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    with suppress(Exception):
        trt = importlib.import_module("common.engines.tensorrt.api").load_tensorrt()
        found[trt.flavour] = trt.version
    return found | {"peaks": gpu_peaks(torch, device)}


def cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    names = []
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


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
    return {
        "fp32": 2 * CPU_MATRIX**3 / fastest(lambda: matrix @ matrix),
        "bytes": 2 * CPU_COPY / fastest(lambda: np.copyto(target, source)),
    }


def gpu_peaks(torch: Any, device: str) -> dict[str, float]:
    """By PyTorch, with TF32 and without it, and in half precision."""
    peaks = {}
    for precision, dtype in (("fp16", torch.half), ("tf32", torch.float32), ("fp32", torch.float32)):
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        matrix = torch.randn(GPU_MATRIX, GPU_MATRIX, device=device, dtype=dtype)
        seconds = fastest(lambda matrix=matrix: matrix @ matrix, lambda: torch.cuda.synchronize(device))
        peaks[precision] = 2 * GPU_MATRIX**3 / seconds
    source = torch.ones(GPU_COPY, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = fastest(lambda: target.copy_(source), lambda: torch.cuda.synchronize(device))
    return peaks | {"bytes": 2 * GPU_COPY / copy}


def fastest(run: Callable[[], Any], wait: Callable[[], Any] = lambda: None) -> float:
    """Seconds of the fastest of a few runs."""
    run()
    wait()
    times = []
    for _ in range(BEST_OF):
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)
