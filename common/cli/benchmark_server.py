"""Measures a speech server as its callers meet it: time to the first audio, throughput, gaps, errors."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from melforge.common.audio.wire import DEFAULT_RATE
from melforge.common.bench.server_load import CLOSED, LISTENERS, OPEN, Load, Target, warm_up
from melforge.common.cli import options, phrases, run
from melforge.common.cli.say import KEY_VARIABLE, MODEL, SERVER, VOICE, report
from melforge.common.errors import InputError
from melforge.common.files import require_writable_folder
from melforge.common.serve.client import Address, ServerError

SECONDS = 30.0
EPILOG = f"""examples:
  %(prog)s --streams 1,8,16                       # each sends its next request when one is answered
  %(prog)s --rates 2,4 --listeners 6 --seconds 60
  %(prog)s --riva --model fastpitch-hifigan --out build/server

An API key is taken from ${KEY_VARIABLE}."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, epilog=EPILOG)
    asked = parser.add_argument_group("what is asked")
    asked.add_argument(
        "--server", default=SERVER, metavar="URL", help=f"where it listens (default: {SERVER})"
    )
    asked.add_argument("--model", default=MODEL, help=f"a pair, as the server names it (default: {MODEL})")
    asked.add_argument("--voice", default=VOICE, help=f"a voice, as the server names it (default: {VOICE})")
    asked.add_argument(
        "--sample-rate", type=options.positive, metavar="HZ", help=f"of the sound (default: {DEFAULT_RATE})"
    )
    asked.add_argument(
        "--texts", type=Path, metavar="FILE", help="a text a line (default: ten sentences of LJ Speech)"
    )
    how = parser.add_argument_group("how it is asked")
    how.add_argument("--streams", metavar="N,...", help="closed loop: streams at a time (default: 1,4,8)")
    how.add_argument(
        "--iterations", type=options.positive, metavar="N", help="of all texts by each stream (default: 1)"
    )
    how.add_argument("--rates", metavar="X,...", help="open loop: requests a second")
    how.add_argument("--listeners", metavar="N,...", help="listeners in real time")
    how.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"for which rates and listeners send requests (default: {SECONDS:.0f})",
    )
    how.add_argument(
        "--riva",
        action="store_true",
        help="NVIDIA's method for Riva: 1, 4, 6, 8, 16, 32 and 64 streams, 20 iterations",
    )
    how.add_argument(
        "--processes",
        type=options.positive,
        default=1,
        metavar="N",
        help="that share the load, where one is too slow for it (default: 1)",
    )
    how.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="longest wait for a chunk (default: 300 s)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print all numbers as JSON")
    output.add_argument(
        "--out", type=Path, metavar="FOLDER", help="also write server.json, .md and a plot there"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    loads = make_loads(args)
    if args.out:
        require_writable_folder(args.out)

    from melforge.common.bench import server

    fields = {"model": args.model, "voice": args.voice}
    if args.sample_rate:
        fields["sample_rate"] = args.sample_rate
    rate = args.sample_rate or DEFAULT_RATE
    texts = phrases.read_texts(args.texts) if args.texts else server.RIVA_TEXTS
    address = Address.parse(args.server)
    target = Target(address, os.environ.get(KEY_VARIABLE), fields, rate, texts, args.timeout)
    try:
        warm_up(target)
    except ServerError as error:
        return report(error, address)
    except OSError as error:
        raise InputError(
            f"no server at {address} ({error.strerror or error}): start one, or give --server URL"
        ) from None
    rows = server.measure(target, loads, args.processes, lambda row: print(server.line(row), file=sys.stderr))
    results = server.results_of(target, rows, run.command_line("benchmark_server"))
    return conclude(args, server, "server", results)


def conclude(args: argparse.Namespace, module: Any, name: str, results: dict[str, Any]) -> int:
    """Prints results, and writes them where --out asks for files of this name; the exit status.

    `module` of melforge.common.bench has their `markdown` and `draw`.
    """
    from melforge.common.bench.load_report import write_all

    page, rows = module.markdown(results), results["rows"]
    if args.out:
        write_all(results, args.out, name, page, module.draw(rows))
    print(json.dumps(results, indent=1) if args.json else page, end="")
    return 0 if any("failed" not in row for row in rows) else 1


def make_loads(args: argparse.Namespace) -> list[Load]:
    from melforge.common.bench.server import RIVA_ITERATIONS, RIVA_STREAMS

    if not 0 < args.seconds < math.inf or not args.timeout > 0:
        raise InputError("--seconds and --timeout must be positive, and --seconds a number")
    streams = options.numbers("--streams", args.streams, whole=True)
    rates = options.numbers("--rates", args.rates)
    listeners = options.numbers("--listeners", args.listeners, whole=True)
    iterations = args.iterations or (RIVA_ITERATIONS if args.riva else 1)
    if args.riva and not streams:
        streams = list(RIVA_STREAMS)
    if not (streams or rates or listeners):
        streams = [1, 4, 8]
    loads = [Load(CLOSED, number, iterations=iterations) for number in streams]
    loads += [Load(OPEN, number, seconds=args.seconds) for number in rates]
    return loads + [Load(LISTENERS, number, seconds=args.seconds) for number in listeners]
