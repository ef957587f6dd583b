"""What both plugins share: an IPluginV3 in Python whose enqueue() launches a kernel of ours.

A plugin has no fields: what it does follows from its inputs' shapes and types.
"""

from __future__ import annotations

from typing import Any

from common.engines.tensorrt.api import load_tensorrt
from trt_plugins.kernel import Launch, current_device

NAMESPACE = "melforge"  # of the plugins in TensorRT, and of their nodes in ONNX
VERSION = "1"


# TensorRT for RTX knows plugin classes and their registry too, but takes no plugin into a network.
trt = load_tensorrt().api
TYPE_NAMES = {
    trt.DataType.FLOAT: "float32",
    trt.DataType.HALF: "float16",
    trt.DataType.INT32: "int32",
    trt.DataType.INT64: "int64",
    trt.DataType.BOOL: "bool",
}


class KernelPlugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """One kernel as a plugin. Its first input's type is that of its output."""

    name: str
    types: tuple[tuple[str, ...], ...]  # of each input; () where it must be that of the first

    def __init__(self):
        for interface in KernelPlugin.__bases__:
            interface.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = self.name, VERSION, NAMESPACE
        self.num_outputs = 1

    def output_dims(self, *inputs: Any) -> list:
        """The output's dimensions, taken from the inputs' as they are given: numbers or expressions."""
        raise NotImplementedError

    def launch(self, device: int, dtype: str, shapes: list[tuple], addresses: tuple[int, ...]) -> Launch:
        """The kernel for the inputs' shapes, and the addresses of inputs and output."""
        raise NotImplementedError

    # CORE

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return type(self)()

    # BUILD

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
        pass  # nothing depends on the range of shapes

    # RUNTIME

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])

    def set_tactic(self, tactic):
        pass

    def on_shape_change(self, inputs, outputs):
        pass  # enqueue() is given the shapes again

    def attach_to_context(self, context):
        return self.clone()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        dtype = TYPE_NAMES[input_desc[0].type]
        shapes = [tuple(desc.dims) for desc in input_desc]
        self.launch(current_device(), dtype, shapes, (*inputs, *outputs))(stream)


class Creator(trt.IPluginCreatorV3One):
    """Makes a plugin while an engine is built and when one is loaded."""

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
