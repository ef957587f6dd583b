"""Stages without a loop as models of Triton's own backends, ONNX Runtime and TensorRT, without Python.

An ONNX file has its weights inside. A plan must be built on the server's kind of GPU and by its TensorRT: a
script in the repository does that, from the same files.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from melforge.common.errors import InputError, require_torch
from melforge.common.files import draft_in, write_bytes
from melforge.common.stages import Dim, Stage, TensorSpec
from melforge.common.stages.choose import choose_stages
from melforge.common.triton.choice import Choice
from melforge.common.triton.config import TYPES, Constant
from melforge.common.triton.repository import VERSION, Layout, batching, instances, write_config

if TYPE_CHECKING:
    from melforge.common.weights.voices import ModelSource

BACKENDS = {"onnx": "onnxruntime", "trt": "tensorrt"}  # our words and Triton's
PLAN = "model.plan"
SCRIPT = "build_plans.sh"
SCRIPT_HEAD = """#!/bin/sh
# Written by `melforge triton`: has trtexec build the plans of the models on Triton's TensorRT backend.
# Run it in the container that the server runs in, on the same kind of GPU; $TRTEXEC says where trtexec is.
set -eu
cd "$(dirname "$0")"
"""
TRTEXEC = '"${TRTEXEC:-/usr/src/tensorrt/bin/trtexec}"'


def require_stages(layout: Layout, backend: str) -> None:
    """Raises an InputError if stages cannot be written."""
    require_torch("--stages")
    if backend == "trt" and layout.device == "cpu":
        raise InputError("--stages trt: TensorRT's plans run on a GPU; for a CPU there is --stages onnx")


def write_stages(
    folder: Path, choice: Choice, layout: Layout, backend: str, precision: str = "fp32"
) -> list[str]:
    """Writes a Triton model for each stage without a loop, and returns their names.

    In "fp16" weights and computation are in half precision; inputs and outputs stay float32.
    """
    from melforge.common.export.self_contained import write_files

    names, commands = [], []
    for kind, source in choice.sources().items():
        stages = stages_without_loop(choice, kind, source)
        with draft_in(folder) as draft:
            write_files(source, stages, draft, precision)
            for stage in stages:
                name = stage.full_name.replace(".", "_")
                version = folder / name / VERSION
                version.mkdir(parents=True, exist_ok=True)
                # Triton loads what is in the version's folder; a plan's graph stands outside it.
                home = version if backend == "onnx" else folder / name
                for file in draft.glob(f"{stage.full_name}.onnx*"):  # very large weights stand beside it
                    file.replace(home / file.name)
                size = batch_size(stage, choice, kind, layout, backend)
                config = stage_config(name, stage, size, layout, backend)
                write_config(folder / name, config, {})
                if backend == "trt":
                    graph = home.relative_to(folder) / f"{stage.full_name}.onnx"
                    plan = version.relative_to(folder) / PLAN
                    commands.append(trtexec(stage, graph, plan, size, precision))
                names.append(name)
    if commands:
        write_bytes(folder / SCRIPT, (SCRIPT_HEAD + "".join(commands)).encode())
        (folder / SCRIPT).chmod(0o755)
    return names


def stages_without_loop(choice: Choice, kind: str, source: ModelSource) -> list[Stage]:
    """The stages that produce their whole output in one call."""
    stages = choose_stages(source, choice.decoder if kind == "acoustic" else None)
    return [stage for stage in stages if not (stage.feeds_back or stage.small_steps)]


def batch_size(stage: Stage, choice: Choice, kind: str, layout: Layout, backend: str) -> int:
    """The largest batch. The default for plans, whose memory grows with it, is that of our own engines."""
    from melforge.common.engines.tensorrt.engine_file import BATCH_SIZES

    usual = stage.batch.max if backend == "onnx" else BATCH_SIZES[kind]
    given = layout.batch_size or choice.deployment(stage.model).batch_size
    return min(given or usual, stage.batch.max)


def stage_config(name: str, stage: Stage, size: int, layout: Layout, backend: str) -> dict[str, Any]:
    """A model's config. Triton makes no batches if a tensor has no batch dimension."""
    tensors = (*stage.inputs, *stage.outputs)
    batched = all(tensor.dims[0] == stage.batch for tensor in tensors)
    config: dict[str, Any] = {"name": name, "backend": BACKENDS[backend]}
    config["default_model_filename"] = f"{stage.full_name}.onnx" if backend == "onnx" else PLAN
    config["max_batch_size"] = size if batched else 0
    config["input"] = [stage_tensor(tensor, batched) for tensor in stage.inputs]
    config["output"] = [stage_tensor(tensor, batched) for tensor in stage.outputs]
    if batched:
        config["dynamic_batching"] = batching(layout)
    config["instance_group"] = instances(layout if backend == "onnx" else replace(layout, device="cuda"))
    return config


def stage_tensor(tensor: TensorSpec, batched: bool) -> dict[str, Any]:
    """A tensor's entry. One number for each item is [1] for Triton, and no dimension for the stage."""
    dims = [dim if isinstance(dim, int) else -1 for dim in tensor.dims[batched:]]
    entry = {"name": tensor.name, "data_type": Constant(TYPES[tensor.dtype]), "dims": dims or [1]}
    return entry if dims else {**entry, "reshape": {"shape": []}}


def trtexec(stage: Stage, graph: Path, plan: Path, size: int, precision: str) -> str:
    """The shell command that builds a stage's plan."""
    words = [f"--onnx={graph.as_posix()}", f"--saveEngine={plan.as_posix()}", *shapes(stage, size)]
    words += ["--stronglyTyped"] if precision == "fp16" else []
    return " \\\n    ".join([TRTEXEC, *map(shlex.quote, words), "--skipInference"]) + "\n"


def shapes(stage: Stage, size: int) -> Iterator[str]:
    """trtexec's options for the lengths that a stage must serve."""
    from melforge.common.engines.tensorrt.engine_file import profile_of, with_batches

    profile = profile_of(with_batches(stage, size))
    dynamic: Sequence[str] = [t.name for t in stage.inputs if any(isinstance(dim, Dim) for dim in t.dims)]
    for number, option in enumerate(("minShapes", "optShapes", "maxShapes")):
        sized = (f"{name}:{'x'.join(map(str, profile[name][number]))}" for name in dynamic)
        yield f"--{option}={','.join(sized)}"
