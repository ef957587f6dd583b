"""The page of what a GPU showed, from the rows that the checks left."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.gpu_check import speaking, stages, verification

INTRODUCTION = """# TensorRT on a GPU, checked

What `python scripts/check_gpu.py` found, put on this page by its `--document`. Where no unit is given, errors
are shares of the tensor's largest value. Published sizes have seeded random weights; the voice is the shipped
one. [verify.md](verify.md) says how layers are compared and why the tolerances are what they are."""
TITLES = {
    "verify": """## Layers and stages against PyTorch (verify_trt)

`--steps verify`: every layer in each model's list and every output of its stages, both sides on the same
inputs; then the sentence "It just works." by either side. "mel" and "audio's mel" are the mean differences of
its mels (natural logarithm). The worst tensor is the one nearest to its tolerance.""",
    "sentences": """## Twenty sentences by every pair

`--steps sentences`: engines for buckets of 384, 768 and 1024 frames, warmed up first; the slowest sentence
afterwards. What a judge says of them stands in [verify.md](verify.md).""",
    "example": """## Without PyTorch

`--steps example`: examples/speak_tensorrt.py (numpy, pycuda and TensorRT) against the runner on the same
engines. The file has 16 bits, so that 3e-05 is its rounding.""",
    "pairs": f"""## One sentence by every pair

`--steps pairs`: {speaking.RUNS} calls from text to samples on the host after 3 that are not counted; PyTorch
in float32, eager, in the same process. "copies" is what moves between host and GPU in the vocoder's part.""",
    "mix": f"""## A mix of backends

`--steps mix`: `--backend {speaking.MIX}`, ONNX Runtime with its CUDA provider and I/O binding.""",
    "stages": """## Stages

`--steps stages`: the largest difference from PyTorch on random inputs, the first call with what TensorRT for
RTX compiles, the mean of up to 50 calls, and the same as a CUDA graph.""",
}
EXAMPLE_HEADINGS = ("program", "precision", "seconds", "samples", "largest difference")


def machine(torch: Any) -> dict[str, Any]:
    """What the figures belong to."""
    from common.engines.tensorrt.api import load_tensorrt

    trt = load_tensorrt()
    found = {
        "gpu": torch.cuda.get_device_name(),
        "pytorch": torch.__version__,
        "cuda": torch.version.cuda,
        trt.flavour: trt.version,
        "python": platform.python_version(),
    }
    try:
        found["onnxruntime"] = importlib.import_module("onnxruntime").__version__
    except ImportError:
        return found
    return found


def document(folder: Path) -> str:
    """The page, in Markdown; a ValueError where there is nothing to put on it."""
    rows = {step: _read(folder / f"{step}.json") for step in TITLES}
    rows = {step: found for step, found in rows.items() if found}
    if not rows:
        raise ValueError(f"{folder} has no results: run scripts/check_gpu.py on a machine with a GPU first")
    (about,) = _read(folder / "machine.json") or [{}]
    parts = [INTRODUCTION, "; ".join(f"{name} {value}" for name, value in about.items()) + "."]
    for step, found in rows.items():
        headings, row_of = TABLES[step]
        parts += [TITLES[step], markdown(headings, [row_of(row) for row in found])]
    tests = folder / "tests.txt"
    if tests.is_file():
        last = tests.read_text().strip().splitlines()[-1].strip("= ")
        parts += ["## Tests that need a GPU", f"`--steps tests` (`python -m pytest -m gpu tests`): {last}"]
    return "\n\n".join(parts) + "\n"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def example_row(row: dict[str, Any]) -> tuple[str, ...]:
    if "failed" in row:
        return ("examples/speak_tensorrt.py", row["precision"], row["failed"], "", "")
    difference = "other length" if row["difference"] is None else f"{row['difference']:.1e}"
    samples = "=".join(map(str, sorted(set(row["samples"]))))
    return (
        "examples/speak_tensorrt.py",
        row["precision"],
        f"{row['seconds']:.1f}",
        samples,
        difference,
    )


TABLES = {
    "verify": (verification.HEADINGS, verification.table_row),
    "sentences": (speaking.SENTENCE_HEADINGS, speaking.sentence_table_row),
    "example": (EXAMPLE_HEADINGS, example_row),
    "pairs": (speaking.HEADINGS, speaking.table_row),
    "mix": (speaking.HEADINGS, speaking.table_row),
    "stages": (stages.HEADINGS, stages.table_row),
}


def _read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.is_file() else []
