"""Exported graphs: small, without weights or traces of the machine, checked, cached."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

from melforge.common.engines.onnx_engine import OnnxEngine
from melforge.common.export import to_onnx
from melforge.common.export.to_onnx import (
    Check,
    cached_source,
    check_source,
    compare,
    export_source,
    source_stages,
    with_graphs,
)
from melforge.common.training.model_folders import write_model
from melforge.common.verify.stages import perturb
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice
from melforge.fastpitch.config import FastPitchSettings
from melforge.fastpitch.model import FastPitch
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.stages import stages

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def vocoder(voice_copy, monkeypatch):
    sizes = [{"batch": 1, "mel": 5, "samples": 1280}, {"batch": 3, "mel": 30, "samples": 7680}]
    monkeypatch.setattr(to_onnx, "check_sizes", lambda *_: sizes)
    return load_voice(voice_copy).models["hifigan"]


def test_graphs_hold_no_weights_and_no_traces(tiny_voice):
    for source in load_voice(tiny_voice).models.values():
        for graph in source.graphs.values():
            content = graph.read_bytes()
            assert len(content) < 140_000
            assert b".py" not in content and b"/site-packages" not in content
            weights = json.loads(graph.with_suffix(".json").read_text())["weights"]
            assert set(weights) <= set(source.state)
            assert weights or graph.stem.endswith("denoiser")  # computes something fixed


@pytest.mark.parametrize("voice", ["tiny", "shipped"])
def test_a_graph_without_its_weights_loads_nowhere_else(voice, tiny_voice):
    """ONNX Runtime alone names a weight that is missing, although a weights.safetensors lies beside it."""
    for source in load_voice(tiny_voice if voice == "tiny" else None).models.values():
        for graph in source.graphs.values():
            weights = json.loads(graph.with_suffix(".json").read_text())["weights"]
            if not weights:
                continue
            with pytest.raises(Exception, match="use melforge export") as refused:
                onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
            assert any(name in str(refused.value) for name in weights)


def test_every_dynamic_axis_is_dynamic(tiny_voice):
    for source in load_voice(tiny_voice).models.values():
        for stage in source_stages(source):
            model = onnx.load(source.graphs[stage.name], load_external_data=False)
            for tensor, value in zip(stage.inputs, model.graph.input, strict=True):
                assert tensor.name == value.name
                dims = value.type.tensor_type.shape.dim
                fixed = [dim.dim_value or None for dim in dims]
                assert fixed == [d if isinstance(d, int) else None for d in tensor.dims]


def test_voices_keep_weights_in_half_precision_and_constants_whole(tiny_voice):
    from safetensors.numpy import load_file

    state = load_file(tiny_voice / "fastpitch" / "weights.safetensors")
    assert state["proj.weight"].dtype == np.float16
    assert state["encoder.pos_emb.inv_freq"].dtype == np.float32


def test_the_check_finds_a_wrong_weight(vocoder, monkeypatch):
    changed = dict(vocoder.state)
    changed["resblocks.0.0.convs.0.bias"] = changed["resblocks.0.0.convs.0.bias"] + np.float32(0.3)
    other = dataclasses.replace(vocoder, given_state=changed, networks={})
    reference = to_onnx.TorchEngine
    monkeypatch.setattr(to_onnx, "TorchEngine", lambda stage, source: reference(stage, other))
    assert all(check.ok == check.stage.endswith("denoiser") for check in check_source(vocoder))


def test_the_check_finds_a_wrong_graph(vocoder):
    graph = vocoder.graphs["generator"]
    assert all(check.ok for check in check_source(vocoder))
    model = onnx.load(graph, load_external_data=False)
    node = next(node for node in model.graph.node if node.op_type == "LeakyRelu")
    node.attribute[0].f = 0.2
    graph.write_bytes(model.SerializeToString())
    assert any(not check.ok for check in check_source(vocoder))


def test_a_failing_export_writes_nothing(vocoder, tmp_path, monkeypatch):
    failing = [Check("hifigan.generator", {"batch": 1, "mel": 3}, 0.5, 1e-4)]
    monkeypatch.setattr(to_onnx, "check_source", lambda *_: failing)
    monkeypatch.setattr(to_onnx, "export_stage", lambda *_: (b"graph", []))
    with pytest.raises(ValueError, match=r"differs from PyTorch by 5\.0e-01"):
        export_source(vocoder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def of_tiny_sizes(trained, tiny_voice, monkeypatch):
    """Weights of the sizes that the tiny voice has; nothing can be exported, two sizes are checked."""
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    monkeypatch.setattr(to_onnx, "export_stage", lambda *_: pytest.fail("exported"))
    sizes = [{"batch": 1, "mel": 5, "samples": 1280}, {"batch": 3, "mel": 30, "samples": 7680}]
    monkeypatch.setattr(to_onnx, "check_sizes", lambda *_: sizes)
    return read_checkpoint(trained["hifigan"])


def test_a_model_of_a_voices_sizes_takes_its_graphs_and_checks_them(of_tiny_sizes, tiny_voice, tmp_path):
    entry, checks = write_model(tmp_path, of_tiny_sizes)
    for name, graph in load_voice(tiny_voice).models["hifigan"].graphs.items():
        made = tmp_path / entry["graphs"][name]
        assert made.read_bytes() == graph.read_bytes()
        assert made.with_suffix(".json").read_text() == graph.with_suffix(".json").read_text()
    assert {check.stage for check in checks} == {stage.full_name for stage in source_stages(of_tiny_sizes)}
    assert all(check.ok for check in checks)


@pytest.mark.parametrize("speakers", [1, 3])
def test_other_numbers_of_symbols_and_speakers_need_no_export(speakers, monkeypatch, tmp_path):
    """As cloning makes them of a shipped voice: with one speaker the encoder takes none."""
    monkeypatch.setattr(to_onnx, "fresh_graph", lambda *_: pytest.fail("exported"))
    shipped = load_voice("orchard").source("fastpitch")
    config = dataclasses.replace(shipped.config, n_symbols=150, n_speakers=speakers)
    state = {name: value.numpy() for name, value in FastPitch(config).state_dict().items()}
    settings = FastPitchSettings(speakers=("ann", "ben", "eve")[:speakers])
    cloned = dataclasses.replace(shipped, config=config, settings=settings, graphs={}, given_state=state)
    entry, checks = write_model(tmp_path, cloned)
    assert {check.stage for check in checks} == {"fastpitch.encoder", "fastpitch.decoder"}
    notes = [
        json.loads((tmp_path / graph).with_suffix(".json").read_text()) for graph in entry["graphs"].values()
    ]
    assert [note["config"]["n_symbols"] for note in notes] == [150, 150]


def test_a_wrong_graph_of_another_voice_is_found(of_tiny_sizes, voice_copy, monkeypatch, tmp_path):
    monkeypatch.setenv("MELFORGE_VOICES", str(voice_copy.parent))
    graph = voice_copy / "hifigan" / "generator.onnx"
    model = onnx.load(graph, load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "LeakyRelu").attribute[0].f = 0.2
    graph.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"hifigan\.generator differs from PyTorch"):
        write_model(tmp_path, of_tiny_sizes)


@pytest.mark.parametrize("spoilt", ["note", "voice"])
def test_graphs_of_another_exporter_or_of_a_damaged_voice_are_not_taken(
    spoilt, of_tiny_sizes, voice_copy, monkeypatch
):
    monkeypatch.setenv("MELFORGE_VOICES", str(voice_copy.parent))
    assert to_onnx.graphs_of_voices(of_tiny_sizes)
    if spoilt == "voice":
        (voice_copy / "voice.yaml").write_text("name: [")
    for note in (voice_copy / "hifigan").glob("*.json"):
        note.write_text(json.dumps({**json.loads(note.read_text()), "exporter": -1}))
    assert to_onnx.graphs_of_voices(of_tiny_sizes) == {}


def test_only_the_graphs_that_are_needed_are_exported_to_the_cache(vocoder, tmp_path, monkeypatch):
    """One asked for later joins them, and the weights are not hashed or written again."""
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path / "cache"))
    bare = dataclasses.replace(vocoder, graphs={})
    generator, denoiser = source_stages(vocoder)[:2]
    first = with_graphs(bare, [generator])
    assert set(first.graphs) == {"generator"} and first.weights.is_relative_to(tmp_path)
    second = with_graphs(first, [generator, denoiser])
    assert set(second.graphs) == {"generator", "denoiser"}
    assert {path.parent for path in second.graphs.values()} == {first.weights.parent}


def test_nan_never_passes():
    assert not Check("stage", {}, float("nan"), 1e-4).ok
    values = {"mel": np.array([0.0, np.nan], np.float32)}
    stage = stages(HifiganConfig())[0]
    assert not to_onnx.compare(stage, {}, values, {"mel": np.zeros(2, np.float32)}).ok
    assert not to_onnx.compare(stage, {}, {"mel": np.zeros(2, np.float32)}, values).ok


@pytest.mark.slow
def test_published_weights_are_exported_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    monkeypatch.setattr(to_onnx, "check_sizes", lambda *_: [{"batch": 1, "mel": 5, "samples": 1280}])
    source = read_checkpoint(GOLDEN / "hifigan_jik876" / "V3" / "g_02500000")
    kept, checks = cached_source(source)
    assert checks and all(check.ok for check in checks)
    again, checks = cached_source(source)
    assert checks == [] and again.graphs == kept.graphs
    kept.graphs["generator"].with_suffix(".json").unlink()  # as a killed export leaves it
    monkeypatch.setattr(to_onnx, "export_source", lambda source, *_: (source, ["exported"]))
    assert cached_source(source)[1] == ["exported"]


def test_weights_just_written_are_not_read_again(tmp_path, monkeypatch):
    """They are a GB in the largest published file; another process reads the same from the cache."""
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
    monkeypatch.setattr(to_onnx, "export_source", lambda kept, *_: (kept, []))
    source = read_checkpoint(GOLDEN / "hifigan_jik876" / "V3" / "g_02500000")
    kept, _ = cached_source(source)
    stored = dataclasses.replace(kept, written_state=None)
    assert kept.weights.is_file() and kept.written_state is kept.state and stored.state is not kept.state
    assert kept.state.keys() == stored.state.keys()
    for name, value in stored.state.items():
        np.testing.assert_array_equal(kept.state[name], value)
        assert kept.state[name].dtype == value.dtype


def test_a_voice_without_the_graph_of_a_form_gets_it_from_the_cache(vocoder, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("MELFORGE_CACHE", str(cache))
    graphs = dict(vocoder.graphs)
    lost = graphs.pop("denoiser")
    less = dataclasses.replace(vocoder, graphs=graphs)
    stages = {stage.name: stage for stage in source_stages(vocoder)}
    assert with_graphs(less, [stages["generator"]]) is less and not cache.exists()
    whole = with_graphs(less, stages.values())
    assert whole.weights == vocoder.weights and {**whole.graphs, "denoiser": lost} == vocoder.graphs
    assert whole.graphs["denoiser"].is_relative_to(cache)
    assert whole.graphs["denoiser"].read_bytes() == lost.read_bytes()


def test_rounding_is_allowed_for_only_where_a_stage_feeds_back():
    """An output may then differ by a few times what float32 does to PyTorch itself, and by no more."""
    stage = SimpleNamespace(full_name="model.loop")
    wanted = {"mel": np.zeros((1, 3), np.float32), "lengths": np.array([3])}
    near = wanted | {"mel": wanted["mel"] + 3e-3}
    assert not compare(stage, {}, near, wanted).ok
    assert compare(stage, {}, near, wanted, {"mel": 1e-3}).ok
    assert not compare(stage, {}, near, wanted, {"mel": 5e-4}).ok
    assert not compare(stage, {}, near, wanted, {"lengths": 1.0}).ok
    assert not compare(stage, {}, wanted | {"mel": np.full((1, 3), np.nan)}, wanted, {"mel": 1.0}).ok


def test_the_rounding_of_a_long_loop_is_told_from_a_fault(monkeypatch):
    """On some CPUs ONNX Runtime is ten times as far from PyTorch here as float32 is from float64."""
    source = load_voice().models["tacotron2"]
    stage = next(stage for stage in source_stages(source) if stage.name == "decoder_loop")
    sizes = {"batch": 3, "text": 165, "steps": 237}
    monkeypatch.setattr(to_onnx, "check_sizes", lambda *_: [sizes])
    assert all(check.ok for check in check_source(source, [stage]))
    off = perturb(source, "decoder.attention_layer.v.linear_layer.weight")
    monkeypatch.setattr(to_onnx, "OnnxEngine", lambda stage, _: OnnxEngine(stage, off))
    assert not all(check.ok for check in check_source(source, [stage]))
