"""Measures a recogniser: audio on the host to labels on the host, by length, batch, backend and precision."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from melforge.common.cli import options, run
from melforge.common.cli.benchmark_output import add_output, conclude, require_output, tell
from melforge.common.config.deployment import PRECISIONS
from melforge.common.errors import InputError, require_torch
from melforge.common.registry import names

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource

SECONDS, BATCHES = "2,7,16.7", "1,2,4,8"  # as in NVIDIA's tables


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__)
    options.add_options(parser, "ear", "checkpoint", checkpoint="a published or trained file instead")
    text = "a network of this model's published sizes with random weights instead of an ear"
    parser.add_argument("--published", choices=names("recogniser"), metavar="MODEL", help=text)
    add = parser.add_argument
    text = "onnx, torch, torch-tuned, torch-graph, torch-compile, trt, trt-graph, cuda, with commas "
    text += "(default: onnx)"
    add("--backend", default="onnx", metavar="NAMES", help=text)
    add("--precision", default="fp32", metavar="NAMES", help="fp32, fp16, with commas (default: fp32)")
    add("--seconds", default=SECONDS, metavar="LIST", help=f"of audio, with commas (default: {SECONDS})")
    add("--batches", default=BATCHES, metavar="LIST", help=f"with commas (default: {BATCHES})")
    options.add_options(parser, "device", "threads")
    add("--runs", type=options.positive, default=100, help="of each row, fewer of slow ones (default: 100)")
    add_output(parser, "recogniser")
    args = parser.parse_args(argv)

    from melforge.common.bench.recognition import RecogniserWorkload, line, measure, report_of

    precisions = args.precision.split(",")
    if unknown := [word for word in precisions if word not in PRECISIONS]:
        raise InputError(f"--precision {unknown[0]}: use {' or '.join(PRECISIONS)}")
    how = RecogniserWorkload(
        args.backend.split(","),
        precisions,
        options.numbers("--seconds", args.seconds),
        options.numbers("--batches", args.batches, whole=True),
        args.device,
        args.threads,
        args.runs,
    )
    require_output(args)
    rows = []
    for row in measure(read_source(args), how):
        tell(line(row))
        rows.append(row)
    if not rows:
        raise InputError(
            "nothing to measure: fp16 is for trt, and for torch on a GPU; cuda has no other; batches have "
            "as many recordings as the recogniser takes at a time"
        )
    command = run.command_line("benchmark_recogniser")
    return conclude(args, report_of(rows, command, rows[0]["device"]), "recogniser")


def read_source(args: argparse.Namespace) -> ModelSource:
    """The recogniser that is measured."""
    if args.published:
        require_torch("--published")
        from melforge.common.bench.random_weights import random_source

        return random_source(args.published)
    from melforge.common.weights.ears import read_recogniser

    return read_recogniser(args.ear, args.checkpoint)
