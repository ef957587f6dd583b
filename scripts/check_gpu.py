"""Builds every stage as a TensorRT engine and compares it with PyTorch on this GPU: error, size, speed."""

from __future__ import annotations

from pathlib import Path

from common import cli
from common.build import PRECISIONS
from common.registry import names


def main() -> int:
    parser = cli.Parser(description=__doc__)
    parser.add_argument(
        "--models", default=",".join(names()), metavar="NAMES", help="with commas (default: all)"
    )
    parser.add_argument(
        "--weights",
        default="published,voice",
        metavar="KINDS",
        help="published (its sizes, random weights) and voice (default: both)",
    )
    parser.add_argument("--precision", default=",".join(PRECISIONS), help="with commas (default: fp32,fp16)")
    parser.add_argument("--fixed", action="store_true", help="also engines for one length only")
    parser.add_argument(
        "--graphs",
        type=Path,
        default=Path("build/graphs"),
        metavar="FOLDER",
        help="graphs of published sizes",
    )
    parser.add_argument("--speak", action="store_true", help="speak with every pair of the voice instead")
    parser.add_argument("--export-only", action="store_true", help="make those graphs and stop")
    parser.add_argument(
        "--limit", type=float, default=90.0, metavar="SECONDS", help="for a stage (default: 90)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("gpu_check.json"), metavar="FILE", help="the results"
    )
    args = parser.parse_args()

    from common.gpu_check import (
        HEADINGS,
        SPOKEN,
        experiments,
        row_of,
        run_all,
        run_speaking,
        spoken_row,
    )
    from common.seeded import random_source

    models, origins, precisions = (t.split(",") for t in (args.models, args.weights, args.precision))
    if args.export_only:
        for model in models:
            list(random_source(model, args.graphs).graphs.values())  # asking exports
        return 0
    if args.speak:
        rows = run_speaking(precisions, args.out)
        cli.print_table(SPOKEN, [spoken_row(row) for row in rows])
        return 1 if any("failed" in row for row in rows) else 0
    todo = experiments(models, origins, precisions, args.fixed)
    results = run_all(todo, args.graphs, args.out, args.limit)
    cli.print_table(HEADINGS, [row_of(row) for row in results])
    return 1 if any("failed" in row for row in results) else 0


if __name__ == "__main__":
    cli.run(main)
