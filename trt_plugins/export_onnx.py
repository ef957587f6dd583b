"""python -m melforge.trt_plugins.export_onnx: FastSpeech's ONNX graph with nodes for the plugins.

For full TensorRT, whose parser maps unknown operators to plugins of the same name. ONNX Runtime and TensorRT
for RTX run the graphs of scripts/export.py instead.
"""

if __name__ == "__main__":  # before PyTorch, so that it may be missing
    from melforge.common.cli import run_command

    run_command("melforge.trt_plugins.export_onnx")

import argparse
import dataclasses
from pathlib import Path

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

DOMAIN = "melforge"
# TensorRT's parser finds the plugin by these.
ATTRIBUTES = {"plugin_namespace": DOMAIN, "plugin_version": "1"}


def repeat(x: Tensor, counts: Tensor, frames: Tensor) -> Tensor:
    return node("Repeat", x, counts, frames, shape=(x.size(0), frames.size(0), x.size(2)))


def add_pos_enc(x: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
    return node("AddPosEnc", x, lengths, table, shape=x.shape)


def node(name: str, *inputs: Tensor, shape: tuple) -> Tensor:
    """One ONNX node with an output of the first input's type. For export only: it computes nothing."""
    return torch.onnx.ops.symbolic(
        f"{DOMAIN}::{name}", inputs, ATTRIBUTES, dtype=inputs[0].dtype, shape=shape, version=1
    )


NODES = Operations(repeat, add_pos_enc)


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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0].partition(": ")[2])
    file = {"required": True, "type": Path, "metavar": "FILE"}
    parser.add_argument("--checkpoint", **file, help="published or trained weights of FastSpeech")
    parser.add_argument("-o", "--out", **file, help="the graph's file")
    args = parser.parse_args()
    model = export(read_checkpoint(args.checkpoint, "fastspeech"))
    write_bytes(args.out, model.SerializeToString(deterministic=True))
    nodes = [each.op_type for each in model.graph.node if each.domain == DOMAIN]
    print(f"{args.out}: {len(model.graph.node)} nodes, of the plugins {', '.join(nodes)}")
    return 0
