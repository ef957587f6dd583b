"""Checks TensorRT on this machine's GPU against PyTorch: stages, layers, speech, mixed backends, kernels.

Each step writes its rows into --out and replaces earlier ones of the same check. `--document FILE` makes a
page of them, on any machine.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from melforge.common.bench.workload import GRAPHS
from melforge.common.cli import options
from melforge.common.config.deployment import PRECISIONS
from melforge.common.errors import InputError, require_torch
from melforge.common.registry import get_model, names
from melforge.common.stages.choose import KINDS

PARALLEL = 4
STEPS = ("verify", "sentences", "example", "tests", "pairs", "mix")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__)
    texts = {  # options with commas: default and help
        "steps": (",".join(STEPS), f"of {', '.join(STEPS)}"),
        "models": (",".join(names(*KINDS)), "with commas (default: all)"),
        "weights": ("voice,published", "published (its sizes, random weights) and voice (default: both)"),
        "precision": (",".join(PRECISIONS), "with commas (default: fp32,fp16)"),
    }
    add = parser.add_argument
    for name, (default, text) in texts.items():
        add(f"--{name}", default=default, metavar="NAMES", help=text)
    add("--export-only", action="store_true", help="make the graphs of published sizes and stop")
    text = f"folder of the graphs of published sizes (default: {GRAPHS})"
    add("--graphs", type=Path, default=GRAPHS, help=text)
    text = f"checks in parallel, of those that are not timed (default: {PARALLEL})"
    add("--parallel", type=options.positive, default=PARALLEL, help=text)
    add("--limit", type=float, default=90.0, help="seconds for one check (default: 90)")
    add("--out", type=Path, default=Path("build/gpu_check"), help="folder of the results")
    add("--document", type=Path, help="write this page of the results and stop")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    if args.document:
        from melforge.common.verify.gpu.checks import document

        args.document.write_text(document(args.out), encoding="utf-8")
        return 0

    require_torch("comparing with PyTorch")
    chosen, origins, precisions = (t.split(",") for t in (args.models, args.weights, args.precision))
    for model in chosen:
        if get_model(model).kind not in KINDS:
            raise InputError(
                f"--models {model}: what is checked speaks; python -m melforge.{model}.verify_trt compares it"
            )
    if args.export_only:
        from melforge.common.bench.random_weights import random_source

        for model in chosen:
            dict(random_source(model, args.graphs).graphs)
        return 0
    steps = args.steps.split(",")
    unknown = [step for step in steps if step not in STEPS]
    if unknown:
        raise InputError(f"there is no step {unknown[0]!r}: choose from {', '.join(STEPS)}")

    from melforge.common.engines.tensorrt.engine import require_gpu

    require_gpu("cuda")
    from melforge.common.bench.machine import versions
    from melforge.common.engines.tensorrt.api import load_tensorrt
    from melforge.common.verify.gpu import checks, pairs

    load_tensorrt()
    args.out.mkdir(parents=True, exist_ok=True)
    checks.write_rows(args.out / "machine.json", [versions("cuda")])
    plots = f"{args.out}/plots"
    todo = {
        "verify": lambda: checks.verify_jobs(chosen, origins, precisions, plots, str(args.graphs)),
        "sentences": lambda: pairs.pair_jobs([pairs.PYTORCH, *precisions], folder=f"{args.out}/sentences"),
        "example": lambda: [{"folder": f"{args.out}/example", "precision": p} for p in precisions],
        "pairs": lambda: pairs.pair_jobs(precisions, backend="trt"),
        "mix": lambda: pairs.pair_jobs(["fp16"], backend=pairs.MIX),
    }
    failed = False
    for step in steps:
        if step == "tests":
            failed |= run_tests(args.out / "tests.txt")
            continue
        rows = checks.run_checks(step, todo[step](), args.limit, args.parallel)
        checks.write_rows(args.out / f"{step}.json", rows)
        failed |= any("failed" in row for row in rows)
    return 1 if failed else 0


def run_tests(out: Path) -> bool:
    """The tests that need a GPU; whether one failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests", "-p", "no:cacheprovider"]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    out.write_text(found.stdout)
    print(found.stdout[-2000:], flush=True)
    return found.returncode != 0
