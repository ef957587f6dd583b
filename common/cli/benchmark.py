"""Measures pairs, models or stages on this machine, on any backends: tables of speed and memory."""

import argparse
import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from melforge.common.bench.workload import GRAPHS, LONGEST_TEXT_WARM_UP
from melforge.common.cli import options, run
from melforge.common.errors import InputError
from melforge.common.files import require_writable_folder

LIMIT, TEXT_LIMIT = 120.0, 900.0  # seconds of a row


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(
        description=__doc__, kinds=("acoustic", "vocoder"), choose=lambda args: itertools.chain(*choose(args))
    )
    add_arguments(parser)
    args = parser.parse_args(argv)

    from melforge.common.bench import report

    if args.document:
        report.write_document(args.document, [Path(name) for name in args.results])
        return 0
    if args.results:
        raise InputError("results are for --document FILE, which joins them")

    from melforge.common.bench.run import measure

    workloads, budget = make_workloads(args)
    if args.out:
        require_writable_folder(args.out)
    limit = args.limit or (TEXT_LIMIT if args.texts else LIMIT)
    results = measure(workloads, run.command_line("benchmark"), limit, budget, show)
    if args.out:
        report.write_all(results, args.out)
    print(json.dumps(results, indent=1) if args.json else report.markdown(results), end="")
    return 0 if any("failed" not in row for row in results["rows"]) else 1


def show(row: dict) -> None:
    from melforge.common.bench.report import line
    from melforge.common.synthesis.warm_up import HEADINGS

    if "warm_up" in row:
        run.print_table(HEADINGS, row["warm_up"], file=sys.stderr)
    print(line(row), file=sys.stderr)


# By option: argparse's keywords, or its metavar and help; the help of a shared option, or None for its own.
OPTIONS: dict[str, dict[str, dict[str, Any] | tuple[str, str] | str | None]] = {
    "what is measured": {
        "acoustic": "acoustic models: one, several (a,b) or all of the voice's (default: the voice's first)",
        "vocoder": "vocoders, as --acoustic",
        "part": (
            "NAMES",
            "models or stages alone instead of pairs: fastpitch,hifigan.generator,tacotron2.decoder",
        ),
        "suite": ("NAME", "tables that belong together: h200, cpu or onnx-options"),
        "weights": (
            "KIND",
            "the voice's, or published: seeded random ones in the published sizes (default: voice)",
        ),
        "voice": None,
        "checkpoint": None,
        "symbols": (
            "N,...",
            "text lengths, in symbols: random ids, 5 frames for each, 600 steps of Tacotron 2 "
            "(default: sentences, as long as they become; 128 with --part and published weights)",
        ),
        "batches": {"default": "1", "metavar": "N,...", "help": "batch sizes, in utterances (default: 1)"},
        "texts": {
            **{"type": Path, "metavar": "FILE"},
            "help": "a text a line: each is spoken once, one after the other, whole and as a stream, "
            "after a warm-up with others of them; with --symbols beside rows of fixed lengths",
        },
        "batch-sizes": (
            "N,...",
            "with --texts: all of them by speak_many, so many at a time: utterances a second",
        ),
        "text-processes": {
            **{"type": options.not_negative, "metavar": "N"},
            "help": "with --batch-sizes: processes that analyse the texts (default: 0, the one that speaks)",
        },
    },
    "how it runs": {
        "backend": {
            **{"dest": "backends", "action": "append", "default": [], "metavar": "NAMES"},
            "help": "onnx, torch, trt, torch-compile, torch-graph, trt-graph (CUDA graphs), several "
            "(onnx,torch), or one for each model or stage (acoustic=trt,vocoder=onnx); may be repeated "
            "(default: onnx, and torch if it is installed)",
        },
        "precision": {
            **{"dest": "precisions", "metavar": "NAMES"},
            "help": "fp32, tf32, fp16, of those that a backend has (default: fp32, or what files say)",
        },
        "device": {"help": "cpu, cuda, cuda:N or auto (default: cpu, with trt a GPU)"},
        "peer": {
            **{"action": "append", "default": [], "metavar": "MODULE:FUNCTION"},
            "help": "a function of yours in the same tables: a list of ids -> their audio; may be repeated",
        },
        "decoder": None,
        "threads": None,
        "runs": {"type": options.positive, "help": "runs for each row, fewer of slow ones (default: 10)"},
        "warm-up": None,
        "text-warm-up": {
            **{"type": float, "metavar": "SECONDS"},
            "help": f"that --texts may speak others before (default: {LONGEST_TEXT_WARM_UP:.0f})",
        },
        "limit": {
            "type": float,
            "help": f"seconds for a row, with loading (default: {LIMIT:.0f}, with --texts {TEXT_LIMIT:.0f})",
        },
        "budget": {"type": float, "help": "seconds for all rows: no further one begins then"},
        "graphs": {
            **{"type": Path, "default": GRAPHS},
            "help": f"folder of graphs of published sizes, exported if missing (default: {GRAPHS})",
        },
    },
    "output": {
        "json": {"action": "store_true", "help": "print all numbers as JSON"},
        "out": {"type": Path, "help": "a folder: also write results.json, .csv, .md and plots there"},
        "profile": {
            **{"type": Path, "metavar": "FOLDER"},
            "help": "one more run of each row under a profiler: tables of kernels, copies, CUDA calls and "
            "operators, a picture, a trace and PyTorch's memory",
        },
        "document": {"type": Path, "help": "measure nothing: make this page of earlier results"},
    },
}


def add_arguments(parser: options.Parser) -> None:
    for heading, group in OPTIONS.items():
        arguments = parser.add_argument_group(heading)
        for name, how in group.items():
            if isinstance(how, tuple):
                how = dict(zip(("metavar", "help"), how, strict=True))
            if isinstance(how, dict):
                arguments.add_argument(f"--{name}", **how)
            else:
                options.add_options(arguments, name, **({name: how} if how else {}))
    parser.add_argument("results", nargs="*", default=[], metavar="RESULTS", help="JSON files for --document")


def make_workloads(args: argparse.Namespace):
    """The workloads, and the seconds that all of them may take."""
    from melforge.common.bench import workload
    from melforge.common.bench.models import require_peer
    from melforge.common.errors import require_torch

    keys = ("voice", "threads", "decoder", "deployments", "overrides", "warm_up", "runs", "device", "graphs")
    keys += ("text_warm_up", "text_processes", "profile")
    texts = read_texts(args)
    how = {"checkpoints": args.checkpoint, **{key: getattr(args, key) for key in keys}}
    for peer in args.peer:
        require_peer(peer)
    if args.weights:
        how["weights"] = workload.choices(args.weights, workload.WEIGHTS, "weights")[0]
    if args.weights == "published":
        require_torch("--weights published")
    if args.profile:
        require_torch("--profile")
    random_ids = args.symbols or (args.weights == "published" and not args.texts)
    if args.warm_up and (args.part or args.suite or random_ids):
        raise InputError("--warm-up speaks a sentence: it is not for random ids, nor parts of models")
    if args.symbols:
        how["symbols"] = workload.numbers(args.symbols, "--symbols")
    elif args.part or args.weights == "published":
        how["symbols"] = (128,)
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", args.device or "auto"):
        raise InputError(f"unknown device {args.device!r}: use cpu, cuda, cuda:N or auto")
    how = {key: value for key, value in how.items() if value is not None}
    if args.suite:
        made, budget = workload.suite_workloads(args.suite, how)
        return workload.with_peers(made, args.peer), args.budget or budget
    if args.part:
        targets = [workload.Target.of(part.strip()) for part in args.part.split(",")]
    else:
        targets = [workload.Target(*pair) for pair in itertools.product(*choose(args))]
    if args.decoder and not any(workload.form_of(target.acoustic, args.decoder) for target in targets):
        raise InputError(f"--decoder {args.decoder}: none of the models that are measured has this form")
    backends = args.backends or workload.default_backends(args.deployments)
    known = workload.PRECISIONS
    precisions = workload.choices(args.precisions, known, "precision") if args.precisions else ()
    how["batches"] = workload.numbers(args.batches, "--batches")
    sizes = workload.numbers(args.batch_sizes, "--batch-sizes") if args.batch_sizes else ()
    made = workload.make_workloads(targets, backends, precisions, **how)
    fixed = [] if texts and not args.symbols else workload.with_peers(made, args.peer)
    return fixed + (workload.with_texts(made, texts, sizes) if texts else []), args.budget


def read_texts(args: argparse.Namespace):
    """The texts of --texts. An InputError with what they do not go with, or that goes with them alone."""
    from melforge.common.bench.workload import Texts

    if args.text_processes and not args.batch_sizes:
        raise InputError("--text-processes is for --batch-sizes N")
    if not args.texts:
        for name in ("batch_sizes", "text_warm_up"):
            if getattr(args, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is for --texts FILE")
        return None
    for name in ("part", "suite"):
        if getattr(args, name):
            raise InputError(f"--texts is spoken by pairs: it does not go with --{name}")
    if not args.symbols and (args.peer or args.batches != "1"):
        raise InputError(
            "--peer and --batches are for fixed lengths, which --symbols N adds beside --texts; "
            "--batch-sizes has texts spoken in batches"
        )
    if args.text_warm_up is not None and args.text_warm_up < 0:
        raise InputError(f"--text-warm-up must be at least 0 seconds, not {args.text_warm_up:g}")
    return Texts.read(args.texts)


def choose(args: argparse.Namespace) -> list[list[str]]:
    """The acoustic models and the vocoders."""
    from melforge.common.bench.workload import choose_models

    return [
        choose_models(words, kind, args.voice, args.checkpoint, args.weights or "voice")
        for kind, words in (("acoustic", args.acoustic), ("vocoder", args.vocoder))
    ]
