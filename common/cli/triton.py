"""Writes a model repository for NVIDIA's Triton Inference Server, which runs our models in batches."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from common.cli import options
from common.errors import InputError

EPILOG = """examples:
  %(prog)s models
  %(prog)s models --acoustic tacotron2 --vocoder waveglow --backend cuda --device cuda --instances 2
  tritonserver --model-repository=models

docs/triton.md has the models, their tensors, and how they are run."""
DEVICES = ("auto", "cpu", "cuda")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.Parser(description=__doc__, epilog=EPILOG, kinds=("acoustic", "vocoder"))
    parser.add_argument("folder", metavar="OUT", type=Path, help="folder of the repository")
    models = parser.add_argument_group("models")
    names = ("acoustic", "vocoder", "voice", "checkpoint", "backend", "precision", "decoder", "threads")
    options.add_options(models, *names)
    group = parser.add_argument_group("how Triton runs them")
    group.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="cuda: instances on every GPU that Triton has (default: there, or on the CPU without one)",
    )
    group.add_argument(
        "--instances",
        type=options.positive,
        default=1,
        metavar="N",
        help="of each model, on each GPU; each is a process with weights of its own (default: 1)",
    )
    group.add_argument(
        "--batch-size",
        type=options.positive,
        metavar="N",
        help="texts at a time (default: as many as the models take)",
    )
    group.add_argument(
        "--queue-delay",
        type=options.not_negative,
        default=0,
        metavar="US",
        help="microseconds that a text waits at each model for others (default: 0)",
    )
    group.add_argument(
        "--stages",
        choices=("onnx", "trt"),
        help="beside the models also their stages without a loop, for Triton's own backends: onnx (ONNX "
        "Runtime), or trt (TensorRT, whose plans OUT/build_plans.sh has built)",
    )
    group.add_argument("--stages-precision", choices=("fp32", "fp16"), help="of these stages (default: fp32)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from common.triton.choice import ModelChoice
    from common.triton.repository import Layout, write_repository

    if args.folder.exists() and not args.folder.is_dir():
        raise InputError(f"{args.folder} is a file: give a folder for the repository")
    names = ("acoustic", "vocoder", "voice", "backend", "threads", "decoder", "deployments", "overrides")
    given = {name: getattr(args, name) for name in names}
    choice = ModelChoice(checkpoints=tuple(args.checkpoint), **given)
    layout = Layout(args.device, args.instances, args.batch_size, args.queue_delay)
    if args.stages_precision and not args.stages:
        raise InputError("--stages-precision is for --stages onnx or --stages trt")
    if args.stages:
        from common.triton.stage_models import require_stages

        require_stages(layout, args.stages)
    models = write_repository(args.folder, choice, layout)
    if args.stages:
        from common.triton.stage_models import write_stages

        models += write_stages(args.folder, choice, layout, args.stages, args.stages_precision or "fp32")
    print(f"{args.folder}: {', '.join(models)}")
    return 0
