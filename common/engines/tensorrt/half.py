"""An ONNX graph in float32 -> the same graph in half precision, with casts where its precision changes.

A stage's inputs and outputs stay as declared, so that engines of every precision fit each other. The stage
names the layers that stay in float32 (`Stage.float32_layers`). The casts are nodes of the graph, since
TensorRT's networks are strongly typed.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from melforge.common.errors import InputError

# Raise it when the same graph would be converted differently: engines made of it are then built again.
HALF_VERSION = 1
# Products with weights, where half precision gains time: computed in it whatever their inputs' precision.
PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "LSTM", "GRU"})
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
LARGEST_HALF = 65504.0


def to_half(
    model: onnx.ModelProto, float32_layers: Sequence[str], weights: Mapping[str, np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A copy in half precision, and those of its weights that are not inside, as `weights` are of `model`.

    `float32_layers` are patterns of parameter names, or names of operators.

    Products with weights are computed in half precision. Other operators follow their inputs: float32 where
    one of them is. A graph's inputs are float32; constants, and floats made of integers, decide nothing.
    """
    if "*" in float32_layers:
        return model, dict(weights)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    converter = Converter(copy, float32_layers, weights)
    converter.convert()
    kept = {tensor.name for tensor in copy.graph.initializer}
    return copy, {name: value for name, value in converter.outside.items() if name in kept}


class Converter:
    """Converts a graph node by node, in order, and the bodies of its loops."""

    def __init__(
        self, model: onnx.ModelProto, float32_layers: Sequence[str], outside: Mapping[str, np.ndarray]
    ):
        self.graph = model.graph
        self.outside = dict(outside)  # the values of tensors that are not inside the graph
        self.opset = next(entry.version for entry in model.opset_import if not entry.domain)
        self.float32_layers = float32_layers
        self.stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self.constant = set(self.stored)  # values that depend on no input
        # The precision of every float value, and which values decide the precision of operators on them.
        self.precision: dict[str, int] = {
            n: t.data_type for n, t in self.stored.items() if t.data_type == FLOAT
        }
        self.decisive: set[str] = set()
        # The weights that a value is computed from, where it is computed from weights only.
        self.weights: dict[str, frozenset[str]] = {name: frozenset([name]) for name in self.stored}
        self.halves: dict[str, onnx.TensorProto] = {}

    def convert(self) -> None:
        self._keep(self.graph.input)
        self._convert_graph(self.graph, self.graph.output)
        used = set(_used(self.graph))
        kept = [tensor for tensor in self.graph.initializer if tensor.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend([*kept, *self.halves.values()])
        del self.graph.value_info[:]

    def _keep(self, values: Sequence[onnx.ValueInfoProto], names: Sequence[str] = ()) -> None:
        """Floats that stay as they are, by their own names or others, and decide."""
        for value, name in zip(values, names or [value.name for value in values], strict=True):
            if value.type.tensor_type.elem_type == FLOAT:
                self.precision[name] = FLOAT
                self.decisive.add(name)

    def _convert_graph(self, graph: onnx.GraphProto, outputs: Iterable[onnx.ValueInfoProto]) -> None:
        made: list[onnx.NodeProto] = []
        casts: dict[tuple[str, int], str] = {}
        for node in graph.node:
            self._convert_node(node, made, casts)
            made.append(node)
        for value in outputs:  # float32, as declared and as a loop's next step takes them
            if self.precision.get(value.name) == HALF:
                producer = next(node for node in made if value.name in node.output)
                inner = f"{value.name}.half"
                for node in made:
                    for names in (node.input, node.output):
                        names[:] = [inner if name == value.name else name for name in names]
                self.precision[inner] = HALF
                self.precision[value.name] = FLOAT
                cast = helper.make_node("Cast", [inner], [value.name], name=f"{value.name}.float", to=FLOAT)
                made.insert(next(i for i, node in enumerate(made) if node is producer) + 1, cast)
        del graph.node[:]
        graph.node.extend(made)

    def _convert_node(
        self, node: onnx.NodeProto, made: list[onnx.NodeProto], casts: dict[tuple[str, int], str]
    ) -> None:
        bodies = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
        if bodies:
            self._convert_loop(node, bodies, made, casts)
            return
        if all(name in self.constant for name in node.input if name):
            self.constant.update(node.output)
            sources = frozenset().union(*(self.weights.get(name, ()) for name in node.input))
            self.weights.update(dict.fromkeys(node.output, sources))
        bound, results = self._float_places(node)
        if node.op_type == "Cast":
            if next(a.i for a in node.attribute if a.name == "to") == FLOAT:
                self.precision[node.output[0]] = FLOAT
                if node.input[0] in self.precision:  # a cast of the network's own
                    self.decisive.add(node.output[0])
            return
        if not bound:  # its outputs are floats of other types, or no floats
            self.precision.update({name: FLOAT for name in results})
            return
        wanted, decisive = self._choose(node, [node.input[place] for place in bound])
        for place in bound:
            node.input[place] = self._as(node.input[place], wanted, made, casts)
        self.precision.update({name: wanted for name in results})
        if decisive:
            self.decisive.update(results)

    def _choose(self, node: onnx.NodeProto, names: Sequence[str]) -> tuple[int, bool]:
        """A node's precision, and whether it decides that of operators on its outputs."""
        weights = frozenset().union(*(self.weights.get(name, ()) for name in names))
        if self._named(node.op_type, weights):
            return FLOAT, True
        if node.output[0] in self.constant:
            return FLOAT, False  # such as reshaped weights, cast where they are used
        if weights and node.op_type in PRODUCTS | {"Gather"}:  # an embedding
            return HALF, True
        given = {self.precision[name] for name in names if name in self.decisive}
        if not given:
            return FLOAT, False
        return (FLOAT if FLOAT in given else HALF), True

    def _named(self, operator: str, weights: frozenset[str]) -> bool:
        return any(
            pattern == operator
            or any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for name in weights)
            for pattern in self.float32_layers
        )

    def _convert_loop(
        self,
        node: onnx.NodeProto,
        bodies: Sequence[onnx.GraphProto],
        made: list[onnx.NodeProto],
        casts: dict[tuple[str, int], str],
    ) -> None:
        """A loop's inputs, state and outputs stay float32; the nodes of its body are converted."""
        for place, name in enumerate(node.input):
            if name in self.precision:
                node.input[place] = self._as(name, FLOAT, made, casts)
        for body in bodies:
            self._keep(body.input)
            self._convert_graph(body, body.output)
            self._keep(body.output[1:], node.output)

    def _as(
        self, name: str, wanted: int, made: list[onnx.NodeProto], casts: dict[tuple[str, int], str]
    ) -> str:
        """The value in the wanted precision: itself, a second copy of a constant, or a cast."""
        if self.precision[name] == wanted:
            return name
        other = f"{name}.{'half' if wanted == HALF else 'float'}"
        if name in self.stored:
            if name not in self.halves:
                self.halves[name] = self._half_tensor(self.stored[name], other)
            return other
        if (name, wanted) not in casts:
            made.append(helper.make_node("Cast", [name], [other], name=f"{other}.cast", to=wanted))
            casts[name, wanted] = other
        return casts[name, wanted]

    def _half_tensor(self, tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
        if tensor.name not in self.outside:
            return numpy_helper.from_array(half_values(tensor.name, numpy_helper.to_array(tensor)), name)
        self.outside[name] = half_values(tensor.name, self.outside[tensor.name])
        half = onnx.TensorProto()
        half.CopyFrom(tensor)
        half.name, half.data_type = name, HALF
        return half

    def _float_places(self, node: onnx.NodeProto) -> tuple[list[int], list[str]]:
        """Which inputs may change their precision, and which outputs are floats."""
        schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
        either = {
            constraint.type_param_str
            for constraint in schema.type_constraints
            if {"tensor(float)", "tensor(float16)"} <= set(constraint.allowed_type_strs)
        }
        bound, kinds = [], set()
        for place, name in enumerate(node.input):
            formal = schema.inputs[min(place, len(schema.inputs) - 1)]
            if name in self.precision and formal.type_str in either:
                bound.append(place)
                kinds.add(formal.type_str)
        results = []
        for place, name in enumerate(node.output):
            formal = schema.outputs[min(place, len(schema.outputs) - 1)]
            if name and (formal.type_str in kinds or self._makes_floats(node, formal.type_str, either)):
                results.append(name)
        return bound, results

    def _makes_floats(self, node: onnx.NodeProto, kind: str, either: set[str]) -> bool:
        """Whether an output is a float although no input decides its type, as of Constant."""
        if node.op_type in ("Constant", "ConstantOfShape"):
            values = [a.t.data_type for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
            return values == [FLOAT] or (not values and node.op_type == "ConstantOfShape")
        return False


def half_values(name: str, values: np.ndarray) -> np.ndarray:
    """The values of the float32 tensor of this name in half precision."""
    if np.abs(values).max(initial=0) > LARGEST_HALF:
        raise InputError(
            f"{name} holds {values.flat[np.abs(values).argmax()]:.3g}, more than half precision can "
            "hold: name the layer in its stage's float32_layers"
        )
    return values.astype(np.float16)


def _used(graph: onnx.GraphProto) -> Iterable[str]:
    """The names of all inputs of a graph's nodes, of the nodes in its bodies, and of its outputs."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _used(attribute.g)
                yield from (value.name for value in attribute.g.output)
    yield from (value.name for value in graph.output)
