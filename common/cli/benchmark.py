"""Measures pairs, models or stages on this machine, on any backends: tables of speed and memory."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from common.cli import options, run
from common.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(
        description=__doc__, kinds=("acoustic", "vocoder"), choose=lambda args: itertools.chain(*choose(args))
    )
    add_arguments(parser)
    args = parser.parse_args(argv)

    from common.bench import report

    if args.document:
        from common.bench.document import write_document

        write_document(args.document, [Path(name) for name in args.results])
        return 0
    if args.results:
        raise InputError("results are for --document FILE, which joins them")

    from common.bench.run import measure

    command = shlex.join(["python", "scripts/benchmark.py", *sys.argv[1:]])
    workloads, budget = make_workloads(args)
    results = measure(workloads, command, args.limit, budget, show)
    if args.out:
        report.write_all(results, args.out)
    print(json.dumps(results, indent=1) if args.json else report.markdown(results), end="")
    return 0 if any("failed" not in row for row in results["rows"]) else 1


def show(row: dict) -> None:
    from common.bench.report import line
    from common.synthesis.warm_up import HEADINGS

    if "warm_up" in row:
        run.print_table(HEADINGS, row["warm_up"], file=sys.stderr)
    print(line(row), file=sys.stderr)


def add_arguments(parser: options.Parser) -> None:
    which = "one, several (a,b) or all of the voice's (default: the voice's first)"
    what = parser.add_argument_group("what is measured")
    what.add_argument("--acoustic", metavar="NAME", help=f"acoustic models: {which}")
    what.add_argument("--vocoder", metavar="NAME", help=f"vocoders: {which}")
    what.add_argument(
        "--part",
        metavar="NAMES",
        help="models or stages alone instead of pairs: fastpitch,hifigan.generator,tacotron2.decoder",
    )
    what.add_argument(
        "--suite", metavar="NAME", help="tables that belong together: h200, cpu or onnx-options"
    )
    what.add_argument(
        "--weights",
        metavar="KIND",
        help="the voice's, or published: seeded random ones in the published sizes (default: voice)",
    )
    options.add_weights_arguments(what)
    what.add_argument(
        "--symbols",
        metavar="N,...",
        help="text lengths, in symbols: random ids, 5 frames for each, 600 steps of Tacotron 2 "
        "(default: sentences, as long as they become; 128 with --part and published weights)",
    )
    what.add_argument("--batches", metavar="N,...", help="batch sizes, in utterances (default: 1)")
    how = parser.add_argument_group("how it runs")
    how.add_argument(
        "--backend",
        action="append",
        default=[],
        dest="backends",
        metavar="NAMES",
        help="onnx, torch, trt, torch-compile, torch-graph, trt-graph (CUDA graphs), several (onnx,torch), "
        "or one for each model or stage (acoustic=trt,vocoder=onnx); may be repeated "
        "(default: onnx, and torch if it is installed)",
    )
    how.add_argument(
        "--precision",
        dest="precisions",
        metavar="NAMES",
        help="fp32, tf32, fp16, of those that a backend has (default: fp32, or what use_fp16 says)",
    )
    how.add_argument("--device", help="cpu, cuda, cuda:N or auto (default: cpu, with trt a GPU)")
    how.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="a function of yours in the same tables: a list of ids -> their audio; may be repeated",
    )
    options.add_decoder_argument(how)
    how.add_argument("--threads", type=options.positive, metavar="N", help="CPU threads (default: all cores)")
    how.add_argument(
        "--runs", type=options.positive, help="runs for each figure, fewer of slow ones (default: 10)"
    )
    options.add_options(how, "warm-up")
    how.add_argument(
        "--limit", type=float, default=120.0, metavar="SECONDS", help="for a row, with loading (default: 120)"
    )
    how.add_argument(
        "--budget", type=float, metavar="SECONDS", help="for all rows: no further one begins then"
    )
    how.add_argument(
        "--graphs",
        type=Path,
        default=Path("build/graphs"),
        metavar="FOLDER",
        help="graphs of published sizes, exported if missing (default: build/graphs)",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print every figure as JSON")
    output.add_argument(
        "--out", type=Path, metavar="FOLDER", help="also write results.json, .csv, .md and plots there"
    )
    output.add_argument(
        "--document", type=Path, metavar="FILE", help="measure nothing: make a page of earlier results"
    )
    output.add_argument("results", nargs="*", default=[], metavar="RESULTS", help="JSON files for --document")


def make_workloads(args: argparse.Namespace):
    """The workloads, and the seconds that all of them may take."""
    from common.bench import workload
    from common.bench.peer import require_peer
    from common.errors import require_torch

    keys = ("voice", "threads", "decoder", "deployments", "overrides", "graphs", "warm_up")
    how = {"checkpoints": args.checkpoint, **{key: getattr(args, key) for key in keys}}
    for peer in args.peer:
        require_peer(peer)
    if args.weights == "published":
        require_torch("--weights published")
    if args.warm_up and (args.symbols or args.part or args.suite or args.weights == "published"):
        raise InputError("--warm-up speaks a sentence: it is not for random ids, nor parts of models")
    if args.weights:
        how["weights"] = workload.choices(args.weights, workload.WEIGHTS, "weights")[0]
    if args.symbols:
        how["symbols"] = workload.numbers(args.symbols, "--symbols")
    elif args.part or args.weights == "published":
        how["symbols"] = (128,)
    if args.runs:
        how["runs"] = args.runs
    if args.device:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", args.device):
            raise InputError(f"unknown device {args.device!r}: use cpu, cuda, cuda:N or auto")
        how["device"] = args.device
    if args.suite:
        from common.bench.suites import suite_workloads

        made, budget = suite_workloads(args.suite, how)
        return workload.with_peers(made, args.peer), args.budget or budget
    if args.part:
        targets = [workload.Target.of(part.strip()) for part in args.part.split(",")]
    else:
        targets = [workload.Target(*pair) for pair in itertools.product(*choose(args))]
    if args.decoder and not any(workload.form_of(target.acoustic, args.decoder) for target in targets):
        raise InputError(f"--decoder {args.decoder}: none of the models that are measured has this form")
    has_torch = importlib.util.find_spec("torch") is not None
    made = workload.make_workloads(
        targets,
        args.backends or workload.default_backends(args.deployments, has_torch),
        workload.choices(args.precisions, workload.PRECISIONS, "precision") if args.precisions else (),
        batches=workload.numbers(args.batches, "--batches") if args.batches else (1,),
        **how,
    )
    return workload.with_peers(made, args.peer), args.budget


def choose(args: argparse.Namespace) -> list[list[str]]:
    """The acoustic models and the vocoders."""
    from common.bench.workload import choose_models

    return [
        choose_models(words, kind, args.voice, args.checkpoint, args.weights or "voice")
        for kind, words in (("acoustic", args.acoustic), ("vocoder", args.vocoder))
    ]
