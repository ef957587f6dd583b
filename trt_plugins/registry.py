"""The kernels as TensorRT plugins. `register` comes before TensorRT parses a graph with their nodes, or loads
an engine of it.

A plugin is an IPluginV3 in Python whose enqueue() launches a kernel. It has no fields: everything follows
from the shapes and types of the inputs. None has run inside an engine yet: docs/plugins.md.
"""

from collections.abc import Sequence
from typing import Any

from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.trt_plugins.kernel import current_device, zero
from melforge.trt_plugins.operations import ADD_POS_ENC, REPEAT, KernelOperation
from melforge.trt_plugins.tacotron2_decoder.launch import (
    INPUTS,
    OUTPUTS,
    WEIGHTS,
    Sizes,
    exchange_bytes,
    launch,
)

NAMESPACE = "melforge"  # of the plugins in TensorRT, and of their nodes in ONNX
VERSION = "1"
# TensorRT for RTX has plugin classes and a registry too, but its networks take no plugins.
trt = load_tensorrt().api
TYPES = {
    "float32": trt.DataType.FLOAT,
    "float16": trt.DataType.HALF,
    "int32": trt.DataType.INT32,
    "int64": trt.DataType.INT64,
    "bool": trt.DataType.BOOL,
}
TYPE_NAMES = {kind: name for name, kind in TYPES.items()}


class KernelPlugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """What TensorRT asks of every plugin, and what a plugin of one kernel answers."""

    name: str
    outputs = 1

    def __init__(self):
        for interface in KernelPlugin.__bases__:
            interface.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = self.name, VERSION, NAMESPACE
        self.num_outputs = self.outputs

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return type(self)()

    def get_workspace_size(self, inputs, outputs):
        return 0

    def get_valid_tactics(self):
        return []

    def configure_plugin(self, inputs, outputs):
        pass  # independent of the range of shapes

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])

    def set_tactic(self, tactic):
        pass

    def on_shape_change(self, inputs, outputs):
        pass  # enqueue() gets the shapes again

    def attach_to_context(self, context):
        return self.clone()


class OperationPlugin(KernelPlugin):
    """One of FastSpeech's operations."""

    operation: KernelOperation

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [trt.DimsExprs(self.operation.output_shape(inputs))]

    def supports_format_combination(self, pos, in_out, num_inputs):
        own, first = in_out[pos].desc, in_out[0].desc
        allowed = list(self.operation.inputs.values())[pos].types if pos < num_inputs else ()
        fits = TYPE_NAMES.get(own.type) in allowed if allowed else own.type == first.type
        return fits and own.format == trt.TensorFormat.LINEAR

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        dtype = TYPE_NAMES[input_desc[0].type]
        shapes = [tuple(desc.dims) for desc in input_desc]
        self.operation.launch(current_device(), dtype, shapes, (*inputs, *outputs))(stream)


class RepeatPlugin(OperationPlugin):
    name, operation = REPEAT.name, REPEAT


class AddPosEncPlugin(OperationPlugin):
    name, operation = ADD_POS_ENC.name, ADD_POS_ENC


TAKES = {**WEIGHTS, **INPUTS, "memory": "float32"}  # of the memory only the shape is used
STATUS_BYTES = 8


class Tacotron2DecoderPlugin(KernelPlugin):
    """Weights, the memory's products and the inputs of the stage `decoder_loop` -> all steps.

    Outputs have the step limit's size; `status` holds the number of steps made. Lengths count steps.
    """

    name = "Tacotron2Decoder"
    outputs = len(OUTPUTS)

    def get_output_data_types(self, input_types):
        return [TYPES[dtype] for dtype in OUTPUTS.values()]

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

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        shapes = [tuple(desc.dims) for desc in input_desc]
        sizes = sizes_of(shapes)
        zero(workspace, exchange_bytes(sizes), stream)
        zero(outputs[-1], STATUS_BYTES, stream)
        limit, _, batch, _ = shapes[list(TAKES).index("prenet_noise")]
        *taken, _ = inputs
        addresses = (*taken, workspace, *outputs)
        launch(current_device(), sizes, (batch, shapes[-1][1], limit), addresses, 1, True)(stream)


def sizes_of(shapes: Sequence[tuple]) -> Sizes:
    """The network's sizes from the shapes of the decoder plugin's inputs."""
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


class Creator(trt.IPluginCreatorV3One):
    """Creates a plugin when an engine is built and when it is loaded."""

    def __init__(self, plugin: type[KernelPlugin]):
        trt.IPluginCreatorV3One.__init__(self)
        self._plugin = plugin
        self.name, self.plugin_version, self.plugin_namespace = plugin.name, VERSION, NAMESPACE
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> KernelPlugin:
        given = [field.name for field in field_collection]
        if given:
            raise ValueError(f"plugin {self.name} has no fields; it was given {', '.join(given)}")
        return self._plugin()


PLUGINS = (AddPosEncPlugin, RepeatPlugin, Tacotron2DecoderPlugin)
CREATORS = tuple(Creator(plugin) for plugin in PLUGINS)  # TensorRT keeps no reference


def register() -> None:
    """Registers all creators, once a process."""
    registry = trt.get_plugin_registry()
    for creator in CREATORS:
        if registry.get_creator(creator.name, VERSION, NAMESPACE) is None:
            registry.register_creator(creator, NAMESPACE)
