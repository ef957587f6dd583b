"""The plugins as TensorRT sees them, without a GPU. They were never run inside an engine: docs/plugins.md."""

from types import SimpleNamespace

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
    from melforge.trt_plugins.registry import PLUGINS

    return next(each for each in PLUGINS if each.name == name)


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
    creator = trt.get_plugin_registry().get_creator(kind.name, "1", "melforge")
    return creator.create_plugin("any", trt.PluginFieldCollection(fields), getattr(trt.TensorRTPhase, phase))


def test_a_registered_creator_makes_the_plugin_in_either_phase(trt, kind):
    for phase in ("BUILD", "RUNTIME"):  # to register twice does no harm
        made = create(kind, phase)
        assert type(made) is kind
        assert (made.plugin_name, made.plugin_version, made.plugin_namespace) == (kind.name, "1", "melforge")
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
    made, (*inputs, output) = create(kind), SHAPES[kind.name]
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
    from melforge.trt_plugins import registry

    calls = []
    launch = lambda *given: lambda stream: calls.append((*given, stream))  # noqa: E731
    monkeypatch.setattr(registry, "current_device", lambda: 3)
    monkeypatch.setattr(kind, "operation", SimpleNamespace(launch=launch))
    dtypes = ("float16", "int64", "int64" if kind.name == "Repeat" else "float16", "float16")
    *inputs, output = (dynamic.desc for dynamic in describe(dtypes, SHAPES[kind.name]))
    create(kind).enqueue(inputs, [output], [16, 32, 48], [64], 0, 99)
    assert calls == [(3, "float16", SHAPES[kind.name][:3], (16, 32, 48, 64), 99)]


DECODER_SHAPES = [  # of the weights of a small decoder, an utterance's inputs, and its memory
    *([(9, 6, 2, 32, 8)] * 6),
    *[(288,), (352,), (24 + 21 + 1,), (2, 7, 20), (20,)],
    *[(2, 47, 1, 2, 32, 8), (2, 11, 20), (2,), (50, 2, 2, 24), (1,), (1,), (2, 11, 40)],
]


def test_the_decoder_knows_its_sizes_by_what_it_is_given():
    from melforge.trt_plugins import registry as decoder
    from melforge.trt_plugins.tacotron2_decoder.launch import Sizes, exchange_bytes

    sizes = Sizes(24, 72, 88, 40, 20, 7, 21)
    assert decoder.sizes_of(DECODER_SHAPES) == sizes
    made = create(decoder.Tacotron2DecoderPlugin)
    described = describe(decoder.TAKES.values(), DECODER_SHAPES)
    assert made.num_outputs == 6 and made.get_workspace_size(described, []) == exchange_bytes(sizes)
    copies = (made.clone(), made.attach_to_context(None))
    assert all(type(copy) is type(made) and copy.num_outputs == 6 for copy in copies)


def test_the_decoder_takes_and_makes_fixed_types():
    from melforge.trt_plugins import registry as decoder

    made = create(decoder.Tacotron2DecoderPlugin)
    names = (*decoder.TAKES.values(), *decoder.OUTPUTS.values())
    described = describe(names, [(1,)] * len(names))
    inputs = len(decoder.TAKES)
    assert all(made.supports_format_combination(i, described, inputs) for i in range(len(names)))
    wrong = describe(["int32"] * (len(names) - 1) + ["int64"], [(1,)] * len(names))
    assert not any(made.supports_format_combination(i, wrong, inputs) for i in range(len(names)))
    assert made.get_output_data_types([]) == [description.desc.type for description in described[inputs:]]


def test_the_decoders_outputs_have_the_step_limits_size(trt, monkeypatch):
    from melforge.trt_plugins import registry as decoder

    class Numbers:  # in place of TensorRT's expressions, which cannot be made in Python
        def constant(self, value):
            return value

        def operation(self, kind, first, second):
            return first + second if kind == trt.DimensionOperation.SUM else first - second

    monkeypatch.setattr(trt, "DimsExprs", list)
    found = create(decoder.Tacotron2DecoderPlugin).get_output_shapes(DECODER_SHAPES, [], Numbers())
    assert found == [[2, 50, 21], [2], [2, 50], [2, 50, 11], [2], [2]]


def test_the_decoders_enqueue_clears_what_must_be_zeros_and_launches(monkeypatch):
    from melforge.trt_plugins import registry as decoder
    from melforge.trt_plugins.tacotron2_decoder.launch import Sizes, exchange_bytes

    calls = []
    monkeypatch.setattr(decoder, "current_device", lambda: 3)
    monkeypatch.setattr(decoder, "zero", lambda *given: calls.append(given))
    monkeypatch.setattr(decoder, "launch", lambda *given: lambda stream: calls.append((*given, stream)))
    names = (*decoder.TAKES.values(), *decoder.OUTPUTS.values())
    described = [each.desc for each in describe(names, [*DECODER_SHAPES, *[(1,)] * 6])]
    count = len(DECODER_SHAPES)
    inputs, outputs = list(range(count)), list(range(100, 106))
    made = create(decoder.Tacotron2DecoderPlugin)
    made.enqueue(described[:count], described[count:], inputs, outputs, 77, 99)
    sizes = Sizes(24, 72, 88, 40, 20, 7, 21)
    *taken, _ = inputs  # the memory is there for its sizes alone
    assert calls == [
        (77, exchange_bytes(sizes), 99),
        (105, 8, 99),
        (3, sizes, (2, 11, 50), (*taken, 77, *outputs), 1, True, 99),
    ]
