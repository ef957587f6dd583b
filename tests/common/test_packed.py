"""Packed graphs of published sizes: what the exporter makes today, and taken where they stand for it."""

import dataclasses
import gzip
import json

import onnx
import pytest

from melforge.common.audio.denoiser import NETWORK as DENOISER
from melforge.common.export import to_onnx
from melforge.common.export.packed import FOLDER, MADE_WITH, packed_path
from melforge.common.export.to_onnx import EXPORTER_VERSION, OPSET, export_stage, fresh_graph
from melforge.common.stages import stages_of
from melforge.hifigan.config import HifiganConfig
from melforge.jasper.config import JasperConfig
from melforge.jasper.stages import stages as jasper_stages
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.stages import stages
from recipes import pack_graphs
from recipes.pack_graphs import published_stages, versions

PACKED = published_stages()
OF_EACH_STAGE = {one[0].full_name: one for one in reversed(PACKED)}
# Of each form with a mask the one without it, which is not exported again: that takes as long.
WITHOUT_MASK = {"waveglow.masked_generator": "waveglow.generator", "jasper.masked_encoder": "jasper.encoder"}
EXPORTED = {name: one for name, one in OF_EACH_STAGE.items() if name not in WITHOUT_MASK.values()}
uncached = export_stage.__wrapped__


def path_of(stage, config):
    return packed_path(stage, config, EXPORTER_VERSION)


def stage_named(name, model, config):
    return next(stage for stage in stages_of(model, config) if stage.name == name)


@pytest.fixture
def no_exporter(monkeypatch):
    monkeypatch.setattr(to_onnx, "fresh_graph", lambda stage, config, opset: (b"exported", ()))


def test_the_folder_holds_the_graphs_of_this_exporter_and_nothing_else():
    assert {path_of(*one) for one in PACKED} | {MADE_WITH} == set(FOLDER.iterdir())
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 220_000
    assert json.loads(MADE_WITH.read_text()).keys() == versions().keys()


def test_no_graph_is_packed_twice():
    graphs = [path.read_bytes() for path in FOLDER.glob("*.onnx.gz")]
    assert len(set(graphs)) == len(graphs) < len(PACKED)


@pytest.mark.usefixtures("no_exporter")
@pytest.mark.parametrize("name", ["denoiser", "masked_denoiser"])
def test_a_denoiser_is_the_same_for_all_vocoders_of_one_hop(name):
    smaller = dataclasses.replace(WaveglowConfig(), n_flows=8)
    for model, config in (
        ("waveglow", WaveglowConfig()),
        ("waveglow", smaller),
        ("hifigan", HifiganConfig()),
    ):
        stage = stage_named(name, model, config)
        graph, weights = uncached(stage, config)
        assert onnx.load_from_string(graph).graph.name == stage.full_name and weights == ()
    other = dataclasses.replace(smaller, hop_length=512)
    assert uncached(stage_named(name, "waveglow", other), other) == (b"exported", ())


@pytest.mark.slow
@pytest.mark.exporter
def test_the_denoiser_of_another_vocoder_is_what_the_exporter_makes():
    config = HifiganConfig()
    stage = stage_named("masked_denoiser", "hifigan", config)
    assert uncached(stage, config) == fresh_graph(stage, config, OPSET)


@pytest.mark.slow
@pytest.mark.exporter
@pytest.mark.parametrize(("stage", "config"), EXPORTED.values(), ids=EXPORTED)
def test_a_packed_graph_is_what_the_exporter_makes(stage, config):
    graph, weights = fresh_graph(stage, config, OPSET)
    again = "python -m recipes.pack_graphs makes it again"
    assert graph == gzip.decompress(path_of(stage, config).read_bytes()), again
    assert uncached(stage, config) == (graph, weights)


@pytest.mark.parametrize("masked", WITHOUT_MASK)
def test_a_graph_without_its_mask_has_the_same_convolutions(masked):
    """In the same order, of the same weights: what the exporter makes of one, it makes of the other."""
    found = []
    for name in (masked, WITHOUT_MASK[masked]):
        graph, weights = uncached(*OF_EACH_STAGE[name])
        nodes = [node for node in nodes_of(graph) if node[0][0] == "Conv"]
        found.append([(what, set(weights).intersection(made)) for what, made, _ in nodes])
    assert found[0] == found[1] and len(found[0]) > 40


def test_the_graphs_of_one_stage_differ_in_the_numbers_of_channels():
    """So that one of them, which takes half a minute to export, tells of the other."""
    for stage, config in PACKED:
        first = OF_EACH_STAGE[stage.full_name][1]
        if config != first and stage.network != DENOISER:
            given, other = (nodes_of(uncached(stage, sizes)[0]) for sizes in (config, first))
            times = config.wn_channels / first.wn_channels
            assert [node[:2] for node in given] == [node[:2] for node in other]
            pairs = zip((node[2] for node in given), (node[2] for node in other), strict=True)
            assert all(
                ((a == b) | (a == times * b)).all() for one in pairs for a, b in zip(*one, strict=True)
            )
            assert not set(uncached(stage, config)[1]) ^ set(uncached(stage, first)[1])


def nodes_of(graph: bytes) -> list[tuple]:
    """Of each node its operator and attributes, what its inputs are made by, and those that are numbers."""
    found = onnx.load_from_string(graph).graph
    made = {value.name: value.name for value in found.input}
    numbers = {}
    for tensor in found.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            made[tensor.name] = tensor.name
        else:
            numbers[tensor.name] = onnx.numpy_helper.to_array(tensor)
    nodes = []
    for place, node in enumerate(found.node):
        what = node.op_type, [one.SerializeToString() for one in node.attribute]
        nodes.append(
            (what, [made.get(name) for name in node.input], [numbers[n] for n in node.input if n in numbers])
        )
        made |= {name: (place, number) for number, name in enumerate(node.output)}
    return nodes


@pytest.mark.usefixtures("no_exporter")
def test_published_sizes_are_not_exported():
    """The weights that a packed graph takes are read in it."""
    config = WaveglowConfig()
    generator = stages(config)[0]
    graph, weights = uncached(generator, config)
    model = onnx.load_from_string(graph)
    assert [value.name for value in model.graph.input] == ["mel", "z"]
    assert "WN.11.end.weight" in weights and "convinv.0.inverse" in weights


@pytest.mark.usefixtures("no_exporter")
def test_a_checkpoint_without_its_configuration_takes_them_too():
    """Jasper's dropouts are not in its weights, and in no graph."""
    config = dataclasses.replace(JasperConfig(), dropouts=(0.2,) * 13)
    encoder = jasper_stages(config)[0]
    assert uncached(encoder, config)[0] == uncached(encoder, JasperConfig())[0] != b"exported"


@pytest.mark.usefixtures("no_exporter")
def test_other_sizes_operator_sets_and_outputs_are_exported():
    config = WaveglowConfig()
    generator = stages(config)[0]
    layered = dataclasses.replace(generator, layers=("cond",))
    other = dataclasses.replace(config, n_flows=8)
    for asked in ((layered, config), (generator, config, 18), (stages(other)[0], other)):
        assert uncached(*asked) == (b"exported", ())


def test_packing_takes_the_place_of_the_graphs_of_another_exporter(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        pack_graphs, "fresh_graph", lambda stage, config, opset: (stage.full_name.encode(), ())
    )
    for name in ("waveglow.generator-of-another-4.onnx.gz", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert pack_graphs.main(["--output", str(tmp_path)]) == 0
    wanted = {path_of(*one).name for one in PACKED} | {MADE_WITH.name}
    assert {path.name for path in tmp_path.iterdir()} == wanted | {"notes.txt"}
    stage, config = PACKED[0]
    graph = gzip.decompress((tmp_path / path_of(stage, config).name).read_bytes())
    assert graph == stage.full_name.encode()
    assert len(capsys.readouterr().out.splitlines()) == len(wanted) - 1
