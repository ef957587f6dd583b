"""The graph with the plugins' nodes: what differs from the plain one, and that it says the same."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from melforge.common.audio.contract import MelContract
from melforge.common.export.to_onnx import example_inputs, export_stage, source_stages
from melforge.common.weights.voices import ModelSource
from melforge.fastspeech.model import FastSpeech
from melforge.fastspeech.operations import DECOMPOSED
from melforge.trt_plugins.export_onnx import DOMAIN, export
from tests.conftest import tiny_fastspeech

pytestmark = pytest.mark.slow
TINY = replace(tiny_fastspeech()[1], max_seq_len=64, n_mel_channels=10, n_symbols=20)


@pytest.fixture(scope="module")
def network() -> FastSpeech:
    torch.manual_seed(5)
    network = FastSpeech(TINY).eval().requires_grad_(False)
    network.length_regulator.duration_predictor.linear_layer.bias += 1.2  # a few frames a symbol
    return network


@pytest.fixture(scope="module")
def source(network) -> ModelSource:
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    mel = MelContract(n_mel_channels=TINY.n_mel_channels)
    return ModelSource("fastspeech", TINY, Path("tiny"), mel, given_state=state)


@pytest.fixture(scope="module")
def stage(source):
    return next(stage for stage in source_stages(source) if stage.name == "synthesis")


@pytest.fixture(scope="module")
def graph(source) -> onnx.ModelProto:
    return export(source)


@pytest.fixture(scope="module")
def plain(stage) -> onnx.ModelProto:
    return onnx.load_model_from_string(export_stage(stage, TINY)[0])


def shapes(values) -> list[tuple]:
    kinds = [value.type.tensor_type for value in values]
    sizes = [[dim.dim_value for dim in kind.shape.dim] for kind in kinds]
    return [(one.name, kind.elem_type, size) for one, kind, size in zip(values, kinds, sizes, strict=True)]


def test_the_plugins_nodes_say_which_plugin_they_want(graph):
    onnx.checker.check_model(graph)
    nodes = [node for node in graph.graph.node if node.domain]
    assert [node.op_type for node in nodes] == ["AddPosEnc", "Repeat", "AddPosEnc"]
    assert {opset.domain: opset.version for opset in graph.opset_import} == {"": 20, DOMAIN: 1}
    for node in nodes:
        found = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        assert node.domain == DOMAIN
        assert found == {"plugin_namespace": b"melforge", "plugin_version": b"1"}
        assert (len(node.input), len(node.output)) == (3, 1)
    assert [node.input[2] for node in nodes] == ["position.weight", "frames", "position.weight"]


def test_everything_else_is_as_in_the_plain_graph(graph, plain):
    assert shapes(graph.graph.input) == shapes(plain.graph.input)
    assert shapes(graph.graph.output) == shapes(plain.graph.output)
    assert not graph.functions
    ours = Counter(node.op_type for node in graph.graph.node if not node.domain)
    theirs = Counter(node.op_type for node in plain.graph.node)
    assert not ours - theirs  # nothing is new
    for operator in ("CumSum", "LessOrEqual"):  # they come from the decompositions alone
        assert theirs[operator] and not ours[operator]
    for operator in ("MatMul", "Conv", "LayerNormalization", "Softmax", "Relu", "Round", "Exp"):
        assert ours[operator] == theirs[operator]


def test_the_graph_holds_the_weights(graph, plain, source):
    weights = {tensor.name: tensor for tensor in graph.graph.initializer if tensor.name in source.state}
    assert set(weights) == {tensor.name for tensor in plain.graph.initializer} & set(source.state)
    for name, tensor in weights.items():
        assert np.array_equal(onnx.numpy_helper.to_array(tensor), source.state[name])


def as_numpy(operation):
    return lambda *inputs: (operation(*map(torch.tensor, inputs)).numpy(),)


class Repeat(OpRun):
    op_domain = DOMAIN

    def _run(self, x, counts, frames, plugin_namespace=None, plugin_version=None):
        return as_numpy(DECOMPOSED.repeat)(x, counts, frames)


class AddPosEnc(OpRun):
    op_domain = DOMAIN

    def _run(self, x, lengths, table, plugin_namespace=None, plugin_version=None):
        return as_numpy(DECOMPOSED.add_pos_enc)(x, lengths, table)


@pytest.mark.parametrize("sizes", [(1, 3, 9), (3, 12, 40)])
def test_with_the_nodes_computed_it_says_what_the_network_says(graph, network, stage, sizes):
    inputs = example_inputs(stage, TINY, dict(zip(("batch", "text", "mel"), sizes, strict=True)), seed=1)
    found = ReferenceEvaluator(graph, new_ops=[Repeat, AddPosEnc]).run(None, inputs)
    wanted = network.synthesise(**{name: torch.from_numpy(value) for name, value in inputs.items()})
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, expected.numpy(), atol=2e-5)


def test_another_models_weights_are_refused(source):
    from dataclasses import replace

    with pytest.raises(ValueError, match="the plugins are FastSpeech's; tiny holds fastpitch"):
        export(replace(source, model="fastpitch"))
