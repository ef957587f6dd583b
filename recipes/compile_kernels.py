"""Compiles every kernel for every kind of GPU and writes recipes/kernels.tsv.

Needs Triton, and nvcc for the kernels in CUDA C++; no GPU.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.compile_kernels")

import ast
import hashlib
import itertools
import multiprocessing
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from melforge.common.bench.random_weights import random_source
from melforge.common.cli.parser import Parser
from melforge.common.config.deployment import Bucket
from melforge.common.engines.limits import limits_like
from melforge.common.files import write_bytes
from melforge.common.registry import MODELS
from melforge.common.weights.ears import list_ears, load_ear
from melforge.common.weights.voices import ModelSource, load_voice

ROOT = Path(__file__).parents[1]
TABLE, PLUGINS = ROOT / "recipes" / "kernels.tsv", ROOT / "trt_plugins"
TARGETS = [
    *("sm_75:40", "sm_80:108", "sm_86:46", "sm_87:16", "sm_89:128"),
    *("sm_90:132", "sm_100:148", "sm_120:170"),
]
RUNS = [(Bucket(128, 640), batch) for batch in (1, 8)]
HEADING = "# kernels {}; of each: number, most KiB of shared memory a block, registers and stack a thread"
WEIGHTS = ("shipped", "published")
CUDA = ("tacotron2_decoder/tacotron2_decoder.cu", "operations/repeat.cu", "operations/add_pos_enc.cu")


def kernel_sources() -> list[Path]:
    """The files whose kernels speak and hear."""
    found = [*PLUGINS.rglob("*kernels.py"), PLUGINS / "philox.py", PLUGINS / "tiles.py"]
    return sorted(path for path in found if "training" not in path.name) + [PLUGINS / name for name in CUDA]


def sources_hash() -> str:
    """Of the kernels without their comments."""
    total = hashlib.sha256()
    for path in kernel_sources():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            tree = ast.parse(text)
            for node in ast.walk(tree):
                if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                    node.body = node.body[1:] or [ast.Pass()]
            text = ast.unparse(tree)
        else:
            text = "\n".join(re.sub(r"//.*", "", text).split())
        total.update(text.encode())
    return total.hexdigest()[:16]


def source_of(model: str, weights: str, folder: Path) -> ModelSource:
    if weights == "published":
        return random_source(model, folder)
    return load_ear(list_ears()[0]).only if model == "jasper" else load_voice().source(model)


def triton_cell(model: str, weights: str, target: str) -> str:
    """Kernels, the largest shared memory, registers and stack."""
    from melforge.trt_plugins import ahead

    (limits,) = limits_like(target)
    with tempfile.TemporaryDirectory() as folder:
        launches = ahead.launches_for(source_of(model, weights, Path(folder)), RUNS, limits)
    used = [ahead.resources(kernel) for kernel in ahead.compiled(launches, limits).values()]
    shared, registers, stack = (max(each) for each in zip(*used, strict=True))
    return f"{len(used)}: {-(-shared // 1024)}, {registers}, {stack}"


def cuda_cell(path: Path, target: str) -> str:
    """As nvcc says of one kernel in CUDA C++."""
    architecture = target.partition(":")[0]
    with tempfile.TemporaryDirectory() as folder:
        command = ["nvcc", "-O3", "-std=c++17", f"-arch={architecture}", "-Xptxas", "-v", "-cubin", str(path)]
        done = subprocess.run([*command, "-o", f"{folder}/out"], capture_output=True, text=True, check=True)
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", done.stderr)]
    stack = [int(found) for found in re.findall(r"(\d+) bytes stack frame", done.stderr)]
    shared = [int(found) for found in re.findall(r"(\d+) bytes smem", done.stderr)]
    return f"{len(registers)}: {-(-max(shared, default=0) // 1024)}, {max(registers)}, {max(stack)}"


def rows(targets: Sequence[str]) -> Iterator[str]:
    yield "\t".join(("kernels of", *(target.partition(":")[0] for target in targets)))
    named = list(itertools.product(MODELS, WEIGHTS))
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        cells = pool.map(
            triton_cell, *zip(*((*one, target) for one in named for target in targets), strict=True)
        )
        for model, weights in named:
            yield "\t".join((f"{model}, {weights}", *itertools.islice(cells, len(targets))))
    for name in CUDA:
        yield "\t".join((Path(name).name, *(cuda_cell(PLUGINS / name, one) for one in targets)))


def main(argv: Sequence[str] | None = None) -> int:
    Parser(description=__doc__).parse_args(argv)
    lines = []
    for row in rows(TARGETS):
        print(row, flush=True)
        lines.append(row)
    write_bytes(TABLE, "\n".join((HEADING.format(sources_hash()), *lines, "")).encode())
    return 0
