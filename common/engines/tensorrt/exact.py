"""An ONNX graph in float32 -> one whose convolutions stay so on TensorRT.

That rounds factors to the 10 bits of TF32. A factor is what half precision holds of it, which is exact in
TF32, and the rest: x = h + r. A convolution of x with w is one of the channels (h, r, h) with the weights
(wh, wh, wr); what is missing is 2**-22 of it.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from melforge.common.engines.tensorrt.half import half_values

# Raise it when the same graph would be changed differently: engines made of it are then built again.
EXACT_VERSION = 1


def with_exact_convolutions(
    model: onnx.ModelProto, weights: Mapping[str, np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A copy, and those of its weights that are not inside, as `weights` are of `model`.

    What convolutions take must lie in half precision's range, as weights do, or they are an InputError.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    stored = {tensor.name: tensor for tensor in copy.graph.initializer}
    outside, nodes = dict(weights), []
    for node in copy.graph.node:
        if node.op_type == "Conv":
            source, name = node.input[:2]
            values = outside.pop(name) if name in outside else numpy_helper.to_array(stored[name])
            rounded = half_values(name, values).astype(np.float32)
            whole = np.concatenate([rounded, rounded, values - rounded], axis=1)
            if name in weights:
                outside[name] = whole
                stored[name].dims[:] = whole.shape
            else:
                stored[name].CopyFrom(numpy_helper.from_array(whole, name))
            half, known, rest, wide = (
                f"{node.output[0]}.{part}" for part in ("half", "known", "rest", "wide")
            )
            nodes += [
                helper.make_node("Cast", [source], [half], to=TensorProto.FLOAT16),
                helper.make_node("Cast", [half], [known], to=TensorProto.FLOAT),
                helper.make_node("Sub", [source, known], [rest]),
                helper.make_node("Concat", [known, rest, known], [wide], axis=1),
            ]
            node.input[0] = wide
        nodes.append(node)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    del copy.graph.value_info[:]
    return copy, outside
