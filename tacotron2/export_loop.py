"""The whole decoder as one ONNX graph: the exported decoder step as the body of an ONNX Loop.

PyTorch's exporters have no portable form for a loop with a data-dependent end. They export the step; the
graph around it is written here, with operators that both ONNX Runtime and TensorRT support.
"""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from melforge.common.export import to_onnx
from melforge.common.stages import Stage, TensorSpec, stages_of
from melforge.tacotron2.config import Tacotron2Config
from melforge.tacotron2.state import state_tensors

COUNTED = ("made", "steps", "going")  # loop-carried values besides the decoder's state


def loop_graph(stage: Stage, config: Tacotron2Config, opset: int) -> tuple[bytes, tuple[str, ...]]:
    """The graph of stage "decoder_loop" without weights, and the names of its parameters."""
    step_stage = next(s for s in stages_of(stage.model, config) if s.name == "decoder_iter")
    exported, weights = to_onnx.export_stage(step_stage, config, opset)
    step = onnx.load_from_string(exported)
    states = [tensor.name for tensor in state_tensors(config)]
    constant = [tensor for tensor in step.graph.initializer if tensor.name not in weights]
    names = own_names(step.graph, constant) | {"prenet_noise": "step_noise"}
    for tensor in constant:
        tensor.name = names[tensor.name]
    nodes = [node("Gather", ["prenet_noise", "iteration"], ["step_noise"], axis=0)]
    nodes += rename(step.graph.node, names)
    nodes += counting(config)
    before, nodes = split_invariant(nodes, {"iteration", "condition", *states, *COUNTED})
    scans = {"frame": "next_frame", "gate": "step.gate", "weights": "next_attention_weights"}
    # A value may be only one output of a loop's body: a state, or a row of a scan output.
    nodes += [node("Identity", [value], [f"row_{name}"]) for name, value in scans.items()]
    body = helper.make_graph(
        nodes,
        "step",
        [value("iteration", TensorProto.INT64, ()), value("condition", TensorProto.BOOL, ())]
        + [value(name, *kind) for name, kind in carried(config).items()],
        [value("goes_on", TensorProto.BOOL, ())]
        + [value(f"next_{name}", *kind) for name, kind in carried(config).items()]
        + [value(f"row_{name}", TensorProto.FLOAT, None) for name in scans],
    )
    loop = helper.make_node(
        "Loop",
        ["step_limit", "true", *(f"first_{name}" for name in (*states, *COUNTED))],
        [*(f"last_{name}" for name in (*states, *COUNTED)), *(f"rows_{name}" for name in scans)],
        name="steps",
        body=body,
    )
    graph = helper.make_graph(
        [*start(config), *before, loop, *ending(config)],
        stage.full_name,
        [graph_value(tensor) for tensor in stage.inputs],
        [graph_value(tensor) for tensor in stage.outputs],
        [*step.graph.initializer, *constants(config)],
    )
    model = helper.make_model(graph, opset_imports=step.opset_import, ir_version=step.ir_version)
    to_onnx.strip_notes(model, stage)
    onnx.checker.check_model(to_onnx.with_weights_as_inputs(model))
    return model.SerializeToString(deterministic=True), weights


def start(config: Tacotron2Config) -> list[onnx.NodeProto]:
    """The step limit, and the states before the first step: zeros, counts of zero, every item going."""
    made = [
        node("Shape", ["prenet_noise"], ["rows"], start=0, end=1),
        node("Squeeze", ["rows", "axis_0"], ["step_limit"]),
        node("Shape", ["memory"], ["batch"], start=0, end=1),
        node("Shape", ["memory"], ["text"], start=1, end=2),
    ]
    for tensor in state_tensors(config):
        size = f"size_{tensor.name}" if isinstance(tensor.dims[1], int) else "text"
        made += [
            node("Concat", ["batch", size], [f"shape_{tensor.name}"], axis=0),
            node(
                "ConstantOfShape",
                [f"shape_{tensor.name}"],
                [f"first_{tensor.name}"],
                value=np.array([0], np.float32),
            ),
        ]
    return [
        *made,
        node("Identity", ["axis_0"], ["first_made"]),
        node("ConstantOfShape", ["batch"], ["first_steps"], value=np.array([0], np.int64)),
        node("ConstantOfShape", ["batch"], ["first_going"], value=np.array([1], np.int64)),
    ]


def counting(config: Tacotron2Config) -> list[onnx.NodeProto]:
    """After a step: which items go on, how many steps each has, and whether there is another step."""
    nodes = [
        node("Add", ["made", "one"], ["next_made"]),
        node("Sigmoid", ["step.gate"], ["certainty"]),
        node("LessOrEqual", ["certainty", "gate_threshold"], ["below"]),
        node("Cast", ["below"], ["below_number"], to=TensorProto.INT64),
        # int64 instead of bool, which not every runtime supports as a loop-carried value.
        node("Mul", ["going", "below_number"], ["next_going"]),
        node("Add", ["steps", "next_going"], ["next_steps"]),
    ]
    if config.decoder_no_early_stopping:
        return [*nodes, node("Identity", ["condition"], ["goes_on"])]
    return [
        *nodes,
        node("ReduceMax", ["next_going"], ["any_going"], keepdims=0),
        node("Cast", ["any_going"], ["goes_on"], to=TensorProto.BOOL),
    ]


def ending(config: Tacotron2Config) -> list[onnx.NodeProto]:
    """The outputs of all steps in the stage's layout."""
    # TensorRT's scan outputs have the length of the step limit, so they are cut to the count.
    cut = [
        node("Slice", [f"rows_{name}", "axis_0", "last_made", "axis_0"], [f"made_{name}"])
        for name in ("frame", "gate", "weights")
    ]
    return [
        *cut,
        node("Transpose", ["made_frame"], ["frames"], perm=[1, 0, 2]),  # (B, S, F)
        node("Reshape", ["frames", "frames_shape"], ["single_frames"]),  # (B, T, n_mels)
        node("Transpose", ["single_frames"], ["mel"], perm=[0, 2, 1]),
        node("Mul", ["last_steps", "frames_per_step"], ["mel_lengths"]),
        node("Transpose", ["made_gate"], ["gate"], perm=[1, 0]),
        node("Transpose", ["made_weights"], ["alignment"], perm=[1, 0, 2]),
        node("Equal", ["last_going", "zero"], ["stopped"]),
    ]


def constants(config: Tacotron2Config) -> list[onnx.TensorProto]:
    values = {
        "true": np.array(True),
        "zero": np.int64(0),
        "one": np.array([1], np.int64),
        "axis_0": np.array([0], np.int64),
        "frames_shape": np.array([0, -1, config.n_mel_channels], np.int64),
        "frames_per_step": np.int64(config.n_frames_per_step),
    }
    sizes = {f"size_{tensor.name}": tensor.dims[1] for tensor in state_tensors(config)}
    values |= {name: np.array([size], np.int64) for name, size in sizes.items() if isinstance(size, int)}
    return [numpy_helper.from_array(np.asarray(content), name) for name, content in values.items()]


def carried(config: Tacotron2Config) -> dict[str, tuple[int, tuple[str | int, ...] | None]]:
    """Types and shapes of the loop-carried values."""
    kinds: dict[str, tuple[int, tuple[str | int, ...] | None]] = {
        tensor.name: (TensorProto.FLOAT, shape(tensor)) for tensor in state_tensors(config)
    }
    counts = {"made": (1,), "steps": ("batch",), "going": ("batch",)}
    return kinds | {name: (TensorProto.INT64, counts[name]) for name in COUNTED}


def split_invariant(
    nodes: Sequence[onnx.NodeProto], varying: set[str]
) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """The loop-invariant nodes, such as masks, and the others."""
    before, inside, varying = [], [], set(varying)
    for entry in nodes:
        if varying.isdisjoint(entry.input):
            before.append(entry)
        else:
            inside.append(entry)
            varying.update(entry.output)
    return before, inside


def own_names(graph: onnx.GraphProto, constant: Sequence[onnx.TensorProto]) -> dict[str, str]:
    """New names for the step's values, since a loop's body must not reuse names of the outer graph."""
    made = {name for entry in graph.node for name in entry.output} | {tensor.name for tensor in constant}
    return {name: f"step.{name}" for name in made if not name.startswith("next_")}


def rename(nodes: Sequence[onnx.NodeProto], names: dict[str, str]) -> list[onnx.NodeProto]:
    """The nodes with inputs and outputs renamed."""
    renamed = []
    for entry in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(entry)
        for ends in (copy.input, copy.output):
            ends[:] = [names.get(name, name) for name in ends]
        renamed.append(copy)
    return renamed


def node(kind: str, inputs: list[str], outputs: list[str], **attributes) -> onnx.NodeProto:
    for name, content in attributes.items():
        if isinstance(content, np.ndarray):
            attributes[name] = numpy_helper.from_array(content)
    return helper.make_node(kind, inputs, outputs, name=f"loop.{outputs[0]}", **attributes)


def value(name: str, kind: int, dims: Sequence[str | int] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def graph_value(tensor: TensorSpec) -> onnx.ValueInfoProto:
    return value(tensor.name, helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)), shape(tensor))


def shape(tensor: TensorSpec) -> tuple[str | int, ...]:
    return tuple(dim if isinstance(dim, int) else dim.name for dim in tensor.dims)
