"""Writes a model repository for NVIDIA's Triton Inference Server, which runs our models in batches."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from melforge.common.cli import options
from melforge.common.config.lexicon import read_lexicon
from melforge.common.errors import InputError, unknown
from melforge.common.remote import sent
from melforge.common.synthesis.places import ALL

if TYPE_CHECKING:
    from melforge.common.triton.repository import Layout
    from melforge.common.weights.voices import ModelSource

EPILOG = """examples:
  %(prog)s models
  %(prog)s models --acoustic tacotron2 --vocoder waveglow --backend cuda --device cuda --instances 2
  %(prog)s models --ear NAME --backend onnx,torch
  tritonserver --model-repository=models

docs/triton.md has the models, their tensors, and how they are run."""
OPTIONS = """
  folder [OUT]         folder of the repository
  -o, --output OUT     the same
models:
  acoustic vocoder voice checkpoint backend precision decoder threads lexicon
  --ear [NAME]         the models around a recogniser instead of those that speak: of this ear (default: the
        first), or of --checkpoint FILE; --backend then names all that are wanted: onnx,torch,trt
  --jasper-client      its models as NVIDIA's jasper-client.py asks for them: names, the signal
        in half precision, and labels alone as the output
how Triton runs them:
  --device NAME=auto   cpu, cuda or cuda:all (instances on every GPU that Triton has), of these only
        cuda:0,cuda:2, or auto (all GPUs, or the CPU where there is none)
  --instances, --workers-per-gpu N=1   of each model, on each GPU; each is a process with its own weights
  --batch-size N       texts at a time (default: as many as the models take)
  --queue-delay US=0   microseconds that a text waits at each model for others
  --queue-size N=64    texts that wait, that are under way (for each GPU), and that stream; further ones are
        refused at once, with status 503
  --queue-seconds SECONDS=8   after which a text that waits at a model is refused
  --[no-]warm-up       run every length and batch before a model is ready; without it a request of a new
        length waits until it is captured or compiled (default: with cuda and trt on a GPU)
  --stages onnx|trt    beside the models also their stages without a loop, for Triton's own backends: onnx
        (ONNX Runtime), or trt (TensorRT, whose plans OUT/build_plans.sh has built)
  --stages-precision fp32|fp16   of these stages (default: fp32)
"""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    words = sys.argv[1:] if argv is None else argv
    hears = any(word.partition("=")[0] == "--ear" for word in words)
    how: dict[str, Any] = {"kinds": ("acoustic", "vocoder")}
    if hears:
        how = {"kinds": ("recogniser",), "choose": lambda args: [read_source(args).model]}
    parser = options.make_parser(OPTIONS, description=__doc__, epilog=EPILOG, **how)
    parser.exclude("folder", "output", required=True)
    return parser.parse_args(argv)


def read_source(args: argparse.Namespace) -> ModelSource:
    """The recogniser that is asked for."""
    from melforge.common.weights.ears import read_recogniser

    return read_recogniser(args.ear or None, args.checkpoint)


def write_ear(args: argparse.Namespace, layout: Layout) -> list[str]:
    """The repository of a recogniser."""
    from melforge.common.triton.choice import HEARING, Choice
    from melforge.common.triton.repository import write_recogniser
    from melforge.common.triton.tensors import RUN_BY

    for name in ("acoustic", "vocoder", "voice", "decoder", "lexicon", "stages", "stages_precision"):
        if getattr(args, name):
            raise InputError(f"--{name.replace('_', '-')} is for models that speak: leave it or --ear out")
    backends = [word.strip() for word in args.backend.split(",")]
    for word in backends:
        if word not in RUN_BY:
            raise InputError(unknown("backend", word, RUN_BY))
    if len(set(backends)) < len(backends):
        raise InputError(f"--backend {args.backend}: each one once")
    choice = Choice(
        HEARING,
        ear=args.ear or None,
        checkpoints=tuple(args.checkpoint),
        threads=args.threads,
        deployments=args.deployments,
        overrides=args.overrides,
        warm_up=args.warm_up,
    )
    return write_recogniser(args.folder, choice, layout, backends, args.jasper_client)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    place = args.folder or args.output
    with sent(place) as args.folder:
        models = write(args)
    print(f"{place}: {', '.join(models)}")
    return 0


def device_of(text: str) -> tuple[str, tuple[int, ...]]:
    """Triton's kind of device by --device, and the numbers of its GPUs; no numbers mean all."""
    if text in ("auto", "cpu", "cuda", ALL):
        return text.removesuffix(":all"), ()
    if not re.fullmatch(r"cuda:\d+(,cuda:\d+)*", text):
        raise InputError(f"unknown device {text!r}: use auto, cpu, cuda, {ALL}, or GPUs as in cuda:0,cuda:2")
    return "cuda", tuple(sorted({int(word.removeprefix("cuda:")) for word in text.split(",")}))


def write(args: argparse.Namespace) -> list[str]:
    """The names of the repository's models."""
    from melforge.common.triton.choice import Choice
    from melforge.common.triton.repository import Layout, write_repository

    if args.folder.exists() and not args.folder.is_dir():
        raise InputError(f"{args.folder} is a file: give a folder for the repository")
    device, gpus = device_of(args.device)
    queue = args.queue_delay, args.queue_size, args.queue_seconds
    layout = Layout(device, args.instances, args.batch_size, *queue, gpus)
    if args.ear is not None:
        return write_ear(args, layout)
    if args.jasper_client:
        raise InputError("--jasper-client is for models that hear: give --ear too")
    if args.lexicon:
        read_lexicon(Path(args.lexicon))  # what is wrong with it shows here, not in Triton
    names = ("acoustic", "vocoder", "voice", "backend", "threads", "decoder", "lexicon")
    names += ("deployments", "overrides")
    given = {name: getattr(args, name) for name in names}
    choice = Choice(checkpoints=tuple(args.checkpoint), warm_up=args.warm_up, **given)
    if args.stages_precision and not args.stages:
        raise InputError("--stages-precision is for --stages onnx or --stages trt")
    if args.stages:
        from melforge.common.triton.stage_models import require_stages

        require_stages(layout, args.stages)
    models = write_repository(args.folder, choice, layout)
    if args.stages:
        from melforge.common.triton.stage_models import write_stages

        models += write_stages(args.folder, choice, layout, args.stages, args.stages_precision or "fp32")
    return models
