"""The decoder as a TensorRT plugin: weights, the memory's products and the stage's inputs -> all steps."""

from collections.abc import Sequence

from melforge.trt_plugins.kernel import Launch, current_device, zero
from melforge.trt_plugins.plugin import TYPE_NAMES, KernelPlugin, trt
from melforge.trt_plugins.tacotron2_decoder.launch import (
    INPUTS,
    OUTPUTS,
    WEIGHTS,
    Sizes,
    exchange_bytes,
    launch,
)

TAKES = {**WEIGHTS, **INPUTS, "memory": "float32"}  # of the memory only the shape is used
STATUS_BYTES = 8


class Tacotron2DecoderPlugin(KernelPlugin):
    """Outputs have the step limit's size; `status` holds the number of steps made. Lengths count steps."""

    name = "Tacotron2Decoder"
    types = tuple((dtype,) for dtype in TAKES.values())

    def __init__(self):
        super().__init__()
        self.num_outputs = len(OUTPUTS)

    def get_output_data_types(self, input_types):
        types = {name: kind for kind, name in TYPE_NAMES.items()}
        return [types[dtype] for dtype in OUTPUTS.values()]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        given = dict(zip(TAKES, inputs, strict=True))
        limit, _, batch, prenet = given["prenet_noise"]
        text, less = given["memory"][1], trt.DimensionOperation.SUB
        other_rows = expr_builder.operation(trt.DimensionOperation.SUM, prenet, expr_builder.constant(1))
        frame = expr_builder.operation(less, given["out_bias"][0], other_rows)
        of_frames = [batch, limit, frame], [batch], [batch, limit], [batch, limit, text]
        shapes = (*of_frames, [batch], [expr_builder.constant(2)])
        return [trt.DimsExprs(shape) for shape in shapes]

    def supports_format_combination(self, pos, in_out, num_inputs):
        wanted = (*TAKES.values(), *OUTPUTS.values())[pos]
        own = in_out[pos].desc
        return TYPE_NAMES.get(own.type) == wanted and own.format == trt.TensorFormat.LINEAR

    def get_workspace_size(self, inputs, outputs):
        return exchange_bytes(sizes_of([tuple(each.desc.dims) for each in inputs]))

    def launch(self, device: int, dtype: str, shapes: list[tuple], addresses: tuple[int, ...]) -> Launch:
        """`addresses` of weights and inputs, the memory, the outputs, and the exchange."""
        *taken, _ = addresses[: len(TAKES)]
        *made, exchange = addresses[len(TAKES) :]
        limit, _, batch, _ = shapes[list(TAKES).index("prenet_noise")]
        shape = batch, shapes[-1][1], limit
        return launch(device, sizes_of(shapes), shape, (*taken, exchange, *made), 1, True)

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        shapes = [tuple(desc.dims) for desc in input_desc]
        zero(workspace, exchange_bytes(sizes_of(shapes)), stream)
        zero(outputs[-1], STATUS_BYTES, stream)
        self.launch(current_device(), "float32", shapes, (*inputs, *outputs, workspace))(stream)


def sizes_of(shapes: Sequence[tuple]) -> Sizes:
    """The network's sizes from the shapes of the plugin's inputs."""
    given = dict(zip(TAKES, shapes, strict=True))
    prenet = given["prenet_noise"][3]
    return Sizes(
        prenet=prenet,
        attention_rnn=given["attention_bias"][0] // 4,
        decoder_rnn=given["decoder_bias"][0] // 4,
        encoder=given["memory"][2],
        attention=given["energy"][0],
        location_kernel=given["location"][1],
        frame=given["out_bias"][0] - prenet - 1,
    )
