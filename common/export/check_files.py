"""Runs the ONNX files of this folder on their recorded examples; needs only onnxruntime and numpy.

python check.py [FOLDER]: a line for each file; the exit status is 1 where one differs from what PyTorch made.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

EXAMPLES = "examples"


class FileCheck(NamedTuple):
    """One file's largest difference, relative to the largest expected value where that is above 1."""

    file: str
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance  # false for NaN


def check(folder: Path) -> list[FileCheck]:
    return [check_file(graph) for graph in sorted(folder.glob("*.onnx"))]


def check_file(graph: Path) -> FileCheck:
    with np.load(graph.parent / EXAMPLES / f"{graph.stem}.npz") as example:
        arrays = dict(example)
    inputs = {name[3:]: value for name, value in arrays.items() if name.startswith("in.")}
    wanted = {name[4:]: value for name, value in arrays.items() if name.startswith("out.")}
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    made: dict[str, Any] = dict(zip(wanted, session.run(list(wanted), inputs), strict=True))
    error = max(difference(made[name], value) for name, value in wanted.items())
    return FileCheck(graph.name, error, float(arrays["tolerance"]))


def difference(made: np.ndarray, wanted: np.ndarray) -> float:
    if made.shape != wanted.shape or made.dtype != wanted.dtype:
        return float("inf")
    made, wanted = made.astype(np.float64), wanted.astype(np.float64)
    error = float(np.abs(made - wanted).max(initial=0)) / max(1.0, float(np.abs(wanted).max(initial=0)))
    return error if np.isfinite(error) else float("inf")


def main() -> int:
    rows = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
    for row in rows:
        verdict = "ok" if row.ok else "DIFFERS"
        print(f"{row.file:40} {row.error:8.1e} (tolerance {row.tolerance:.0e})  {verdict}")
    return 0 if rows and all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
