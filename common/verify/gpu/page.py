"""The page of what a GPU showed, from the rows that the checks left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common.bench.table import table_of
from common.errors import InputError
from common.verify.gpu import models, pairs, stages

INTRODUCTION = """# TensorRT on a GPU, checked

What `python scripts/check_gpu.py` found, put on this page by its `--document`. Where no unit is given, errors
are shares of the tensor's largest value. Published sizes have seeded random weights; the voice is the shipped
one. [verify.md](verify.md) says how layers are compared and why the tolerances are what they are."""
# By step: the columns, how many of them say what a row is about, and what stands above the table.
TABLES = {
    "verify": (
        models.COLUMNS,
        3,
        """## Layers and stages against PyTorch (verify_trt)

`--steps verify`: every layer in each model's list and every output of its stages, both sides on the same
inputs; then the sentence "It just works." by either side. "mel" and "audio's mel" are the mean differences of
its mels (natural logarithm). The worst tensor is the one nearest to its tolerance.""",
    ),
    "sentences": (
        pairs.SENTENCE_COLUMNS,
        3,
        """## Twenty sentences by every pair

`--steps sentences`: engines for buckets of 384, 768 and 1024 frames, warmed up first; the slowest sentence
afterwards. What a judge says of them stands in [verify.md](verify.md).""",
    ),
    "example": (
        pairs.EXAMPLE_COLUMNS,
        2,
        """## Without PyTorch

`--steps example`: examples/speak_tensorrt.py (numpy, pycuda and TensorRT) against the runner on the same
engines. The file has 16 bits, so that 3e-05 is its rounding.""",
    ),
    "pairs": (
        pairs.COLUMNS,
        4,
        f"""## One sentence by every pair

`--steps pairs`: {pairs.RUNS} calls from text to samples on the host after 3 that are not counted; PyTorch
in float32, eager, in the same process. "copies" is what moves between host and GPU in the vocoder's part.""",
    ),
    "mix": (
        pairs.COLUMNS,
        4,
        f"""## A mix of backends

`--steps mix`: `--backend {pairs.MIX}`, ONNX Runtime with its CUDA provider and I/O binding.""",
    ),
    "stages": (
        stages.COLUMNS,
        3,
        """## Stages

`--steps stages`: the largest difference from PyTorch on random inputs, the first call with what TensorRT for
RTX compiles, the mean of up to 50 calls, and the same as a CUDA graph.""",
    ),
}


def document(folder: Path) -> str:
    """The page, in Markdown; a ValueError where there is nothing to put on it."""
    rows = {step: _read(folder / f"{step}.json") for step in TABLES}
    if not any(rows.values()):
        raise InputError(f"{folder} has no results: run scripts/check_gpu.py on a machine with a GPU first")
    (about,) = _read(folder / "machine.json") or [{}]
    parts = [INTRODUCTION, "; ".join(f"{name} {value}" for name, value in about.items()) + "."]
    for step, (columns, head, text) in TABLES.items():
        if rows[step]:
            parts += [text, "\n".join(table_of(columns, rows[step], head))]
    tests = folder / "tests.txt"
    if tests.is_file():
        last = tests.read_text().strip().splitlines()[-1].strip("= ")
        parts += ["## Tests that need a GPU", f"`--steps tests` (`python -m pytest -m gpu tests`): {last}"]
    return "\n\n".join(parts) + "\n"


def _read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.is_file() else []
