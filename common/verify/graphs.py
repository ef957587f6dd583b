"""The graphs in use with inner tensors as further outputs: a layer's, and those of a loop's step."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper

from melforge.common.errors import InputError
from melforge.common.export.to_onnx import EXPORTER_VERSION, export_stage
from melforge.common.files import cache_folder, config_hash, write_bytes
from melforge.common.stages import Stage
from melforge.common.weights.graph_notes import read_graph_note
from melforge.common.weights.voices import ModelSource

# Part of the cache's key: raise it when a graph would come out differently.
VERSION = 1


def layered_graph(stage: Stage, source: ModelSource, loop: Stage | None = None) -> tuple[Stage, Path]:
    """The stage's graph with the outputs of its layers, and the stage with those that were found in it.

    The inner tensors are found by what they are computed from, as in a graph of the same network that is
    exported with the layers as outputs. With `loop`, the graph is the body of that stage's loop.
    """
    named = loop or stage
    file = source.graphs[named.name]
    read = file.read_bytes()
    words = [VERSION, EXPORTER_VERSION, stage.full_name, named.full_name, config_hash(source.config)]
    words += stage.layers
    key = hashlib.sha256(json.dumps(words).encode() + read).hexdigest()[:16]
    path = cache_folder() / "verify" / f"{stage.full_name}.{key}.onnx"
    if not (path.is_file() and path.with_suffix(".json").is_file()):
        model = onnx.load_from_string(read)
        model = step_graph(model, stage, loop) if loop else model
        found: dict[str, str] = {}
        if stage.layers:
            exported = onnx.load_from_string(export_stage(stage, source.config)[0])
            found = find_layers(exported, model, stage, set(source.state))
        add_outputs(model, found)
        note = {"weights": read_graph_note(file)["weights"], "layers": list(found)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path.with_suffix(".json"), json.dumps(note).encode())
        write_bytes(path, model.SerializeToString())
    layers = tuple(read_graph_note(path)["layers"])
    outputs = tuple(t for t in stage.outputs if t.name in layers or t.name not in stage.layers)
    return replace(stage, layers=layers, outputs=outputs), path


def find_layers(
    exported: onnx.ModelProto, model: onnx.ModelProto, stage: Stage, weights: set[str]
) -> dict[str, str]:
    """The names in `model` of the tensors that are outputs of layers in `exported`."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, origin in origins(model.graph, weights).items():
        places[origin].append(name)
    found, seen = {}, defaultdict(list)
    for name, origin in origins(exported.graph, weights).items():
        seen[origin].append(name)
    names = {name: origin for origin, same in seen.items() for name in same}
    for layer in stage.layers:
        same, here = seen[names[layer]], places[names[layer]]
        if here:  # tensors of equal origin are in the same order in both graphs
            found[layer] = here[min(same.index(layer), len(here) - 1)]
    return found


def origins(graph: onnx.GraphProto, weights: set[str]) -> dict[str, str]:
    """What each tensor is computed from: operators, weights by name, integers by value; no real numbers.

    Of a tensor and its copies, the first is named.
    """
    known = {value.name: f"input {value.name}" for value in graph.input}
    for tensor in graph.initializer:
        named = tensor.name in weights or tensor.data_location == TensorProto.EXTERNAL
        known[tensor.name] = tensor.name if named else constant_origin(tensor)
    made: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Identity":
            known[node.output[0]] = made[node.output[0]] = known[node.input[0]]
            continue
        words = [node.op_type, *(known.get(name, "") for name in node.input)]
        if node.op_type == "Constant":
            words += [constant_origin(a.t) for a in node.attribute if a.name == "value"]
        for place, name in enumerate(node.output):
            text = json.dumps([*words, place])
            known[name] = made[name] = hashlib.sha256(text.encode()).hexdigest()
    return made


def constant_origin(tensor: onnx.TensorProto) -> str:
    values = numpy_helper.to_array(tensor)
    return f"{values.dtype} {values.shape} {values.tolist() if values.dtype.kind != 'f' else ''}"


def add_outputs(model: onnx.ModelProto, names: dict[str, str]) -> None:
    """Gives the graph further outputs: {name of the output: inner tensor}."""
    inside = {name: f"{name}.inner" for name in names}  # tensors that have an output's name
    for node in model.graph.node:
        for ends in (node.input, node.output):
            ends[:] = [inside.get(name, name) for name in ends]
    for output, inner in names.items():
        inner = inside.get(inner, inner)
        model.graph.node.append(helper.make_node("Identity", [inner], [output], name=f"layer.{output}"))
        model.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))


def step_graph(model: onnx.ModelProto, step: Stage, loop: Stage) -> onnx.ModelProto:
    """The body of a graph's loop as a graph of its own, with the inputs and outputs of stage `step`.

    What the loop carries and the step takes has the same name in both. An input of the step that the loop
    takes with a row for each step is that row in the body.
    """
    place = next((place for place, node in enumerate(model.graph.node) if node.op_type == "Loop"), None)
    if place is None:
        raise InputError(f"the graph of stage {loop.full_name} has no loop: export it again")
    body = next(a.g for a in model.graph.node[place].attribute if a.name == "body")
    ranks = {tensor.name: len(tensor.dims) for tensor in loop.inputs}
    rows = [t.name for t in step.inputs if ranks.get(t.name, 0) > len(t.dims)]
    renamed = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Gather" and n.input[0] in rows}
    counter = body.input[0].name
    nodes = []
    for inner in (*model.graph.node[:place], *body.node):
        if inner.op_type == "Gather" and inner.output[0] in renamed and inner.input[1] == counter:
            continue
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        copy.input[:] = [renamed.get(name, name) for name in inner.input]
        nodes.append(copy)
    made = {name for inner in body.node for name in inner.output}
    sources = {t.name: t.name if t.name in made else f"row_{t.name}" for t in step.outputs}
    sources = {name: inner for name, inner in sources.items() if name not in step.layers}
    named = ((name, inner) for name, inner in sources.items() if name != inner)
    nodes += [helper.make_node("Identity", [inner], [name]) for name, inner in named]
    kept = list(needed(nodes, sources))[::-1]
    used = {name for inner in kept for name in inner.input}
    types = {value.name: value for value in (*model.graph.input, *body.input)}
    inputs = []
    for tensor in step.inputs:
        kind = types[tensor.name].type.tensor_type.elem_type
        dims = [dim if isinstance(dim, int) else dim.name for dim in tensor.dims]
        inputs.append(helper.make_tensor_value_info(tensor.name, kind, dims))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in sources]
    stored = [tensor for tensor in model.graph.initializer if tensor.name in used]
    graph = helper.make_graph(kept, step.full_name, inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def needed(nodes: list[onnx.NodeProto], outputs: dict[str, str]) -> Iterator[onnx.NodeProto]:
    """The nodes that outputs depend on, from the last to the first."""
    wanted = {*outputs, *outputs.values()}
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(node.input)
            yield node
