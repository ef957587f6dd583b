"""The base of the plugins: an IPluginV3 in Python whose enqueue() launches one of our kernels.

Plugins have no fields: everything follows from the shapes and types of the inputs.
"""

from typing import Any

from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.trt_plugins.kernel import Launch, current_device

NAMESPACE = "melforge"  # of the plugins in TensorRT, and of their nodes in ONNX
VERSION = "1"
# TensorRT for RTX has plugin classes and a registry too, but its networks take no plugins.
trt = load_tensorrt().api
TYPE_NAMES = {
    trt.DataType.FLOAT: "float32",
    trt.DataType.HALF: "float16",
    trt.DataType.INT32: "int32",
    trt.DataType.INT64: "int64",
    trt.DataType.BOOL: "bool",
}


class KernelPlugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """One kernel as a plugin. The output has the first input's type."""

    name: str
    types: tuple[tuple[str, ...], ...]  # allowed for each input; () means the first input's type

    def __init__(self):
        for interface in KernelPlugin.__bases__:
            interface.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = self.name, VERSION, NAMESPACE
        self.num_outputs = 1

    def output_dims(self, *inputs: Any) -> list:
        """The output's dimensions from the inputs': integers or expressions."""
        raise NotImplementedError

    def launch(self, device: int, dtype: str, shapes: list[tuple], addresses: tuple[int, ...]) -> Launch:
        """The launch for the inputs' shapes; `addresses` are those of the inputs and the output."""
        raise NotImplementedError

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return type(self)()

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [trt.DimsExprs(self.output_dims(*inputs))]

    def supports_format_combination(self, pos, in_out, num_inputs):
        own, first = in_out[pos].desc, in_out[0].desc
        allowed = self.types[pos] if pos < num_inputs else ()
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
        self.launch(current_device(), dtype, shapes, (*inputs, *outputs))(stream)


class Creator(trt.IPluginCreatorV3One):
    """Creates a plugin when an engine is built and when it is loaded."""

    def __init__(self, plugin: type[KernelPlugin]):
        trt.IPluginCreatorV3One.__init__(self)
        self._plugin = plugin
        self.name, self.plugin_version, self.plugin_namespace = plugin.name, VERSION, NAMESPACE
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, field_collection, phase):
        given = [field.name for field in field_collection]
        if given:
            raise ValueError(f"plugin {self.name} has no fields; it was given {', '.join(given)}")
        return self._plugin()
