"""docs/benchmarks.md: the results of several runs, such as those of several machines, in one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.bench.report import EXPLAINED, plots, tables
from common.errors import InputError
from common.files import write_bytes

PAGE = """# Benchmarks

Speed and memory on the machines that the tables name. The last of these commands makes this page from what
others left.

```bash
python scripts/benchmark.py                                         # the voice's first pair, sentences
python scripts/benchmark.py --acoustic all --vocoder all --backend onnx
python scripts/benchmark.py --part fastpitch,hifigan.generator,tacotron2.decoder --backend onnx --batches 1,2
python scripts/benchmark.py --suite cpu --out build/benchmarks/cpu
python scripts/benchmark.py --suite h200 --out build/benchmarks/h200   # needs an NVIDIA GPU
python scripts/benchmark.py --suite onnx-options                    # options of ONNX Runtime
python scripts/benchmark.py --document docs/benchmarks.md docs/benchmarks/*.json
```

`torch` is our own networks in PyTorch, eager; `torch-compile` and `torch-graph` the same compiled, or with a
CUDA graph for each stage, as `trt-graph` has for TensorRT. In fp16 PyTorch has all weights halved (`half()`);
tf32 and fp32 are PyTorch with and without TF32. ONNX Runtime runs float32. With `--symbols` lengths are
fixed: random ids, 5 frames for each, whatever FastPitch and FastSpeech predict, and 600 steps of Tacotron 2.
Published sizes (`--weights published`) have seeded random weights: speed does not depend on what they say.
Their graphs are exported to `build/graphs`, by `python scripts/check_gpu.py --export-only` or when they are
needed, and can be taken along.

A baseline of your own stands in the same tables: a function that is given symbol ids and gives audio, such as
the one in [examples/benchmark_peer.py](../examples/benchmark_peer.py).

```bash
python scripts/benchmark.py --backend onnx --symbols 128 --peer examples.benchmark_peer:speak
```

"""


def write_document(path: Path, files: Sequence[Path]) -> None:
    """One page of several runs, such as those of several machines, with their plots beside it."""
    if not files:
        raise InputError("--document needs the JSON files of earlier runs (results.json of --out FOLDER)")
    found = {file.parent.name if file.stem == "results" else file.stem: read_results(file) for file in files}
    parts = [f"{PAGE}{EXPLAINED}\n"]
    folder = path.parent / path.stem
    for name, results in found.items():
        machine = results["machine"]
        heading = machine.get("gpu") or f"{machine['cpu']}, {machine['cores']} cores"
        parts.append(f"## {heading}\n\n{tables(results, '###')}")
        for plot, content in plots(results).items():
            image = f"{name}-{plot}"
            folder.mkdir(parents=True, exist_ok=True)
            write_bytes(folder / image, content)
            parts.append(f"![{image}]({folder.name}/{image})\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, "\n".join(parts).encode())


def read_results(file: Path) -> dict[str, Any]:
    try:
        results = json.loads(file.read_text())
    except ValueError:
        raise InputError(f"{file} is no JSON") from None
    if not isinstance(results, dict) or not {"command", "machine", "rows"} <= results.keys():
        raise InputError(f"{file} holds no results of scripts/benchmark.py")
    return results
