"""Profiles: tables of what ran, from PyTorch's operators on a CPU, and from a GPU's trace."""

import json

import pytest

from melforge.common.bench.models import LoadedModels
from melforge.common.bench.profiling import as_markdown, covered, draw, own_times, summarise, write_profile
from melforge.common.bench.workload import Target, Workload

LABEL = {"name": "a -> b", "backend": "torch", "precision": "fp32", "symbols": 7, "batch": 1}


@pytest.mark.parametrize(("backend", "with_operators"), [("torch", True), ("onnx", False)])
def test_a_profile_of_a_pair(tiny_voice, tmp_path, backend, with_operators):
    workload = Workload(Target("fastpitch", "hifigan"), backend, voice=str(tiny_voice), symbols=(7,))
    measured = LoadedModels(workload).measured(1, 7)
    path = write_profile(measured.run, measured.timer, "cpu", tmp_path, LABEL | {"backend": backend})
    name = f"a-b-{backend}-fp32-7-batch1"
    assert path == str(tmp_path / f"{name}.md") and measured.timer.label is None
    suffixes = ("-trace.json.gz", ".json", ".md", ".png")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(name + suffix for suffix in suffixes)
    found = json.loads((tmp_path / f"{name}.json").read_text())
    stages = {row["name"]: row["calls"] for row in found["tables"]["stages"]}
    assert stages == {"fastpitch.encoder": 1, "fastpitch.decoder": 1, "hifigan.generator": 1}
    operators = {row["name"] for row in found["tables"].get("operators", ())}
    assert ("aten::convolution" in operators) is with_operators is bool(found["memory"])
    assert found["profiled_s"] > 0 and "kernels" not in found["tables"]


def event(category: str, name: str, start: float, duration: float, **args) -> dict:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "args": args}


def memory(start: float, total: int, device: int) -> dict:
    return {
        "ph": "i",
        "name": "[memory]",
        "ts": start,
        "args": {"Total Allocated": total, "Device Type": device},
    }


def test_a_gpus_trace_becomes_tables():
    events = [
        event("user_annotation", "run", 100, 1000),
        event("gpu_user_annotation", "run", 100, 900),
        event("cuda_runtime", "cudaLaunchKernel", 110, 5),
        event("cuda_driver", "cuLaunchKernelEx", 120, 7),
        event("cuda_runtime", "cudaLaunchKernel", 130, 5),
        event("kernel", "gemm", 200, 100),
        event("kernel", "gemm", 250, 100),
        event("kernel", "norm", 400, 20),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 150, 10, bytes=4096),
        event("gpu_memset", "Memset (Device)", 160, 5, bytes=64),
        memory(500, 2_000_000, 1),
        memory(300, 1_000_000, 1),
        memory(300, 5, 0),
        {"ph": "M", "name": "process_name"},
    ]
    found = {"of": LABEL, "seconds": 0.001, **summarise(events, "cuda")}
    rows = {key: [(row["name"], row["calls"]) for row in rows] for key, rows in found["tables"].items()}
    assert rows == {
        "kernels": [("gemm", 2), ("norm", 1)],
        "copies": [("Memcpy HtoD (Pinned -> Device)", 1), ("Memset (Device)", 1)],
        "api": [("cudaLaunchKernel", 2), ("cuLaunchKernelEx", 1)],
    }
    assert [row["bytes"] for row in found["tables"]["copies"]] == [4096, 64]
    assert found["gpu_busy_s"] == pytest.approx(185e-6) and found["profiled_s"] == pytest.approx(1e-3)
    assert found["memory"] == [(pytest.approx(200e-6), 1_000_000), (pytest.approx(400e-6), 2_000_000)]
    text = as_markdown(found, "trace.json.gz")
    assert "The GPU was busy for 0.18 ms" in text or "The GPU was busy for 0.19 ms" in text
    assert (
        "| gemm | 2 | 0.200 | 90.9% |" in text and "| Memset (Device) | 1 | 0.005 | 33.3% | 0.000 |" in text
    )
    assert draw(found).startswith(b"\x89PNG")


def test_operators_count_without_those_within():
    outer, inner, later = event("cpu_op", "a", 0, 10), event("cpu_op", "b", 2, 5), event("cpu_op", "c", 12, 1)
    assert own_times([inner, later, outer]) == [5, 1, 5]
    assert covered([(0, 2), (1, 3), (5, 6)]) == 4
