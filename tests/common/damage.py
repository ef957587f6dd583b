"""Damages of weights and graphs, and the comparison of a model's stages on random inputs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from melforge.common.arrays import Array, to_device
from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines import Engine, onnx_engine
from melforge.common.engines.backends import make_engine
from melforge.common.engines.layer_outputs import method_of, with_layers
from melforge.common.engines.rounding import PRECISIONS, Precision
from melforge.common.engines.tensorrt.build import stage_model
from melforge.common.engines.torch_engine import build_network
from melforge.common.export.examples import examples_of
from melforge.common.export.to_onnx import example_inputs
from melforge.common.files import cache_folder
from melforge.common.stages import Stage, plan_of
from melforge.common.verify.compare import Comparison
from melforge.common.verify.stages import ComparedEngine, Setup
from melforge.common.weights.voices import ModelSource

SIZES = {"batch": 1, "text": 11, "mel": 24, "steps": 6, "samples": 24 * 256}


def scaled(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values * np.float32(factor)


def swapped(values: np.ndarray) -> np.ndarray:
    """The two parts of the first axis exchanged."""
    return np.roll(values, len(values) // 2, axis=0)


def transposed(values: np.ndarray) -> np.ndarray:
    square = values.ndim >= 2 and values.shape[0] == values.shape[1]
    return np.ascontiguousarray(values.swapaxes(0, 1)) if square else values


def one_element(values: np.ndarray) -> np.ndarray:
    """The largest value negated."""
    changed = values.copy()
    changed.flat[np.abs(values).argmax()] *= -1
    return changed


DAMAGES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "x 1.02": scaled(1.02),
    "swapped": swapped,
    "zeroed": np.zeros_like,
    "transposed": transposed,
    "one element": one_element,
}


def with_weight(source: ModelSource, name: str, values: np.ndarray) -> ModelSource:
    return replace(source, given_state={**source.state, name: values}, networks=type(source.networks)())


def with_epsilon(
    source: ModelSource, stages: Sequence[Stage], folder: Path, factor: float
) -> Iterator[tuple[str, Stage, ModelSource]]:
    """Each norm of the stages' graphs with another epsilon: its module, its stage and the source."""
    for stage in stages:
        file = source.graphs[stage.name]
        count = len(onnx.load(file, load_external_data=False).graph.node)
        for place in range(count):
            model = onnx.load(file, load_external_data=False)
            node = model.graph.node[place]
            epsilon = next((a for a in node.attribute if a.name == "epsilon"), None)
            if epsilon is None or not node.op_type.endswith("Normalization"):
                continue
            epsilon.f *= factor
            path = folder / f"{stage.full_name}.{place}.onnx"
            path.write_bytes(model.SerializeToString())
            path.with_suffix(".json").write_text(file.with_suffix(".json").read_text())
            graphs = {**source.graphs, stage.name: path}
            changed = replace(source, graphs=graphs, networks=type(source.networks)())
            yield node.input[1].rpartition(".")[0], stage, changed


class HalfSetup(Setup):
    """ONNX Runtime on the graphs that TensorRT is given in half precision."""

    @property
    def precision(self) -> str:
        return "fp16"

    def rounds(self, stage: Stage) -> Precision:
        if stage.exact:
            return PRECISIONS["trt", "exact"]
        return PRECISIONS["trt", "fp32" if "*" in stage.float32_layers else "fp16"]

    def _make(self, stage: Stage, source: ModelSource, how: Deployment, bucket: Bucket | None) -> Engine:
        content = stage_model(stage, source, "fp16").SerializeToString()
        path = cache_folder() / f"{stage.full_name}.half.onnx"
        path.write_bytes(content)
        path.with_suffix(".json").write_text(json.dumps({"weights": []}))
        whole = replace(source, graphs={stage.name: path}, networks=type(source.networks)())
        with pytest.MonkeyPatch.context() as patch:  # optimisations remove most of the rounding
            patch.setattr(onnx_engine, "session_options", unoptimised)
            return make_engine(stage, whole, "onnx", "cpu", 1)


def unoptimised(threads: int | None) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads or 1, 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def setup_of(
    source: ModelSource, kind: type[Setup] = Setup, backend: str = "onnx", half: bool = False
) -> Setup:
    device = "cuda" if backend == "trt" else "cpu"
    how = Deployment(batch_size=1, precision="fp16" if half else "fp32", mask_padding=True)
    return kind(source, backend, device, how, plan_of(source.model).layers, threads=1)


def compare_stages(
    source: ModelSource,
    setup: Setup,
    stages: Sequence[Stage],
    seed: int = 0,
    calls: int = 2,
    kind: type[ComparedEngine] = ComparedEngine,
) -> list[Comparison]:
    """All stages on random inputs, `source` in PyTorch and `setup` beside it."""
    for stage in stages:
        engine = kind(stage, source, setup, None)
        for call in range(calls):
            engine(**inputs_of(source, stage, 100 * seed + call, setup.device))
    return list(setup.comparisons.values())


def inputs_of(source: ModelSource, stage: Stage, seed: int, device: str = "cpu") -> dict[str, Array]:
    text = (
        SIZES["text"] if device == "cpu" else -(-SIZES["text"] // stage.rtx_text_step) * stage.rtx_text_step
    )
    inputs = example_inputs(stage, source.config, {**SIZES, "text": text}, seed)
    inputs = examples_of(stage.model).settle_inputs(stage, source, inputs)
    return {name: to_device(value, device) for name, value in inputs.items()}


def first_wrong(comparisons: Sequence[Comparison]) -> Comparison | None:
    return next((one for one in comparisons if not one.ok), None)


def layered(source: ModelSource, stage: Stage) -> Stage:
    """The stage with the layers that are compared."""
    tensors = {name: torch.from_numpy(value) for name, value in inputs_of(source, stage, 0).items()}
    return with_layers(stage, build_network(stage, source), plan_of(source.model).layers, tensors)


def layer_of(layers: Sequence[str], weight: str) -> str:
    """The innermost of these layers that holds a weight, or ""."""
    found = (name for name in layers if weight.startswith(name.partition(":")[0] + "."))
    return max(found, key=len, default="")


def jittered(source: ModelSource, seed: int) -> ModelSource:
    """The weights with noise of a tenth of themselves, and where they are zero, as biases, of a tenth."""
    rng = np.random.default_rng(seed)
    state = {}
    for name, values in source.state.items():
        noise = 0.1 * rng.standard_normal(values.shape).clip(-3, 3)
        state[name] = np.where(values == 0, noise, values * (1 + noise)).astype(values.dtype)
    return replace(source, given_state=state, networks=type(source.networks)())


def change(source: ModelSource, damaged: ModelSource, stage: Stage, layer: str) -> float:
    """By how much a damage changes a layer's output, relative: its root mean square or its largest value.

    `stage` has the layers that are compared. Without a `layer`, it is the first that changes.
    """
    tensors = {name: torch.from_numpy(value) for name, value in inputs_of(source, stage, 0).items()}
    count = len(stage.layers)
    with torch.inference_mode():
        made = method_of(build_network(stage, source), stage)(**tensors)[-count:]
        given = dict(zip(stage.layers, made, strict=True))
        wrong = method_of(build_network(stage, damaged), stage, given)(**tensors)[-count:]
    changes = [0.0]
    for name, right, other in zip(stage.layers, made, wrong, strict=True):
        if layer in ("", name):
            error = other - right
            changes.append(
                max(float(error.norm() / right.norm()), float(error.abs().max() / right.abs().max()))
            )
    return max(changes)
