"""Checks this machine's GPU: verify of every model and pair, times, sentences to be scored, and tests.

Each check is a command of its own, which may be given again by hand; --output has their reports.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from melforge.common.bench.machine import child_environment, versions
from melforge.common.cli import options
from melforge.common.cli.option import TYPES
from melforge.common.cli.run import print_table
from melforge.common.config.deployment import PRECISIONS
from melforge.common.errors import InputError, require_torch
from melforge.common.files import write_bytes
from melforge.common.registry import get_model, names
from melforge.common.stages.choose import KINDS

PARALLEL = 4
STEPS = {
    "verify": "the layers and stages of every model, and a sentence",
    "mix": "the voice's pairs, the acoustic model on TensorRT and the vocoder on ONNX Runtime",
    "speed": "the times of the voice's pairs, beside PyTorch's",
    "sentences": "twenty sentences of every pair, as sound files to be scored",
    "tests": "the tests that need a GPU",
    "kernels": "what runs on our kernels here, and the times of the voice's pairs on them; needs no TensorRT",
}
TIMED = ("speed", "tests", "kernels")  # one at a time
MIX = "acoustic=trt,vocoder=onnx"
SENTENCES = "examples/held_out_sentences.tsv"  # of LJSpeech's transcripts (public domain), not trained on
BUCKETS = (
    *("--set", "trt_multi_engine=true", "--set", "trt_max_input_seq_len_list=[64,128,256]"),
    *("--set", "trt_max_output_seq_len_list=[384,768,1024]", "--warm-up"),
)
HEADINGS = ("check", "tensors", "nearest to its tolerance", "of it", "mel", "audio mel", "s", "verdict")


@dataclass(frozen=True)
class GpuCheck:
    """A command, and where its report is, if it writes one."""

    name: str
    words: Sequence[str]
    report: Path | None = None


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__)
    texts = {  # options with commas: default and help
        "steps": (",".join(STEPS), "; ".join(f"{name}: {about}" for name, about in STEPS.items())),
        "models": (",".join(names(*KINDS)), "models of the step verify (default: all)"),
        "weights": ("voice,published", "published (its sizes, random weights) and voice (default: both)"),
        "precision": (",".join(PRECISIONS), "with commas (default: fp32,fp16)"),
    }
    add = parser.add_argument
    for name, (default, text) in texts.items():
        add(f"--{name}", default=default, metavar="NAMES", help=text)
    add("--export-only", action="store_true", help="make the graphs of published sizes and stop")
    text = f"checks in parallel, of those that are not timed (default: {PARALLEL})"
    add("--parallel", type=options.positive, default=PARALLEL, metavar="N", help=text)
    add("--limit", type=float, default=600.0, metavar="S", help="seconds for one check (default: 600)")
    text = "folder of the reports (default: build/gpu_check)"
    where = {"type": TYPES["DIR"], "default": Path("build/gpu_check"), "metavar": "FOLDER"}
    add("-o", "--output", "--out", help=text, **where)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    require_torch("comparing with PyTorch")
    models = args.models.split(",")
    for model in models:
        if get_model(model).kind not in KINDS:
            raise InputError(
                f"--models {model}: what is checked speaks; python -m melforge.{model}.verify_trt compares it"
            )
    steps = args.steps.split(",")
    if unknown := [step for step in steps if step not in STEPS]:
        raise InputError(f"there is no step {unknown[0]!r}: choose from {', '.join(STEPS)}")
    if args.export_only:
        from melforge.common.bench.random_weights import random_source

        for model in models:
            dict(random_source(model).graphs)
        return 0

    from melforge.common.engines.tensorrt.api import load_tensorrt
    from melforge.common.engines.tensorrt.engine import require_gpu

    require_gpu("cuda")
    if steps != ["kernels"]:
        load_tensorrt()
    args.output.mkdir(parents=True, exist_ok=True)
    write_bytes(args.output / "machine.json", (json.dumps(versions("cuda"), indent=1) + "\n").encode())
    rows = []
    for step in steps:
        checks = list(checks_of(step, args, models))
        with ThreadPoolExecutor(1 if step in TIMED else args.parallel) as pool:
            for row in pool.map(lambda check: run_check(check, args.output, args.limit), checks):
                print(f"{row[0]}: {row[-1]}", file=sys.stderr, flush=True)
                rows.append(row)
    if "kernels" in steps:
        report = json.dumps(report_of(args.output), indent=1) + "\n"
        write_bytes(args.output / "kernels.json", report.encode())
    print_table(HEADINGS, rows)
    return 0 if all(row[-1] == "ok" for row in rows) else 1


def report_of(folder: Path) -> dict[str, Any]:
    """What the step kernels found, in one piece to send; without what failed."""
    files = {"machine": "machine.json", "gpu": "kernels-here.txt", "speed": "kernels-speed/results.json"}
    found = {}
    for name, file in files.items():
        with suppress(OSError, json.JSONDecodeError):
            found[name] = json.loads((folder / file).read_text())
    return found


def checks_of(step: str, args: argparse.Namespace, models: Sequence[str]) -> Iterator[GpuCheck]:
    """The commands of a step. The largest networks, which take longest, come first."""
    precisions, here = args.precision.split(","), [sys.executable, "-m"]
    if step == "tests":
        yield GpuCheck("tests", [*here, "pytest", "-q", "-m", "gpu", "tests", "-p", "no:cacheprovider"])
        return
    if step == "verify":
        for weights, model, precision in itertools.product(args.weights.split(","), models[::-1], precisions):
            words = [*here, f"melforge.{model}.verify_trt", "--precision", precision]
            words += ["--published"] * (weights == "published")
            words += ["--decoder", "steps"] * ("steps" in get_model(model).decoders)
            yield reported(f"verify-{weights}-{model}-{precision}", words, args.output)
        return
    voice = [*here, "melforge"]
    if step == "speed":
        words = [*voice, "benchmark", "--acoustic", "all", "--vocoder", "all", "--device", "cuda"]
        words += ["--backend", "torch,trt", "--precision", args.precision]
        yield GpuCheck(step, [*words, "-o", str(args.output / step)])
        return
    if step == "kernels":
        yield GpuCheck("kernels-here", [*voice, "list", "--device", "cuda", "--json"])
        words = [*voice, "benchmark", "--acoustic", "all", "--vocoder", "all", "--device", "cuda"]
        out = str(args.output / "kernels-speed")
        # Of one length: without, cold processes of each pair are timed too, which takes minutes.
        words += ["--backend=cuda", "--backend=torch", "--symbols=128", "--limit=60", "--budget=180"]
        yield GpuCheck("kernels-speed", [*words, "-o", out])
        return
    from melforge.common.weights.voices import load_voice

    pairs = itertools.product(*(load_voice().models_of(kind) for kind in KINDS))
    for acoustic, vocoder in pairs:
        pair, name = ["--acoustic", acoustic, "--vocoder", vocoder], f"{step}-{acoustic}-{vocoder}"
        if step == "mix":
            words = [*voice, "verify", *pair, "--backend", MIX, "--precision", "fp16"]
            yield reported(name, words, args.output)
            continue
        on_trt = {one: ["--backend", "trt", "--precision", one, *BUCKETS] for one in precisions}
        for how, more in {**on_trt, "torch": ["--backend", "torch", "--device", "cuda"]}.items():
            out = args.output / f"{name}-{how}"
            yield GpuCheck(out.name, [*voice, "speak", "-i", SENTENCES, *pair, *more, "-o", str(out)])


def reported(name: str, words: Sequence[str], folder: Path) -> GpuCheck:
    report = folder / f"{name}.json"
    return GpuCheck(name, [*words, "--json", str(report), "--plot", str(folder / f"{name}.png")], report)


def run_check(check: GpuCheck, folder: Path, limit: float) -> tuple[str, ...]:
    """The cells of a row; what the command printed is in the folder, beside its report."""
    if check.report:
        check.report.unlink(missing_ok=True)
    start = time.perf_counter()
    with (folder / f"{check.name}.txt").open("wb") as file:
        try:
            how: dict[str, Any] = {"stdout": file, "stderr": subprocess.STDOUT, "timeout": limit}
            status = subprocess.run(check.words, env=child_environment(), **how).returncode
            verdict = "ok" if status == 0 else f"status {status}: {last_line(Path(file.name))}"
        except subprocess.TimeoutExpired:
            verdict = f"no end within {limit:.0f} s"
    found = cells_of(json.loads(check.report.read_text())) if check.report and check.report.is_file() else ()
    found = found or ("",) * 5
    return check.name, *found, f"{time.perf_counter() - start:.0f}", verdict


def last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return re.sub(r"^error: ", "", lines[-1]) if lines else "it said nothing"


def cells_of(report: dict[str, Any]) -> tuple[str, ...]:
    """Of what verify reports: the tensor nearest to its tolerance, and the sentence."""
    worst = max(report["tensors"], key=lambda one: float(one["excess"]))
    mels = (f"{float(report['speech'][key]):.1e}" for key in ("mel", "audio_mel"))
    name = f"{worst['stage']}: {worst['name']}"
    return str(len(report["tensors"])), name, f"{float(worst['excess']):.2f}", *mels
