"""FastSpeech's operations as TensorRT plugins. None has run inside an engine yet: docs/plugins.md.

A plugin is an IPluginV3 in Python whose enqueue() launches a kernel. It has no fields: everything follows
from the shapes and types of the inputs.
"""

from typing import Any, ClassVar

from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.trt_plugins.kernel import current_device
from melforge.trt_plugins.operations import ADD_POS_ENC, REPEAT, KernelOperation

NAMESPACE = "melforge"  # of the plugins in TensorRT, and of their nodes in ONNX
VERSION = "1"
# TensorRT for RTX has plugin classes and a registry too, but its networks take no plugins.
trt = load_tensorrt().api
TYPES = {"float32": trt.DataType.FLOAT, "float16": trt.DataType.HALF}
TYPES |= {"int32": trt.DataType.INT32, "int64": trt.DataType.INT64}
TYPE_NAMES = {kind: name for name, kind in TYPES.items()}


class KernelPlugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """An operation as TensorRT asks for it. The output has the first input's type."""

    operation: ClassVar[KernelOperation]

    def __init__(self):
        for interface in KernelPlugin.__bases__:
            interface.__init__(self)
        self.plugin_name, self.plugin_version = self.operation.name, VERSION
        self.plugin_namespace, self.num_outputs = NAMESPACE, 1

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return type(self)()

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [trt.DimsExprs(self.operation.output_shape(inputs))]

    def supports_format_combination(self, pos, in_out, num_inputs):
        own, first = in_out[pos].desc, in_out[0].desc
        allowed = list(self.operation.inputs.values())[pos].types if pos < num_inputs else ()
        fits = TYPE_NAMES.get(own.type) in allowed if allowed else own.type == first.type
        return fits and own.format == trt.TensorFormat.LINEAR

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

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        dtype = TYPE_NAMES[input_desc[0].type]
        shapes = [tuple(desc.dims) for desc in input_desc]
        self.operation.launch(current_device(), dtype, shapes, (*inputs, *outputs))(stream)


class RepeatPlugin(KernelPlugin):
    operation = REPEAT


class AddPosEncPlugin(KernelPlugin):
    operation = ADD_POS_ENC


class Creator(trt.IPluginCreatorV3One):
    """Creates a plugin when an engine is built and when it is loaded."""

    def __init__(self, plugin: type[KernelPlugin]):
        trt.IPluginCreatorV3One.__init__(self)
        self._plugin = plugin
        self.name = plugin.operation.name
        self.plugin_version, self.plugin_namespace = VERSION, NAMESPACE
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> KernelPlugin:
        given = [field.name for field in field_collection]
        if given:
            raise ValueError(f"plugin {self.name} has no fields; it was given {', '.join(given)}")
        return self._plugin()


# TensorRT keeps no reference.
CREATORS = tuple(Creator(plugin) for plugin in (AddPosEncPlugin, RepeatPlugin))


def register() -> None:
    """Registers both creators, once a process, before TensorRT parses a graph or loads an engine of them."""
    registry = trt.get_plugin_registry()
    for creator in CREATORS:
        if registry.get_creator(creator.name, VERSION, NAMESPACE) is None:
            registry.register_creator(creator, NAMESPACE)
