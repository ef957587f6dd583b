"""Self-contained ONNX files of a model, for other programs: weights inside, axes named, README and check."""

import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from melforge.common.engines.tensorrt.build import stage_model
from melforge.common.engines.tensorrt.engine_file import profile_of
from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.errors import InputError
from melforge.common.export import check_files
from melforge.common.export.examples import examples_of
from melforge.common.export.to_onnx import OPSET, ExportedGraphs, Sizes, example_inputs, sizes_at, with_graphs
from melforge.common.files import draft_in
from melforge.common.registry import get_model
from melforge.common.stages import Dim, Stage, TensorSpec
from melforge.common.weights.voices import ModelSource

OPSETS = range(18, 23)  # in 23 PyTorch writes attention as ONNX Runtime does not take it
LARGEST_FILE = (1 << 31) - (1 << 20)  # bytes of a protobuf message, less some for its nodes
TOLERANCES = {"fp32": 1e-4, "fp16": 2e-2}  # of the largest expected value, where that is above 1
EXAMPLE_LENGTH = 24  # of every axis but the batch, and of what belongs to another axis
README = "README.md"


def write_files(
    source: ModelSource,
    stages: Sequence[Stage],
    folder: Path,
    precision: str = "fp32",
    opset: int = OPSET,
    sizes: Sizes = "few",
) -> list[Path]:
    """Writes each stage as `<model>.<stage>.onnx`, with a README and a check; the files, the README last.

    Every file has run in ONNX Runtime and given PyTorch's outputs before it is there. In "fp16" weights and
    computation are in half precision, inputs and outputs in float32 as in "fp32". A graph that must be
    exported first is checked at these sizes too. An InputError where the operator set
    is none of OPSETS, a ValueError where a check fails; then nothing is written.
    """
    if opset not in OPSETS:
        raise InputError(f"opset {opset}: graphs can be had in opset {OPSETS[0]} to {OPSETS[-1]}")
    with draft_in(folder) as draft:
        files = draft / "files"
        (files / check_files.EXAMPLES).mkdir(parents=True)
        if opset == OPSET:
            source = with_graphs(source, stages, sizes)
        else:
            made = ExportedGraphs({stage.name: stage for stage in stages}, source.config, draft, opset)
            source = replace(source, graphs={stage.name: made[stage.name] for stage in stages})
        sections = []
        for stage in stages:
            model = stage_model(stage, source, precision)
            name_axes(model, stage)
            save(model, files / f"{stage.full_name}.onnx")
            save_example(stage, source, precision, files / check_files.EXAMPLES / f"{stage.full_name}.npz")
            sections.append(describe(stage))
        shutil.copyfile(check_files.__file__, files / "check.py")
        (files / README).write_text(readme(source, precision, opset, sections))
        for row in check_files.check(files):
            if not row.ok:
                raise ValueError(f"{row.file} differs from PyTorch by {row.error:.1e} ({row.tolerance:.1e})")
        written = [file for file in sorted(files.rglob("*")) if file.is_file()]
        for file in written:
            target = folder / file.relative_to(files)
            target.parent.mkdir(exist_ok=True)
            file.replace(target)
    return [folder / file.relative_to(files) for file in written]


def name_axes(model: onnx.ModelProto, stage: Stage) -> None:
    """Gives the dynamic axes of inputs and outputs their names in the stage's declaration."""
    values = zip((*stage.inputs, *stage.outputs), (*model.graph.input, *model.graph.output), strict=True)
    for tensor, value in values:
        for dim, axis in zip(tensor.dims, value.type.tensor_type.shape.dim, strict=True):
            if isinstance(dim, Dim):
                axis.dim_param = dim.name


def save(model: onnx.ModelProto, path: Path) -> None:
    """Writes a graph with its weights inside, or beside it where a file could not hold them."""
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size < LARGEST_FILE:
        onnx.save_model(model, path)
    else:
        where = f"{path.name}.data"
        onnx.save_model(model, path, save_as_external_data=True, location=where, size_threshold=1024)
    onnx.checker.check_model(path)


def save_example(stage: Stage, source: ModelSource, precision: str, path: Path) -> None:
    """Inputs of a batch of two, and what PyTorch makes of them in float32."""
    sizes = sizes_at(stage, lambda dim: EXAMPLE_LENGTH) | {stage.batch.name: 2}
    inputs = example_inputs(stage, source.config, sizes, seed=0)
    inputs = examples_of(source.model).settle_inputs(stage, source, inputs)
    outputs = TorchEngine(stage, source)(**inputs)
    arrays: dict[str, Any] = {f"in.{name}": value for name, value in inputs.items()}
    arrays |= {f"out.{name}": np.asarray(value) for name, value in outputs.items()}
    np.savez_compressed(path, tolerance=np.float64(TOLERANCES[precision]), **arrays)


def describe(stage: Stage) -> str:
    """A stage's inputs and outputs as a section of the README."""
    rows = [f"| input | {described(tensor)} |" for tensor in stage.inputs]
    rows += [f"| output | {described(tensor)} |" for tensor in stage.outputs]
    table = ["| | name | type | shape |", "|---|---|---|---|", *rows]
    notes = [f"`{one.name}`: {one.about}." for one in (*stage.inputs, *stage.outputs) if one.about]
    lengths = "; ".join(f"{dim.name} {limits(dim)}" for dim in stage.dynamic_dims.values())
    made_for = f"Made for: {lengths}. With TensorRT:"
    head = [f"## {stage.full_name}.onnx", "", *table, "", *(f"{note}\n" for note in notes), made_for]
    return "\n".join([*head, "", "```", trtexec_command(stage), "```"])


def trtexec_command(stage: Stage) -> str:
    """What builds the file's engine for all sizes that it was made for, tuned for the typical ones."""
    profile = profile_of(stage)
    dynamic = [one.name for one in stage.inputs if any(isinstance(dim, Dim) for dim in one.dims)]
    words = ["trtexec", f"--onnx={stage.full_name}.onnx", "--stronglyTyped"]
    for which, option in enumerate(("--minShapes", "--optShapes", "--maxShapes")):
        shapes = (f"{name}:{'x'.join(map(str, profile[name][which]))}" for name in dynamic)
        words.append(f"{option}={','.join(shapes)}")
    return " ".join(words)


def described(tensor: TensorSpec) -> str:
    shape = ", ".join(str(dim) if isinstance(dim, int) else dim.name for dim in tensor.dims)
    return f"{tensor.name} | {tensor.dtype} | [{shape}]"


def limits(dim: Dim) -> str:
    return f"{dim.times} x {dim.of}" if dim.of else f"{dim.min} to {dim.max}"


def readme(source: ModelSource, precision: str, opset: int, sections: Sequence[str]) -> str:
    kind = get_model(source.model).kind
    what = {
        "acoustic": "an acoustic model: text symbols to mel",
        "vocoder": "a vocoder: mel to audio",
        "recogniser": "a recogniser: audio to features, log-probabilities of characters, the best of them",
    }[kind]
    mel = ", ".join(f"{f.name} {getattr(source.mel, f.name)}" for f in fields(source.mel))
    head = f"""# {source.model}

{what[0].upper()}{what[1:]}. ONNX graphs (operator set {opset}) with their weights, in {precision}.

`python check.py` runs each graph on a recorded example and compares it with what PyTorch made of it; it needs
only `onnxruntime` and `numpy`. What lies behind an item's `lengths` is padding.

Mel spectrograms are natural logarithms: {mel}.
"""
    return "\n\n".join([head.rstrip(), *sections]) + "\n" + _symbols(source)


def _symbols(source: ModelSource) -> str:
    if source.frontend is None:
        return ""
    symbols = source.build_frontend().symbols
    listed = "\n".join(f"{number} {symbol!r}" for number, symbol in enumerate(symbols))
    return f"\n## Symbols\n\nThe ids of `symbols`, by number:\n\n```\n{listed}\n```\n"
