"""The verify command of recognisers, shared by their verify_trt modules."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from melforge.common.cli import options, run
from melforge.common.cli.verify import TEXT
from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError, require_torch
from melforge.common.files import require_writable_file, write_bytes

EPILOG = "The exit status is 1 if anything is out of tolerance; the first layer that went wrong is named."


def main(argv: Sequence[str] | None = None, *, model: str) -> int:
    """Compares a recogniser on ONNX Runtime or TensorRT with PyTorch."""
    parser = make_parser(model)
    args = parser.parse_args(argv)

    if args.json not in (None, "-"):
        require_writable_file(Path(args.json))
    require_torch("comparing with PyTorch")
    from melforge.common.verify import report
    from melforge.common.verify.recognition import verify_recogniser

    source, setup = prepare(args, model)
    found = verify_recogniser(source, setup, recordings(args, source.config.sampling_rate))
    if not found.texts:
        raise InputError("nothing could be compared: nothing can be heard in the recordings")
    if args.json != "-":
        print(f"{model}: PyTorch and {setup.backend} in {setup.precision}, on {setup.device}")
        run.print_table(report.HEADINGS, map(report.row_of, found.comparisons))
        print("\n".join(found.conclusion()))
    if args.json:
        text = json.dumps(found.report(), indent=1) + "\n"
        sys.stdout.write(text) if args.json == "-" else write_bytes(Path(args.json), text.encode())
    return 0 if found.ok else 1


def make_parser(model: str) -> options.Parser:
    parser = options.Parser(
        description=f"Compares {model} on another backend with PyTorch: the layers, the stages, and what is "
        "heard in recordings.",
        epilog=EPILOG,
        kinds=("recogniser",),
        choose=lambda args: [model],
        files_of=model,
    )
    what = f"sound files at any rate (default: the shipped voice says {TEXT!r})"
    parser.add_argument("inputs", nargs="*", default=[], type=Path, metavar="FILE", help=what)
    options.add_options(parser, "ear", "checkpoint", "backend", default=None)
    options.add_options(parser, "precision", "device", "threads")
    again: dict[str, Any] = {"action": "append", "default": []}
    text = "which layers, such as 'encoder.layers.0.*' (default: the model's list); may be repeated"
    parser.add_argument("--layers", metavar="PATTERN", help=text, **again)
    text = "negate the largest value of this weight on the other side: shows that it is found"
    parser.add_argument("--perturb", metavar="WEIGHT", help=text)
    parser.add_argument("--json", metavar="FILE", help="write a report; - for stdout, without the table")
    return parser


def recordings(args: argparse.Namespace, rate: int) -> list[np.ndarray]:
    """The sound files, or a sentence spoken by the shipped voice, at the recogniser's rate."""
    from melforge.common.audio.sound_files import read_audio, resample
    from melforge.common.runner import TextToSpeech

    if args.inputs:
        return [resample(*read_audio(path), rate) for path in args.inputs]
    spoken = TextToSpeech.load(device="cpu").speak(TEXT)
    return [resample(spoken.samples, spoken.sampling_rate, rate)]


def prepare(args: argparse.Namespace, model: str) -> tuple[Any, Any]:
    """The recogniser's source, and the setup of what is compared with it."""
    from melforge.common.engines.tensorrt.engine_file import needed_stages
    from melforge.common.export.to_onnx import with_graphs
    from melforge.common.recognition.loading import form_of
    from melforge.common.stages import plan_of
    from melforge.common.synthesis.loading import override, pick_device
    from melforge.common.verify.stages import Setup, perturb_one
    from melforge.common.weights.ears import stored_source
    from melforge.common.weights.published import read_checkpoints

    published = read_checkpoints(args.checkpoint, [model])
    source = published[0] if published else stored_source(model, None, args.ear)
    source = override(source, args.overrides.get(model, {}))
    backend = args.backend or "trt"
    if backend not in ("onnx", "trt"):
        raise InputError(f"--backend {backend}: PyTorch is what others are compared with; give onnx or trt")
    device = pick_device(backend) if args.device == "auto" else args.device
    if backend == "trt":
        from melforge.common.engines.tensorrt.api import load_tensorrt
        from melforge.common.engines.tensorrt.engine import require_gpu

        load_tensorrt()
        require_gpu(device)
    deployment = args.deployments.get(model, Deployment())
    if args.precision and backend == "trt":
        deployment = replace(deployment, precision=args.precision)
    stages = needed_stages(source, deployment, form_of(source), backend=backend)
    patterns = tuple(args.layers) or plan_of(model).layers
    how = {"asked": bool(args.layers), "threads": args.threads}
    setup = Setup(with_graphs(source, stages), backend, device, deployment, patterns, **how)
    if args.perturb:
        perturb_one({"recogniser": setup}, args.perturb)
    return source, setup
