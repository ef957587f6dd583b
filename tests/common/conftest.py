"""Sources of tiny networks of every model, with graphs."""

import json
from pathlib import Path

import onnx
import pytest
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.cli.speak import parse
from melforge.common.engines.layer_outputs import with_layers
from melforge.common.engines.torch_engine import build_network
from melforge.common.export import to_onnx
from melforge.common.export.to_onnx import example_inputs
from melforge.common.registry import get_model
from melforge.common.stages import plan_of
from melforge.common.stages.choose import choose_stages
from melforge.common.weights.voices import FrontendSpec, ModelSource, load_voice
from tests.conftest import tiny_fastspeech, tiny_tacotron2, tiny_waveglow

SIZES = {"batch": 1, "text": 6, "mel": 12, "steps": 12 * 32, "samples": 12 * 256}


MADE = {"fastspeech": tiny_fastspeech, "tacotron2": tiny_tacotron2, "waveglow": tiny_waveglow}


def make_source(model: str, folder: Path) -> ModelSource:
    """A tiny network with graphs, made of those that have layers, since exports take seconds."""
    network, config = MADE[model]()
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    spec = FrontendSpec("english") if get_model(model).kind == "acoustic" else None
    source = ModelSource(model, config, Path("weights"), MelContract(), frontend=spec, given_state=state)
    graphs = {}
    stages = choose_stages(source, None) + (choose_stages(source, "steps") if model == "tacotron2" else [])
    for stage in stages:
        if stage.name in graphs or "denoiser" in stage.name:
            continue
        graphs[stage.name] = path = folder / f"{model}.{stage.name}.onnx"
        if stage.graph:
            graph, weights = to_onnx.export_stage(stage, config)
            path.write_bytes(graph)
        else:
            inputs = example_inputs(stage, config, SIZES, 0)
            given = {name: torch.from_numpy(value) for name, value in inputs.items()}
            layered = with_layers(stage, build_network(stage, source), plan_of(model).layers, given)
            graph, weights = to_onnx.export_stage(layered, config)
            proto = onnx.load_from_string(graph)
            del proto.graph.output[len(stage.outputs) :]
            path.write_bytes(proto.SerializeToString())
        path.with_suffix(".json").write_text(json.dumps({"weights": weights}))
    return ModelSource(
        model, config, Path("weights"), MelContract(), graphs, frontend=spec, given_state=state
    )


@pytest.fixture
def infer(tiny_voice, monkeypatch):
    """What `melforge speak` makes of its command line, with the tiny voice."""
    monkeypatch.setenv("MELFORGE_VOICES", str(tiny_voice.parent))
    return lambda *words: parse(["--text", "Hello.", *map(str, words)])


def write(folder: Path, text: str, name: str = "my.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("MELFORGE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def sources(cache, tiny_voice):
    """A source of each model, made when it is asked for."""
    made = dict(load_voice(tiny_voice).models)

    def source(model: str) -> ModelSource:
        if model not in made:
            made[model] = make_source(model, cache)
        return made[model]

    return source
