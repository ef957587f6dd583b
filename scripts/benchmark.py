"""Measures speaking on this machine's CPU (trt: its GPU); markdown, a row for each pair and backend."""

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
    parser.add_argument(
        "--backend",
        help="onnx, torch, trt, several (onnx,torch), or one for each model (acoustic=trt,vocoder=onnx) "
        "(default: onnx, and torch if it is installed)",
    )
    cli.add_precision_argument(parser)
    parser.add_argument(
        "--decoder",
        choices=("loop", "steps"),
        help="tacotron2: all steps in one graph, or one step a call (default: the model's)",
    )
    parser.add_argument("--threads", type=cli.positive, metavar="N", help="CPU threads (default: all cores)")
    parser.add_argument("--runs", type=cli.positive, default=10, help="runs for each figure (default: 10)")
    parser.add_argument("--warm-up", action="store_true", help=cli.WARM_UP_HELP)
    parser.add_argument("--json", action="store_true", help="print every figure as JSON")
    args = parser.parse_args()

    from common.bench import make_cases, markdown, measure

    installed = "onnx,torch" if importlib.util.find_spec("torch") else "onnx"
    cases = make_cases(
        *choose(args),
        args.backend or installed,
        voice=args.voice,
        checkpoints=args.checkpoint,
        threads=args.threads,
        decoder=args.decoder,
        deployments=args.deployments,
        overrides=args.overrides,
    )
    figures = measure(cases, args.runs, cli.warm_up if args.warm_up else None)
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
