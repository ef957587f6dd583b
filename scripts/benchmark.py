"""Measures speaking on this machine's CPU and prints tables in markdown: a row for each pair and backend."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json

from common import cli


def main() -> int:
    parser = cli.Parser(
        description=__doc__, kinds=("acoustic", "vocoder"), choose=lambda args: itertools.chain(*choose(args))
    )
    which = "one, several (a,b) or all of the voice's (default: the voice's first)"
    parser.add_argument("--acoustic", metavar="NAME", help=f"acoustic models: {which}")
    parser.add_argument("--vocoder", metavar="NAME", help=f"vocoders: {which}")
    parser.add_argument(
        "--voice", metavar="NAME", help="name or folder of a voice (default: the shipped one)"
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="FILE",
        help="published weights instead of the voice's, also acoustic=FILE or vocoder=FILE; may be repeated",
    )
    parser.add_argument("--backend", help="onnx, torch or onnx,torch (default: those that are installed)")
    parser.add_argument(
        "--decoder",
        choices=("loop", "steps"),
        help="tacotron2: all steps in one graph, or one step a call (default: the model's)",
    )
    parser.add_argument("--threads", type=cli.positive, metavar="N", help="CPU threads (default: all cores)")
    parser.add_argument("--runs", type=cli.positive, default=10, help="runs for each figure (default: 10)")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON")
    args = parser.parse_args()

    from common.bench import Case, markdown, measure

    installed = ["onnx", "torch"] if importlib.util.find_spec("torch") else ["onnx"]
    words = args.backend.split(",") if args.backend else installed
    backends = [args.backend] if args.backend and "=" in args.backend else words
    how = (args.voice, args.checkpoint, args.threads, args.decoder, args.deployments, args.overrides)
    cases = [
        Case(acoustic, vocoder, backend, *how)
        for acoustic, vocoder, backend in itertools.product(*choose(args), backends)
    ]
    figures = measure(cases, args.runs)
    print(json.dumps(figures, indent=1) if args.json else markdown(figures))
    return 0


def choose(args: argparse.Namespace) -> list[list[str]]:
    """The acoustic models and the vocoders."""
    from common.bench import choose_models

    return [
        choose_models(words, kind, args.voice, args.checkpoint)
        for kind, words in (("acoustic", args.acoustic), ("vocoder", args.vocoder))
    ]


if __name__ == "__main__":
    cli.run(main)
