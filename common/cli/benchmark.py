"""Measures pairs, models or stages on this machine, on any backends: tables of speed and memory."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from melforge.common.cli import options, run
from melforge.common.cli.benchmark_output import add_output, conclude, require_output, tell
from melforge.common.cli.option import TYPES
from melforge.common.errors import InputError, require_torch

if TYPE_CHECKING:
    from melforge.common.bench.report import Row
    from melforge.common.bench.workload import Texts, Workload

LIMIT, TEXT_LIMIT = 120.0, 900.0  # seconds of a row
# By option: argparse's keywords, or its metavar and help; the help of a shared option, or None for its own.
OPTIONS = f"""
what is measured:
  --acoustic           acoustic models: one, several (a,b) or all of the voice's (default: the voice's first)
  --vocoder            vocoders, as --acoustic
  --part NAMES         models or stages alone instead of pairs:
        fastpitch,hifigan.generator,tacotron2.decoder_loop
  --suite NAME         tables that belong together: h200, cpu or onnx-options
  --weights KIND       the voice's, or published: seeded random ones in the published sizes (default: voice)
  voice checkpoint
  --symbols LIST       text lengths, in symbols, with commas: random ids, 5 frames for each, 600 steps of
        Tacotron 2 (default: sentences, as long as they become; 128 with --part and published weights)
  --batches LIST=1     batch sizes, in utterances, with commas
  --texts PATH         a text a line: each is spoken once, one after the other, whole and as a stream, after a
        warm-up with others of them; with --symbols beside rows of fixed lengths
  --batch-sizes LIST   with --texts: all of them by speak_many, so many at a time: utterances a second
  --text-processes N0  with --batch-sizes: processes that analyse the texts (default: 0, the one that speaks)
how it runs:
  --device NAME        cpu, cuda, cuda:N or auto (default: cpu, with trt a GPU)
  --peer MODULE:FUNCTION...   a function of yours in the same tables: a list of ids -> their audio; may be
        repeated
  decoder threads
  --runs N             runs for each row, fewer of slow ones (default: 10)
  warm-up
  --text-warm-up X     seconds that --texts may speak others before (default: 60)
  --limit SECONDS      seconds for a row, with loading (default: {LIMIT:.0f}, with --texts {TEXT_LIMIT:.0f})
  --budget SECONDS     seconds for all rows: no further one begins then
  --graphs DIR         folder of graphs of published sizes, exported if missing (default: build/graphs)
"""
BACKENDS = """onnx, torch, trt, cuda, torch-compile, torch-graph, trt-graph (CUDA graphs), several
(onnx,torch), or one for each model or stage (acoustic=trt,vocoder=onnx); may be repeated (default: onnx, and
torch if it is installed)"""
PRECISIONS = "fp32, tf32, fp16, of those that a backend has (default: fp32, or what files say)"


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from melforge.common.bench.run import measure
    from melforge.common.bench.speeds import report_of

    workloads, budget = make_workloads(args)
    require_output(args)
    limit = args.limit or (TEXT_LIMIT if args.texts else LIMIT)
    found = measure(workloads, limit, budget, show)
    return conclude(args, report_of(found, run.command_line("benchmark")), "results")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(
        description=__doc__, kinds=("acoustic", "vocoder"), choose=lambda args: itertools.chain(*choose(args))
    )
    options.add_table(parser, OPTIONS)
    # `backend` and `precision` are keys of the models here.
    how, many = parser.add_argument_group("how it runs"), {"action": "append", "default": []}
    how.add_argument("--backend", dest="backends", metavar="NAMES", **many, help=BACKENDS)
    how.add_argument("--precision", dest="precisions", metavar="NAMES", help=PRECISIONS)
    text = "one more run of each row under torch.profiler: its table, a trace and PyTorch's memory"
    add_output(parser, "results").add_argument("--profile", type=TYPES["DIR"], metavar="FOLDER", help=text)
    return parser.parse_args(argv)


def show(row: Row) -> None:
    from melforge.common.bench.speeds import line
    from melforge.common.synthesis.warm_up import HEADINGS

    if "warm_up" in row:
        run.print_table(HEADINGS, row["warm_up"], file=sys.stderr)
    tell(line(row))


def loading_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the options say of the fields of `Loading`."""
    keys = ("voice", "threads", "decoder", "deployments", "overrides", "graphs", "weights")
    found = {"checkpoints": args.checkpoint, **{key: getattr(args, key) for key in keys}}
    return {key: value for key, value in found.items() if value is not None}


def make_workloads(args: argparse.Namespace) -> tuple[list[Workload], float | None]:
    """The workloads, and the seconds that all of them may take."""
    from melforge.common.bench import workload
    from melforge.common.bench.peer import require_peer

    texts = read_texts(args)
    for peer in args.peer:
        require_peer(peer)
    if args.weights:
        workload.choices(args.weights, workload.WEIGHTS, "weights")
    for option, needs in (("--weights published", args.weights == "published"), ("--profile", args.profile)):
        if needs:
            require_torch(option)
    random_ids = args.symbols or (args.weights == "published" and not args.texts)
    if args.warm_up and (args.part or args.suite or random_ids):
        raise InputError("--warm-up speaks a sentence: it is not for random ids, nor parts of models")
    how = {"warm_up": args.warm_up, "runs": args.runs, "device": args.device, "profile": args.profile}
    how = {key: value for key, value in how.items() if value is not None}
    if args.symbols:
        how["symbols"] = options.numbers("--symbols", args.symbols, whole=True)
    elif args.part or args.weights == "published":
        how["symbols"] = (128,)
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", args.device or "auto"):
        raise InputError(f"unknown device {args.device!r}: use cpu, cuda, cuda:N or auto")
    if args.suite:
        made, budget = workload.suite_workloads(args.suite, loading_of(args), how)
        return workload.with_peers(made, args.peer), args.budget or budget
    loading = workload.Loading(**loading_of(args))
    if args.part:
        subjects = [workload.Subject.of(part.strip()) for part in args.part.split(",")]
    else:
        subjects = [workload.Subject(*pair) for pair in itertools.product(*choose(args))]
    if args.decoder and not any(workload.form_of(one.acoustic, args.decoder) for one in subjects):
        raise InputError(f"--decoder {args.decoder}: none of the models that are measured has this form")
    backends = args.backends or workload.default_backends(args.deployments)
    known = workload.PRECISIONS
    precisions = workload.choices(args.precisions, known, "precision") if args.precisions else ()
    how["batches"] = options.numbers("--batches", args.batches, whole=True)
    sizes = options.numbers("--batch-sizes", args.batch_sizes, whole=True)
    made = workload.make_workloads(subjects, backends, loading, precisions, **how)
    fixed = [] if texts and not args.symbols else workload.with_peers(made, args.peer)
    return fixed + (workload.with_texts(made, texts, sizes) if texts else []), args.budget


def read_texts(args: argparse.Namespace) -> Texts | None:
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
    how = {"longest_warm_up": args.text_warm_up, "processes": args.text_processes}
    return Texts.read(args.texts, **{key: value for key, value in how.items() if value is not None})


def choose(args: argparse.Namespace) -> list[list[str]]:
    """The acoustic models and the vocoders."""
    from melforge.common.bench.workload import Loading, choose_models

    loading = Loading(args.weights or "voice", args.voice, args.checkpoint)
    return [
        choose_models(words, kind, loading)
        for kind, words in (("acoustic", args.acoustic), ("vocoder", args.vocoder))
    ]
