"""The plugins as TensorRT sees them, without a GPU. They were never run inside an engine: docs/plugins.md."""

import numpy as np
import pytest

from melforge.common.engines.tensorrt.api import load_tensorrt

pytestmark = pytest.mark.trt  # what imports TensorRT is imported in a test
SHAPES = {  # of the inputs, then of the output
    "Repeat": [(2, 5, 8), (2, 5), (7,), (2, 7, 8)],
    "AddPosEnc": [(2, 7, 8), (2,), (9, 8), (2, 7, 8)],
}


@pytest.fixture
def trt():
    return load_tensorrt().api


@pytest.fixture(params=SHAPES)
def kind(request):
    return plugin_class(request.param)


def plugin_class(name: str) -> type:
    from melforge.trt_plugins.registry import AddPosEncPlugin, RepeatPlugin

    return {"Repeat": RepeatPlugin, "AddPosEnc": AddPosEncPlugin}[name]


def describe(dtypes, shapes, layout: str = "LINEAR") -> list:
    """Descriptions of tensors; types as NumPy names them."""
    from melforge.trt_plugins.registry import TYPES, trt

    described = []
    for dtype, shape in zip(dtypes, shapes, strict=True):
        tensor, dynamic = trt.PluginTensorDesc(), trt.DynamicPluginTensorDesc()
        tensor.type, tensor.dims = TYPES[dtype], trt.Dims(shape)
        tensor.format = getattr(trt.TensorFormat, layout)
        dynamic.desc = tensor
        described.append(dynamic)
    return described


def create(kind, phase: str = "BUILD", fields=()):
    from melforge.trt_plugins.registry import register, trt

    register()
    creator = trt.get_plugin_registry().get_creator(kind.operation.name, "1", "melforge")
    return creator.create_plugin("any", trt.PluginFieldCollection(fields), getattr(trt.TensorRTPhase, phase))


def test_a_registered_creator_makes_the_plugin_in_either_phase(trt, kind):
    for phase in ("BUILD", "RUNTIME"):  # to register twice does no harm
        made = create(kind, phase)
        assert type(made) is kind
        assert (made.plugin_name, made.plugin_version, made.plugin_namespace) == (
            kind.operation.name,
            "1",
            "melforge",
        )
        for capability in ("CORE", "BUILD", "RUNTIME"):
            assert made.get_capability_interface(getattr(trt.PluginCapabilityType, capability)) is made


def test_what_is_serialised_makes_the_plugin_again(kind):
    made = create(kind)
    fields = made.get_fields_to_serialize()
    assert len(fields) == 0
    assert type(create(kind, "RUNTIME", fields)) is kind
    for copy in (made.clone(), made.attach_to_context(None)):
        assert copy is not made and type(copy) is kind and copy.num_outputs == 1


def test_a_field_is_refused(trt, kind):
    field = trt.PluginField("axis", np.zeros(1, np.int32), trt.PluginFieldType.INT32)
    with pytest.raises(ValueError, match="has no fields; it was given axis"):
        create(kind, fields=[field])


def test_the_outputs_shape_follows_from_the_inputs_shapes(trt, kind, monkeypatch):
    made, (*inputs, output) = create(kind), SHAPES[kind.operation.name]
    assert tuple(made.operation.output_shape(inputs)) == output
    # Expressions of dimensions cannot be made in Python: those of a new DimsExprs are empty.
    (empty,) = made.get_output_shapes([trt.DimsExprs(len(shape)) for shape in inputs], [], None)
    assert len(empty) == 3
    monkeypatch.setattr(trt, "DimsExprs", list)
    assert made.get_output_shapes(inputs, [], None) == [list(output)]


@pytest.mark.parametrize(
    ("name", "dtypes", "wrong"),
    [
        ("Repeat", ("float32", "int64", "int64", "float32"), None),
        ("Repeat", ("float16", "int64", "int64", "float16"), None),
        ("Repeat", ("int32", "int64", "int64", "int32"), None),
        ("Repeat", ("int64", "int64", "int64", "int64"), 0),
        ("Repeat", ("float32", "int32", "int64", "float32"), 1),
        ("Repeat", ("float32", "int64", "float32", "float32"), 2),
        ("Repeat", ("float32", "int64", "int64", "float16"), 3),
        ("AddPosEnc", ("float32", "int64", "float32", "float32"), None),
        ("AddPosEnc", ("float16", "int64", "float16", "float16"), None),
        ("AddPosEnc", ("int32", "int64", "int32", "int32"), 0),
        ("AddPosEnc", ("float16", "int64", "float32", "float16"), 2),
    ],
)
def test_types_that_fit_each_other_are_supported(name, dtypes, wrong):
    made, described = create(plugin_class(name)), describe(dtypes, SHAPES[name])
    found = [made.supports_format_combination(position, described, 3) for position in range(4)]
    assert found == [position != wrong for position in range(4)]
    first, *_ = types = [tensor.desc.type for tensor in described[:3]]
    assert made.get_output_data_types(types) == [first]
    other = describe(dtypes, SHAPES[name], "CHW32")
    assert not any(made.supports_format_combination(position, other, 3) for position in range(4))


def test_enqueue_launches_on_the_given_addresses_and_stream(kind, monkeypatch):
    from melforge.trt_plugins import operations, registry

    calls = []

    def launch(source, entry, device, blocks, arguments, keep):
        return lambda stream: calls.append((source.stem, device, *arguments, stream))

    monkeypatch.setattr(registry, "current_device", lambda: 3)
    monkeypatch.setattr(operations, "Launch", launch)
    dtypes = ("float16", "int64", "int64" if kind.operation.name == "Repeat" else "float16", "float16")
    *inputs, output = (dynamic.desc for dynamic in describe(dtypes, SHAPES[kind.operation.name]))
    create(kind).enqueue(inputs, [output], [16, 32, 48], [64], 0, 99)
    name, numbers = {"Repeat": ("repeat", (5, 7, 1)), "AddPosEnc": ("add_pos_enc", (14, 7, 1))}[
        kind.operation.name
    ]
    assert calls == [(name, 3, 16, 32, 48, 64, *numbers, 99)]
