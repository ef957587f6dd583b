"""Measures a Triton Inference Server with the models of `melforge triton`: latency, throughput, batches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from melforge.common.cli import options, phrases, run
from melforge.common.cli.benchmark_server import conclude
from melforge.common.cli.triton_client import add_server_arguments, asked, reported
from melforge.common.cli.triton_transcribe import ENSEMBLE
from melforge.common.errors import InputError
from melforge.common.files import require_writable_folder

if TYPE_CHECKING:
    from melforge.common.bench.triton_load import TritonLoad
    from melforge.common.serve.client import Address

NUMBERS = "1,2,4,8,16,32"
STREAMS = "1,2,4,8"
RUNS, WARM_UP_RUNS = 20, 3
SECONDS, BATCHES, CALLERS = "2,7,16.7", "1,2,4,8", "1,2,4,8,16"  # as in NVIDIA's tables
EPILOG = """examples:
  %(prog)s                                        # all three: static and dynamic batching, streams
  %(prog)s phrases.txt --concurrency 1,8,64 --runs 100 --protocol grpc
  %(prog)s phrases.txt --batches 1,4,8 --out build/triton
  %(prog)s --transcribe jasper-onnx-ensemble,jasper-pyt-ensemble --seconds 2,7,16.7

docs/triton.md says what is measured."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, epilog=EPILOG)
    texts = "a text a line (default: ten sentences of LJ Speech)"
    parser.add_argument("phrases", metavar="FILE", type=Path, nargs="?", help=texts)
    add_server_arguments(parser)
    loads = parser.add_argument_group("loads")
    for name, about, default in (
        ("batches", "static batching: texts in each request of one client", NUMBERS),
        ("concurrency", "dynamic batching: requests of one text at a time", NUMBERS),
        ("streams", "requests at a time of the model that streams", STREAMS),
    ):
        default = f"where none of the three is given: {default}"
        loads.add_argument(f"--{name}", metavar="N,...", help=f"{about} ({default})")
    loads.add_argument(
        "--runs",
        type=options.positive,
        default=RUNS,
        metavar="N",
        help=f"requests of each client (default: {RUNS})",
    )
    loads.add_argument(
        "--warm-up-runs",
        type=options.not_negative,
        default=WARM_UP_RUNS,
        metavar="N",
        help=f"requests of each client before each row (default: {WARM_UP_RUNS})",
    )
    loads.add_argument(
        "--processes",
        type=options.positive,
        default=1,
        metavar="N",
        help="that share the clients, where one is too slow for them (default: 1)",
    )
    ears = parser.add_argument_group("recognisers")
    ears.add_argument(
        "--transcribe",
        nargs="?",
        const=ENSEMBLE,
        metavar="NAMES",
        help=f"measure these ensembles around recognisers, with commas (default: {ENSEMBLE}), with {BATCHES} "
        f"recordings in a request and {CALLERS} at a time where neither is given",
    )
    ears.add_argument("--seconds", metavar="LIST", help=f"of the recordings (default: {SECONDS})")
    options.add_control_arguments(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print all numbers as JSON")
    output.add_argument(
        "--out", type=Path, metavar="FOLDER", help="also write triton.json, .md and a plot there"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    address, parameters = asked(args)
    if args.out:
        require_writable_folder(args.out)
    if args.transcribe:
        return measure_recognisers(args, address, parameters)
    if args.seconds:
        raise InputError("--seconds is for --transcribe: texts have their own length")

    from melforge.common.bench import server, triton_server
    from melforge.common.bench.triton_load import DYNAMIC, STATIC, STREAM, TritonTarget
    from melforge.common.triton.client import CLIENTS

    given = {STATIC: args.batches, DYNAMIC: args.concurrency, STREAM: args.streams}
    loads = make_loads(args, given, {STATIC: NUMBERS, DYNAMIC: NUMBERS, STREAM: STREAMS})
    texts = phrases.read_texts(args.phrases) if args.phrases else server.RIVA_TEXTS
    with reported(address), closing(CLIENTS[args.protocol](address, args.timeout)) as client:
        target = TritonTarget(
            *(address, args.protocol, texts, client.sampling_rate(), parameters, args.timeout)
        )
        rows = triton_server.measure(
            *(target, loads, args.warm_up_runs, args.processes, client),
            lambda row: print(triton_server.line(row), file=sys.stderr),
        )
    results = triton_server.results_of(target, rows, run.command_line("benchmark_triton"))
    return conclude(args, triton_server, "triton", results)


def measure_recognisers(args: argparse.Namespace, address: Address, parameters: Mapping[str, Any]) -> int:
    if args.phrases or args.streams or parameters:
        raise InputError("--transcribe takes no texts, --streams or controls: nothing is spoken")
    models = [word.strip() for word in args.transcribe.split(",")]
    lengths = options.numbers("--seconds", args.seconds or SECONDS)

    from melforge.common.bench import triton_hearing
    from melforge.common.bench.triton_load import DYNAMIC, STATIC, HearingTarget
    from melforge.common.triton.client import CLIENTS

    given = {STATIC: args.batches, DYNAMIC: args.concurrency}
    loads = make_loads(args, given, {STATIC: BATCHES, DYNAMIC: CALLERS})
    with reported(address), closing(CLIENTS[args.protocol](address, args.timeout)) as client:
        target = HearingTarget(address, args.protocol, (), 0, {}, args.timeout)
        how = models, lengths, loads, args.warm_up_runs, args.processes, client
        rows = triton_hearing.measure_all(target, *how, lambda text: print(text, file=sys.stderr))
    results = triton_hearing.results_of(target, rows, run.command_line("benchmark_triton"))
    return conclude(args, triton_hearing, "triton-ear", results)


def make_loads(
    args: argparse.Namespace, given: Mapping[str, str | None], usual: Mapping[str, str]
) -> list[TritonLoad]:
    """A load for each number of each kind that is `given`; where none is, those that are `usual`."""
    from melforge.common.bench.triton_load import DYNAMIC, STATIC, STREAM, TritonLoad

    flags = {STATIC: "--batches", DYNAMIC: "--concurrency", STREAM: "--streams"}
    return [
        TritonLoad(kind, int(number), args.runs)
        for kind, text in (given if any(given.values()) else usual).items()
        for number in options.numbers(flags[kind], text, whole=True)
    ]
