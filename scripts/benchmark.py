"""Measures speaking on this machine's CPU and prints a table in markdown."""

from __future__ import annotations

import argparse
import importlib.util
import json

from common import cli


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--voice", metavar="NAME", help="name or folder of a voice (default: the shipped one)"
    )
    parser.add_argument("--backend", help="onnx, torch or onnx,torch (default: those that are installed)")
    parser.add_argument("--threads", type=cli.positive, metavar="N", help="CPU threads (default: all cores)")
    parser.add_argument("--runs", type=cli.positive, default=10, help="runs for each figure (default: 10)")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON")
    args = parser.parse_args()

    from common.bench import markdown, measure

    installed = ["onnx", "torch"] if importlib.util.find_spec("torch") else ["onnx"]
    figures = measure(
        args.voice, args.backend.split(",") if args.backend else installed, args.threads, args.runs
    )
    print(json.dumps(figures, indent=1) if args.json else markdown(figures))
    return 0


if __name__ == "__main__":
    cli.run(main)
