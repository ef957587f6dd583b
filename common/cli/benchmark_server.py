"""Measures a speech server as its callers meet it: time to the first audio, throughput, gaps, errors."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from melforge.common.audio.wire import DEFAULT_RATE
from melforge.common.cli import options, phrases, run
from melforge.common.cli.benchmark_output import add_output, conclude, require_output, tell
from melforge.common.cli.say import KEY_VARIABLE, MODEL, SERVER, VOICE, report
from melforge.common.errors import InputError, require_package
from melforge.common.serve.client import Address, ServerError

if TYPE_CHECKING:
    from melforge.common.bench.load import Load
    from melforge.common.bench.targets import HttpTarget

SECONDS = 30.0
EPILOG = f"""examples:
  %(prog)s --streams 1,8,16                       # each sends its next request when one is answered
  %(prog)s --rates 2,4 --listeners 6 --seconds 60
  %(prog)s --riva --model fastpitch-hifigan -o build/server

An API key is taken from ${KEY_VARIABLE}."""


OPTIONS = f"""
what is asked:
  --server URL={SERVER}   where it listens; grpc://HOST:PORT for NVIDIA Riva's gRPC, tcp://HOST:PORT
        for the Wyoming protocol, several with commas
  --model NAME={MODEL}   a pair, as the server names it
  --voice NAME={VOICE}   a voice, as the server names it
  --sample-rate HZ     sampling rate of the sound (default: {DEFAULT_RATE})
  --texts PATH         a text a line (default: ten sentences of LJ Speech)
how it is asked:
  --streams LIST       closed loop: streams at a time, with commas (default: 1,4,8)
  --iterations N       times that each stream asks for all texts (default: 1)
  --rates LIST         open loop: requests a second, with commas
  --listeners LIST     listeners in real time, with commas
  --seconds SECONDS={SECONDS:.0f}   for how long rates and listeners send requests
  --riva               NVIDIA's method for Riva: 1, 4, 6, 8, 16, 32 and 64 streams, 20 iterations
  --processes N=1      client processes, where one is too slow for the load
  --timeout SECONDS=300   longest wait for a chunk
"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG)
    add_output(parser, "server")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from melforge.common.bench import load

    texts = phrases.read_texts(args.texts or load.RIVA_SENTENCES)
    loads = make_loads(args, len(texts))
    require_output(args)
    targets = [target_of(url.strip(), args, texts) for url in args.server.split(",")]
    addresses = [str(one).partition(": ")[0] for one in targets]
    if len(targets) > 1:
        targets = [replace(one, label={"address": at}) for one, at in zip(targets, addresses, strict=True)]
    for target, address in zip(targets, addresses, strict=True):
        try:
            target.warm_up()
        except ServerError as error:
            return report(error, address)
        except OSError as error:
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or error
            raise InputError(f"no server at {address} ({why}): start one, or give --server URL") from None
    rows = [
        row
        for one in loads
        for target in targets  # one after the other, so that both meet the same machine
        for row in load.measure(target, [one], args.processes, lambda row: tell(load.line(row)))
    ]
    about = "; ".join(map(str, targets))
    made = load.report_of(rows, about, run.command_line("benchmark_server"), args.riva)
    return conclude(args, made, "server")


def target_of(url: str, args: argparse.Namespace, texts: tuple[str, ...]) -> HttpTarget:
    """What is asked at an address, and by which protocol."""
    fields = {"model": args.model, "voice": args.voice}
    if args.sample_rate:
        fields["sample_rate"] = args.sample_rate
    how: Any = (os.environ.get(KEY_VARIABLE), fields, args.sample_rate or DEFAULT_RATE, texts, args.timeout)
    if url.startswith(("grpc:", "grpcs:")):
        require_package("riva.client", url)
        from melforge.common.bench.riva import RivaTarget

        return RivaTarget(Address.parse(url.replace("grpc", "http", 1)), *how)
    if url.startswith("tcp:"):
        require_package("wyoming", url)
        from melforge.common.bench.wyoming import WyomingTarget

        return WyomingTarget(Address.parse(url.replace("tcp", "http", 1)), *how)
    from melforge.common.bench.targets import HttpTarget

    return HttpTarget(Address.parse(url), *how)


def make_loads(args: argparse.Namespace, texts: int) -> list[Load]:
    from melforge.common.bench.load import CLOSED, LISTENERS, OPEN, RIVA_ITERATIONS, RIVA_STREAMS, Load

    streams = options.numbers("--streams", args.streams, whole=True)
    rates = options.numbers("--rates", args.rates)
    listeners = options.numbers("--listeners", args.listeners, whole=True)
    iterations = args.iterations or (RIVA_ITERATIONS if args.riva else 1)
    if args.riva and not streams:
        streams = list(RIVA_STREAMS)
    if not (streams or rates or listeners):
        streams = [1, 4, 8]
    loads = [Load(CLOSED, number, requests=iterations * texts) for number in streams]
    loads += [Load(OPEN, number, seconds=args.seconds) for number in rates]
    return loads + [Load(LISTENERS, number, seconds=args.seconds) for number in listeners]
