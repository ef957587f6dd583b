"""Convolutions in whole float32 where factors are rounded, as TensorRT for RTX does it."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv import Conv as ReferenceConv

from melforge.common.engines.rounding import to_bits
from melforge.common.engines.tensorrt.exact import with_exact_convolutions


class Conv(OpRun):
    """With factors of TF32's 10 bits; the evaluator finds it by its name."""

    op_domain = ""

    def _run(self, x, weight, bias=None, **attributes):
        x, weight = (to_bits(torch.from_numpy(value.copy()), 10).numpy() for value in (x, weight))
        return ReferenceConv._run(self, x, weight, bias, **attributes)


def graph(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A dilated convolution without a bias, a ReLU, and one with a bias; all weights are inside."""
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["wide"], dilations=[2], pads=[2, 2]),
        helper.make_node("Relu", ["wide"], ["kept"]),
        helper.make_node("Conv", ["kept", "second", "bias"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    stored = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    made = helper.make_graph(nodes, "graph", [x], [y], stored)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)])


def test_what_rounding_takes_away_is_added_again():
    rng = np.random.default_rng(0)
    shapes = {"first": (9, 7, 3), "second": (5, 9, 1), "bias": (5,)}
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    x, model = rng.standard_normal((2, 7, 40), np.float32), graph(weights)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]

    def error(changed: onnx.ModelProto) -> float:
        found = ReferenceEvaluator(changed, new_ops=[Conv]).run(None, {"x": x})[0]
        return float(np.abs(found - wanted).max() / np.abs(wanted).max())

    assert error(model) > 1e-4
    changed, outside = with_exact_convolutions(model, {})
    assert error(changed) < 1e-6 and not outside
    apart, outside = with_exact_convolutions(model, {"first": weights["first"]})  # it is not inside
    for tensor in apart.graph.initializer:
        if tensor.name in outside:
            assert tuple(tensor.dims) == outside[tensor.name].shape
            tensor.CopyFrom(numpy_helper.from_array(outside[tensor.name], tensor.name))
    assert error(apart) < 1e-6
    with pytest.raises(ValueError, match="more than half precision can hold"):
        with_exact_convolutions(model, {"first": weights["first"] * 1e5})
