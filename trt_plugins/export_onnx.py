"""python -m melforge.trt_plugins.export_onnx: FastSpeech's ONNX graph with nodes for the plugins.

For full TensorRT, whose parser maps unknown operators to plugins of the same name. ONNX Runtime and TensorRT
for RTX run the graphs of scripts/export.py instead.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.trt_plugins.export_onnx")

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from melforge.common.errors import InputError
from melforge.common.export.to_onnx import export_stage, source_stages
from melforge.common.files import write_bytes
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource
from melforge.fastspeech.config import FastSpeechConfig
from melforge.fastspeech.model import FastSpeech
from melforge.fastspeech.operations import Operations
from melforge.trt_plugins.operations import ADD_POS_ENC, REPEAT, KernelOperation

DOMAIN = "melforge"
# TensorRT's parser finds the plugin by these.
ATTRIBUTES: dict[str, Any] = {"plugin_namespace": DOMAIN, "plugin_version": "1"}


def as_node(operation: KernelOperation) -> Callable[..., Tensor]:
    """The operation as one ONNX node. For export only: it computes nothing."""

    def node(*inputs: Tensor) -> Tensor:
        shape = operation.output_shape([tensor.shape for tensor in inputs])
        name, dtype = f"{DOMAIN}::{operation.name}", inputs[0].dtype
        return torch.onnx.ops.symbolic(name, inputs, ATTRIBUTES, dtype=dtype, shape=shape, version=1)

    return node


NODES = Operations(as_node(REPEAT), as_node(ADD_POS_ENC))


def fastspeech(config: FastSpeechConfig) -> FastSpeech:
    return FastSpeech(config, NODES)


def export(source: ModelSource, stage_name: str = "synthesis") -> onnx.ModelProto:
    """The graph of one of FastSpeech's stages with the plugins' nodes, weights included."""
    if source.model != "fastspeech":
        raise InputError(f"the plugins are FastSpeech's; {source.weights} holds {source.model}")
    stage = next(stage for stage in source_stages(source) if stage.name == stage_name)
    named = dataclasses.replace(stage, network="melforge.trt_plugins.export_onnx:fastspeech")
    graph, _ = export_stage(named, source.config)
    model = onnx.load_model_from_string(graph)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(source.state[tensor.name], tensor.name))
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0].partition(": ")[2])
    file = {"required": True, "type": Path, "metavar": "FILE"}
    parser.add_argument("--checkpoint", **file, help="published or trained weights of FastSpeech")
    parser.add_argument("-o", "--output", "--out", dest="out", **file, help="the graph's file")
    args = parser.parse_args()
    model = export(read_checkpoint(args.checkpoint, "fastspeech"))
    write_bytes(args.out, model.SerializeToString(deterministic=True))
    nodes = [each.op_type for each in model.graph.node if each.domain == DOMAIN]
    print(f"{args.out}: {len(model.graph.node)} nodes, of the plugins {', '.join(nodes)}")
    return 0
