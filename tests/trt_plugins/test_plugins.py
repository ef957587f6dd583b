"""The plugins as TensorRT sees them, without a GPU. They were never run inside an engine: docs/plugins.md."""

from __future__ import annotations

import numpy as np
import pytest

from common.engines.tensorrt.api import load_tensorrt

pytestmark = pytest.mark.trt
try:
    load_tensorrt()
except ValueError as error:
    pytest.skip(str(error), allow_module_level=True)
from trt_plugins import plugin  # noqa: E402
from trt_plugins.add_pos_enc.plugin import AddPosEncPlugin  # noqa: E402
from trt_plugins.registry import register  # noqa: E402
from trt_plugins.repeat.plugin import RepeatPlugin  # noqa: E402

trt = plugin.trt
SHAPES = {  # of the inputs, then of the output
    RepeatPlugin: [(2, 5, 8), (2, 5), (7,), (2, 7, 8)],
    AddPosEncPlugin: [(2, 7, 8), (2,), (9, 8), (2, 7, 8)],
}
BOTH = pytest.mark.parametrize("kind", SHAPES, ids=lambda kind: kind.name)


def describe(dtypes, shapes, layout=trt.TensorFormat.LINEAR) -> list:
    described = []
    for dtype, shape in zip(dtypes, shapes, strict=True):
        tensor, dynamic = trt.PluginTensorDesc(), trt.DynamicPluginTensorDesc()
        tensor.type, tensor.dims, tensor.format = dtype, trt.Dims(shape), layout
        dynamic.desc = tensor
        described.append(dynamic)
    return described


def create(kind, phase=trt.TensorRTPhase.BUILD, fields=()):
    register()
    creator = trt.get_plugin_registry().get_creator(kind.name, "1", "melforge")
    return creator.create_plugin("any", trt.PluginFieldCollection(fields), phase)


@BOTH
def test_a_registered_creator_makes_the_plugin_in_either_phase(kind):
    register()  # twice does no harm
    for phase in (trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME):
        made = create(kind, phase)
        assert type(made) is kind
        assert (made.plugin_name, made.plugin_version, made.plugin_namespace) == (kind.name, "1", "melforge")
        for capability in ("CORE", "BUILD", "RUNTIME"):
            assert made.get_capability_interface(getattr(trt.PluginCapabilityType, capability)) is made


@BOTH
def test_what_is_serialised_makes_the_plugin_again(kind):
    made = create(kind)
    fields = made.get_fields_to_serialize()
    assert len(fields) == 0
    assert type(create(kind, trt.TensorRTPhase.RUNTIME, fields)) is kind
    for copy in (made.clone(), made.attach_to_context(None)):
        assert copy is not made and type(copy) is kind and copy.num_outputs == 1


@BOTH
def test_a_field_is_refused(kind):
    field = trt.PluginField("axis", np.zeros(1, np.int32), trt.PluginFieldType.INT32)
    with pytest.raises(ValueError, match="has no fields; it was given axis"):
        create(kind, fields=[field])


@BOTH
def test_the_outputs_shape_follows_from_the_inputs_shapes(kind, monkeypatch):
    made, (*inputs, output) = create(kind), SHAPES[kind]
    assert tuple(made.output_dims(*inputs)) == output
    # Expressions of dimensions cannot be made in Python: those of a new DimsExprs are empty.
    (empty,) = made.get_output_shapes([trt.DimsExprs(len(shape)) for shape in inputs], [], None)
    assert len(empty) == 3
    monkeypatch.setattr(trt, "DimsExprs", list)
    assert made.get_output_shapes(inputs, [], None) == [list(output)]


FLOAT, HALF, INT32, INT64 = (getattr(trt.DataType, name) for name in ("FLOAT", "HALF", "INT32", "INT64"))


@pytest.mark.parametrize(
    ("kind", "dtypes", "wrong"),
    [
        (RepeatPlugin, (FLOAT, INT64, INT64, FLOAT), None),
        (RepeatPlugin, (HALF, INT64, INT64, HALF), None),
        (RepeatPlugin, (INT32, INT64, INT64, INT32), None),
        (RepeatPlugin, (INT64, INT64, INT64, INT64), 0),
        (RepeatPlugin, (FLOAT, INT32, INT64, FLOAT), 1),
        (RepeatPlugin, (FLOAT, INT64, FLOAT, FLOAT), 2),
        (RepeatPlugin, (FLOAT, INT64, INT64, HALF), 3),
        (AddPosEncPlugin, (FLOAT, INT64, FLOAT, FLOAT), None),
        (AddPosEncPlugin, (HALF, INT64, HALF, HALF), None),
        (AddPosEncPlugin, (INT32, INT64, INT32, INT32), 0),
        (AddPosEncPlugin, (HALF, INT64, FLOAT, HALF), 2),
    ],
)
def test_types_that_fit_each_other_are_supported(kind, dtypes, wrong):
    made, described = create(kind), describe(dtypes, SHAPES[kind])
    found = [made.supports_format_combination(position, described, 3) for position in range(4)]
    assert found == [position != wrong for position in range(4)]
    assert made.get_output_data_types(list(dtypes[:3])) == [dtypes[0]]
    other = describe(dtypes, SHAPES[kind], trt.TensorFormat.CHW32)
    assert not any(made.supports_format_combination(position, other, 3) for position in range(4))


@BOTH
def test_enqueue_launches_on_the_given_addresses_and_stream(kind, monkeypatch):
    calls = []
    module = __import__(kind.__module__, fromlist=["launch"])
    monkeypatch.setattr(plugin, "current_device", lambda: 3)
    monkeypatch.setattr(module, "launch", lambda *given: lambda stream: calls.append((*given, stream)))
    dtypes = (HALF, INT64, INT64 if kind is RepeatPlugin else HALF, HALF)
    *inputs, output = (dynamic.desc for dynamic in describe(dtypes, SHAPES[kind]))
    create(kind).enqueue(inputs, [output], [16, 32, 48], [64], 0, 99)
    sizes = (2, 5, 7, 8) if kind is RepeatPlugin else (2, 7, 8, 9)
    assert calls == [(3, "float16", sizes, (16, 32, 48, 64), 99)]


DECODER_SHAPES = [  # of the weights of a small decoder, an utterance's inputs, and its memory
    *([(9, 6, 2, 32, 8)] * 6),
    *[(288,), (352,), (24 + 21 + 1,), (2, 7, 20), (20,)],
    *[(2, 47, 1, 2, 32, 8), (2, 11, 20), (2,), (50, 2, 2, 24), (1,), (1,), (2, 11, 40)],
]


def decoder_descriptions(shapes, names) -> list:
    types = {name: kind for kind, name in plugin.TYPE_NAMES.items()}
    return describe([types[name] for name in names], shapes)


def test_the_decoder_knows_its_sizes_by_what_it_is_given():
    from trt_plugins.tacotron2_decoder import plugin as decoder
    from trt_plugins.tacotron2_decoder.launch import Sizes, exchange_bytes

    sizes = Sizes(24, 72, 88, 40, 20, 7, 21)
    assert decoder.sizes_of(DECODER_SHAPES) == sizes
    made = create(decoder.Tacotron2DecoderPlugin)
    described = decoder_descriptions(DECODER_SHAPES, decoder.TAKES.values())
    assert made.num_outputs == 6 and made.get_workspace_size(described, []) == exchange_bytes(sizes)
    copies = (made.clone(), made.attach_to_context(None))
    assert all(type(copy) is type(made) and copy.num_outputs == 6 for copy in copies)


def test_the_decoder_takes_and_makes_fixed_types():
    from trt_plugins.tacotron2_decoder import plugin as decoder

    made = create(decoder.Tacotron2DecoderPlugin)
    names = (*decoder.TAKES.values(), *decoder.OUTPUTS.values())
    described = decoder_descriptions([(1,)] * len(names), names)
    inputs = len(decoder.TAKES)
    assert all(made.supports_format_combination(i, described, inputs) for i in range(len(names)))
    wrong = decoder_descriptions([(1,)] * len(names), ["int32"] * (len(names) - 1) + ["int64"])
    assert not any(made.supports_format_combination(i, wrong, inputs) for i in range(len(names)))
    assert made.get_output_data_types([]) == [description.desc.type for description in described[inputs:]]


def test_the_decoders_outputs_have_the_step_limits_size(monkeypatch):
    from trt_plugins.tacotron2_decoder import plugin as decoder

    class Numbers:  # in place of TensorRT's expressions, which cannot be made in Python
        def constant(self, value):
            return value

        def operation(self, kind, first, second):
            return first + second if kind == trt.DimensionOperation.SUM else first - second

    monkeypatch.setattr(trt, "DimsExprs", list)
    found = create(decoder.Tacotron2DecoderPlugin).get_output_shapes(DECODER_SHAPES, [], Numbers())
    assert found == [[2, 50, 21], [2], [2, 50], [2, 50, 11], [2], [2]]


def test_the_decoders_enqueue_clears_what_must_be_zeros_and_launches(monkeypatch):
    from trt_plugins.tacotron2_decoder import plugin as decoder
    from trt_plugins.tacotron2_decoder.launch import Sizes, exchange_bytes

    calls = []
    monkeypatch.setattr(decoder, "current_device", lambda: 3)
    monkeypatch.setattr(decoder, "zero", lambda *given: calls.append(given))
    monkeypatch.setattr(decoder, "launch", lambda *given: lambda stream: calls.append((*given, stream)))
    names = (*decoder.TAKES.values(), *decoder.OUTPUTS.values())
    described = [each.desc for each in decoder_descriptions([*DECODER_SHAPES, *[(1,)] * 6], names)]
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
