"""Measures a Triton Inference Server with the models of `melforge triton`: latency, throughput, batches."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from melforge.common.cli import options, phrases, run
from melforge.common.cli.benchmark_output import add_output, conclude, require_output, tell
from melforge.common.cli.triton_client import SERVER_OPTIONS, asked, reported
from melforge.common.cli.triton_transcribe import ENSEMBLE
from melforge.common.errors import InputError

if TYPE_CHECKING:
    from melforge.common.bench.load import Load
    from melforge.common.bench.targets import TritonTarget
    from melforge.common.triton.client import Client

NUMBERS, STREAMS = "1,2,4,8,16,32", "1,2,4,8"
RUNS, WARM_UP_RUNS = 20, 3
SECONDS, BATCHES, CALLERS = "2,7,16.7", "1,2,4,8", "1,2,4,8,16"  # as in NVIDIA's tables
EPILOG = """examples:
  %(prog)s                                        # all three: static and dynamic batching, streams
  %(prog)s phrases.txt --concurrency 1,8,64 --runs 100 --protocol grpc
  %(prog)s phrases.txt --batches 1,4,8 -o build/triton
  %(prog)s --transcribe jasper-onnx-ensemble,jasper-pyt-ensemble --seconds 2,7,16.7

docs/triton.md says what is measured."""


OPTIONS = f"""
  phrases [PATH]       a text a line (default: ten sentences of LJ Speech)
{SERVER_OPTIONS}
loads:
  --batches LIST       static batching: texts in each request of one client (where none of the three is given:
        {NUMBERS})
  --concurrency LIST   dynamic batching: requests of one text at a time (where none of the three is given:
        {NUMBERS})
  --streams LIST       requests at a time of the model that streams (where none of the three is given:
        {STREAMS})
  --runs N={RUNS}      requests of each client
  --warm-up-runs N0={WARM_UP_RUNS}   requests of each client before each row
  --processes N=1      that share the clients, where one is too slow for them
recognisers:
  --transcribe [NAMES]   measure these ensembles around recognisers, with commas (default: {ENSEMBLE}), with
        {BATCHES} recordings in a request and {CALLERS} at a time where neither is given
  --seconds LIST       of the recordings (default: {SECONDS})
{options.CONTROLS}"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG)
    add_output(parser, "triton")
    args = parser.parse_args(argv)
    args.transcribe = ENSEMBLE if args.transcribe == "" else args.transcribe
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    address, parameters = asked(args)
    require_output(args)
    if args.transcribe and (args.phrases or args.streams or parameters):
        raise InputError("--transcribe takes no texts, --streams or controls: nothing is spoken")
    if args.seconds and not args.transcribe:
        raise InputError("--seconds is for --transcribe: texts have their own length")

    from melforge.common.bench import load
    from melforge.common.bench.targets import TritonTarget
    from melforge.common.bench.triton_statistics import settled
    from melforge.common.triton.client import CLIENTS

    given = {load.STATIC: args.batches, load.DYNAMIC: args.concurrency, load.STREAM: args.streams}
    usual = {load.STATIC: NUMBERS, load.DYNAMIC: NUMBERS, load.STREAM: STREAMS}
    loads = make_loads(
        args, given, {load.STATIC: BATCHES, load.DYNAMIC: CALLERS} if args.transcribe else usual
    )
    texts = phrases.read_texts(args.phrases or load.RIVA_SENTENCES)
    target = TritonTarget(address, args.protocol, 0, texts, parameters, args.timeout)
    rows = []
    with reported(address), closing(CLIENTS[args.protocol](address, args.timeout)) as client:
        if not args.transcribe:
            target = replace(target, rate=client.sampling_rate())
        for one in hearing_targets(args, target, client) if args.transcribe else [target]:
            rows += load.measure(
                one,
                loads,
                args.processes,
                lambda row: tell(load.line(row)),
                args.warm_up_runs,
                lambda models=one.models: settled(client, models),
            )
    made = load.report_of(rows, str(target), run.command_line("benchmark_triton"))
    return conclude(args, made, "triton-ear" if args.transcribe else "triton")


def hearing_targets(args: argparse.Namespace, target: TritonTarget, client: Client) -> list[TritonTarget]:
    """One for each recogniser and length."""
    from melforge.common.bench.targets import HearingTarget

    lengths = options.numbers("--seconds", args.seconds or SECONDS)
    made: list[TritonTarget] = []
    for model in (word.strip() for word in args.transcribe.split(",")):
        rate = client.sampling_rate(model)
        for seconds in lengths:
            label = {"model": model.removesuffix("-ensemble"), "seconds": seconds}
            how = {"timeout": target.timeout, "label": label, "model": model, "seconds": seconds}
            made.append(HearingTarget(target.address, target.protocol, rate, **how))
    return made


def make_loads(
    args: argparse.Namespace, given: Mapping[str, str | None], usual: Mapping[str, str]
) -> list[Load]:
    """A load for each number of each kind that is `given`; where none is, those that are `usual`."""
    from melforge.common.bench.load import DYNAMIC, STATIC, STREAM, Load

    flags = {STATIC: "--batches", DYNAMIC: "--concurrency", STREAM: "--streams"}
    return [
        Load(kind, number, args.runs)
        for kind, text in (given if any(given.values()) else usual).items()
        for number in options.numbers(flags[kind], text, whole=True)
    ]
