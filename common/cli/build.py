"""The build command, shared by `melforge build` and every model's build_trt module."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from melforge.common.cli import options, run
from melforge.common.config.deployment import PRECISIONS, Bucket, Deployment
from melforge.common.errors import InputError, require_torch
from melforge.common.files import cache_folder
from melforge.common.registry import KIND_WORDS, get_model
from melforge.common.stages import plan_of
from melforge.common.stages.choose import KERNELS, KINDS

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource

SHOWN = 8  # of the runs that compile kernels
BATCH_SIZES = (2, 4, 8, 16, 32)  # for which kernels are compiled, beside single texts
COMPILED = ("GPU", "model", "kernels")
HEADINGS = ("engine", "precision", "MB", "layers", "seconds", "warnings", "file")


PAIR_OPTIONS = f"""
  acoustic vocoder
  --backend trt|{KERNELS}=trt   what is built for
"""
OPTIONS = """
  voice ear checkpoint precision
  --all        every model of the voice (or the one given), every form of its stages, both precisions
  no-check
  --force      build what is there already again
  --tensorrt FLAVOUR   tensorrt or tensorrt_rtx (default: $MELFORGE_TENSORRT, or what is installed)
  --json       print the reports as JSON
"""
FOR = """
  --for NAMES   with --backend cuda: compiles for GPUs that need not be here, by architecture and
        multiprocessors, such as sm_86,sm_89:58 (without the number: for all usual ones)
"""


def main(argv: Sequence[str] | None = None, model: str | None = None) -> int:
    """Builds the engines of a voice or of published weights; `model` limits it to one model."""
    what = model or "a voice's models"
    parser = options.Parser(
        description=f"Builds TensorRT engines of {what}; ONNX graphs that are missing are exported first."
        + ("" if model else " With --backend cuda: compiles their CUDA kernels for the GPU at hand."),
        kinds=tuple(KIND_WORDS),
        choose=lambda args: [one.model for one in read_sources(args, model)],
        files_of=model,
    )
    options.add_table(parser, OPTIONS if model else PAIR_OPTIONS + OPTIONS + FOR)
    options.add_decoder_argument(parser, "what runs on TensorRT")
    args = parser.parse_args(argv)
    if not model and args.backend == KERNELS:
        return build_kernels(args)
    if not model and getattr(args, "for"):
        raise InputError("--for is for kernels: give --backend cuda too")

    from melforge.common.engines.tensorrt.api import load_tensorrt
    from melforge.common.synthesis.loading import override

    trt = load_tensorrt(args.tensorrt)
    rows = []
    chosen = [override(one, args.overrides.get(one.model, {})) for one in read_sources(args, model)]
    stages_of = [possible_stages(source, args) for source in chosen]  # before the long part
    for source, stages in zip(chosen, stages_of, strict=True):
        source = with_its_graphs(source, stages, args)
        for deployment in deployments(args, source.model):
            for file, made in build_model(source, stages, deployment, trt, args.force):
                rows.append(report(file, made))
                if not args.json:
                    print(f"{file.path}{'' if made else ' (there already)'}", flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        run.print_table(HEADINGS, [row_of(row) for row in rows])
    return 0


def build_kernels(args: argparse.Namespace) -> int:
    """Compiles what speaking on `--backend cuda` runs, by running it: all lengths, alone and in batches."""
    from melforge.common.runner import TextToSpeech
    from melforge.common.synthesis.warm_up import HEADINGS as RUNS

    if args.all or args.precision or args.decoder:
        raise InputError("--backend cuda compiles for one pair: leave out --all, --precision and --decoder")
    if getattr(args, "for"):
        return build_kernels_for(args, getattr(args, "for").split(","))
    how = {name: getattr(args, name) for name in ("acoustic", "vocoder", "voice", "deployments", "overrides")}
    tts = TextToSpeech.load(checkpoints=args.checkpoint, backend=KERNELS, device="cuda", **how)
    made = list(options.with_progress(tts.warm_up(*BATCH_SIZES)))
    if args.json:
        print(json.dumps([dict(zip(RUNS, one.row, strict=True)) for one in made], indent=1))
    else:
        seconds = sum(one.first + one.again for one in made)
        print(
            f"{cache_folder()}: what {len(made)} runs compile, in {seconds:.0f} s; their slowest first runs:"
        )
        run.print_table(RUNS, [one.row for one in sorted(made, key=lambda one: -one.first)[:SHOWN]])
    return 0


def build_kernels_for(args: argparse.Namespace, names: Sequence[str]) -> int:
    """Compiles the kernels for single texts of a pair, of all usual lengths, for GPUs that are not here."""
    from melforge.common.synthesis.loading import choose_sources
    from melforge.common.synthesis.warm_up import padded_mels, padded_texts

    require_torch("compiling kernels")
    limits = importlib.import_module("melforge.common.engines.limits")  # which needs PyTorch
    targets = {name: limits.limits_like(name) for name in names}
    if not limits.can_launch():
        raise InputError("--for needs Triton: pip install triton")
    wanted = {kind: getattr(args, kind) for kind in KINDS}
    pair = list(choose_sources(wanted, args.voice, args.checkpoint, args.overrides).values())
    rows = []
    for name, found in targets.items():
        for source in pair:
            mels = [Bucket(0, mel) for mel in padded_mels()]
            runs = [(bucket, 1) for bucket in (padded_texts() if source is pair[0] else mels)]
            ahead = importlib.import_module(plan_of(source.model).ahead)
            made = set().union(*(ahead.compile_ahead(source, runs, one) for one in found))
            rows.append((name, source.model, str(len(made))))
    if args.json:
        print(json.dumps([dict(zip(COMPILED, row, strict=True)) for row in rows], indent=1))
    else:
        print(os.environ["TRITON_CACHE_DIR"])
        run.print_table(COMPILED, rows)
    return 0


def asked_models(args: argparse.Namespace, model: str | None) -> list[str]:
    """The names of the models that are asked for by name."""
    asked = {kind: getattr(args, kind, None) for kind in KINDS}
    return [model] if model else [get_model(name, kind).name for kind, name in asked.items() if name]


def read_sources(args: argparse.Namespace, model: str | None) -> list[ModelSource]:
    return options.read_sources(args, asked_models(args, model), args.all)


def deployments(args: argparse.Namespace, model: str) -> list[Deployment]:
    """How a model's engines are to be: what the files say, in the precision asked for."""
    stated = args.deployments.get(model, Deployment())
    if args.all and not args.precision:
        return [replace(stated, precision=precision) for precision in PRECISIONS]
    return [stated]


def possible_stages(source: Any, args: argparse.Namespace) -> Any:
    """The stages that a model's engines are of; an InputError for what no engine can be."""
    from melforge.common.engines.tensorrt.engine_file import needed_stages, require_possible

    hows = deployments(args, source.model)
    stages = needed_stages(source, hows[0], args.decoder, args.all)  # whatever the precision
    for deployment in hows:
        require_possible(stages, source, deployment)
    return stages


def with_its_graphs(source: Any, stages: Any, args: argparse.Namespace) -> Any:
    """A model with the graphs of these stages, which are exported if need be."""
    if all(stage.name in source.graphs for stage in stages):
        return source
    require_torch(f"exporting {source.weights} to ONNX")
    from melforge.common.export.to_onnx import with_graphs

    return with_graphs(source, stages, "none" if args.no_check else "few")


def build_model(source: Any, stages: Any, deployment: Deployment, trt: Any, force: bool):
    """Builds a model's engines one after the other; each with whether it was made now."""
    from melforge.common.engines.tensorrt.build import build_stage
    from melforge.common.engines.tensorrt.engine_file import engine_files

    force = force or deployment.trt_force_build
    for file in engine_files(stages, source, deployment, trt):
        yield file, build_stage(file, source, trt, force, deployment.trt_max_ws_size)


def report(file: Any, made: bool) -> dict[str, Any]:
    note = json.loads(file.note.read_text())
    stated = {"engine": note["stage"], "precision": note["precision"], "bytes": note["bytes"]}
    return {**stated, **note["report"], "built": made, "file": str(file.path)}


def row_of(row: dict[str, Any]) -> tuple[str, ...]:
    size, layers, seconds = f"{row['bytes'] / 1e6:.1f}", str(row["layers"]), f"{row['seconds']:.1f}"
    warnings, file = str(len(row["warnings"])), row["file"].rpartition("/")[2]
    return row["engine"], row["precision"], size, layers, seconds, warnings, file
