"""verify finds small damages of every model, names the damaged layer, and finds none where there is none."""

import json
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.export.to_onnx import source_stages
from melforge.common.stages.choose import choose_stages
from melforge.common.verify.stages import ComparedEngine, Setup, exact_products
from melforge.common.weights.graph_notes import read_graph_note
from tests.common import damage
from tests.common.damage import DAMAGES, HalfSetup, compare_stages, first_wrong, setup_of, with_weight

MODELS = ("fastpitch", "fastspeech", "tacotron2", "hifigan", "waveglow")
PRECISIONS = {"fp32": Setup, "fp16": HalfSetup}
# A damage that changes its layer by less than this, relative, may pass.
SMALL = {"fp32": 2e-5, "fp16": 4e-3}


def stages_of(source, precision: str = "fp32"):
    """The stages that are compared layer by layer, and the loops whose bodies are compared as a stage."""
    known = {stage.name: stage for stage in source_stages(source)}
    stages = [stage for stage in choose_stages(source, None) if "denoiser" not in stage.name]
    if source.model != "tacotron2":
        return stages, {}
    steps = [known["encoder"], known["decoder_iter"], known["postnet"]]
    return steps, {"decoder_iter": known["decoder_loop"]} if precision == "fp32" else {}


def compare(source, other, precision: str, stages, loops, seed: int = 0, calls: int = 1, kind=ComparedEngine):
    setup = setup_of(other, PRECISIONS[precision])
    setup.loops = loops
    return compare_stages(source, setup, stages, seed, calls, kind)


def compared_again(source, stage):
    """Compares a stage with many others on the same inputs: what PyTorch gives by itself is made once."""
    known, network = {}, TorchEngine(stage, source).network

    class Again(ComparedEngine):
        def _run(self, stage, inputs, given=None, rounds=False):
            assert self.reference.network is network
            if given and not rounds:
                return super()._run(stage, inputs, given)
            if (stage, rounds) not in known:
                known[stage, rounds] = super()._run(stage, inputs, given, rounds)
            return known[stage, rounds]

    return Again


def weights_of(source, stage, loops):
    graph = source.graphs[loops[stage.name].name if stage.name in loops else stage.name]
    return read_graph_note(graph)["weights"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", MODELS)
def test_damages_are_found_where_they_are(sources, model, precision):
    source = damage.jittered(sources(model), 0)
    stages, loops = stages_of(source, precision)
    small, found = [], 0
    for stage in stages:
        layered, again = damage.layered(source, stage), compared_again(source, stage)
        for weight in weights_of(source, stage, loops):
            for kind, make in DAMAGES.items():
                values = make(source.state[weight])
                if np.array_equal(values, source.state[weight]):
                    continue
                damaged = with_weight(source, weight, values)
                wrong = first_wrong(compare(source, damaged, precision, [stage], loops, kind=again))
                layer = damage.layer_of(layered.layers, weight)
                if wrong and layer in ("", wrong.name):
                    found += 1
                    continue
                change = damage.change(source, damaged, layered, layer)
                assert change < SMALL[precision], (weight, kind, change, wrong)
                small.append((weight, kind))
    print(f"{model} in {precision}: {found} found, too small: {small}")
    assert found > 5 * len(small)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "factor"), [("fp32", 100), ("fp16", 1e4)])
@pytest.mark.parametrize("model", ["fastpitch", "fastspeech", "tacotron2"])
def test_a_wrong_epsilon_is_found_where_it_is(sources, model, precision, factor, tmp_path):
    source = damage.jittered(sources(model), 0)
    stages, loops = stages_of(source, precision)
    norms = 0
    for norm, stage, damaged in damage.with_epsilon(source, stages, tmp_path, factor):
        wrong = first_wrong(compare(source, damaged, precision, [stage], loops))
        assert wrong and (wrong.name, wrong.layer) == (norm, True)
        norms += 1
    assert norms >= 3


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_found_where_nothing_is_wrong(sources, model, precision):
    plain = sources(model)
    stages, loops = stages_of(plain, precision)
    for seed in range(10):
        source = damage.jittered(plain, seed)
        # The decoder's gate is one number, whose rounding is by chance very small in a single call.
        found = compare(source, source, precision, stages, loops, seed, calls=8)
        assert first_wrong(found) is None, first_wrong(found)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["linear_projection", "gate_layer"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_loop_with_one_wrong_element_is_found(sources, layer, inside, tmp_path):
    """In the weights, or in the graph that speaks only."""
    source = sources("tacotron2")
    name = f"decoder.{layer}.linear_layer.weight"
    values = source.state[name].copy()
    values.flat[np.abs(values).argmax()] *= 1.02
    damaged = with_weight(source, name, values)
    if inside:
        model = onnx.load(source.graphs["decoder_loop"], load_external_data=False)
        tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
        tensor.CopyFrom(numpy_helper.from_array(values, name))
        path = tmp_path / "decoder_loop.onnx"
        path.write_bytes(model.SerializeToString())
        weights = [w for w in read_graph_note(source.graphs["decoder_loop"])["weights"] if w != name]
        path.with_suffix(".json").write_text(json.dumps({"weights": weights}))
        damaged = replace(source, graphs={**source.graphs, "decoder_loop": path})
    stages, loops = stages_of(source)
    wrong = first_wrong(compare(source, damaged, "fp32", stages, loops))
    assert wrong and (wrong.name, wrong.layer) == (f"decoder.{layer}.linear_layer", True)


@pytest.fixture
def float32_products():
    with exact_products():
        yield


@pytest.mark.gpu
@pytest.mark.trt
@pytest.mark.parametrize(
    ("model", "precision"),
    [*((model, "fp16") for model in MODELS), ("fastpitch", "fp32"), ("hifigan", "fp32")],
)
def test_tensorrt_and_pytorch_with_a_damage_differ_where_it_is(sources, float32_products, model, precision):
    """The damage is PyTorch's, since an engine takes seconds to build."""
    source = damage.jittered(sources(model), 0)
    stages, _ = stages_of(source, "fp16")
    setup = setup_of(source, backend="trt", half=precision == "fp16")
    setup.calls = sys.maxsize  # one engine for all damages
    for stage in stages:
        engine = ComparedEngine(stage, source, setup, None)
        inputs = damage.inputs_of(source, stage, 0, "cuda")
        engine(**inputs)
        wrong = first_wrong(list(setup.comparisons.values()))
        assert wrong is None, wrong
        layered = damage.layered(source, stage)
        matrices = [w for w in weights_of(source, stage, {}) if source.state[w].ndim > 1]
        for weight in matrices[:: max(1, len(matrices) // 6)]:
            layer = damage.layer_of(layered.layers, weight)
            for kind, make in DAMAGES.items():
                damaged = with_weight(source, weight, make(source.state[weight]))
                if damage.change(source, damaged, layered, layer) < 3 * SMALL["fp16"]:
                    continue
                engine.reference = TorchEngine(stage, damaged, "cuda")
                setup.comparisons.clear()
                engine(**inputs)
                wrong = first_wrong(list(setup.comparisons.values()))
                # A weight of no listed layer shows in the one after it.
                assert wrong and layer in ("", wrong.name), (weight, kind, wrong)
        setup.comparisons.clear()


@pytest.mark.gpu
@pytest.mark.trt
@pytest.mark.parametrize("model", MODELS)
def test_a_damaged_engine_is_found(sources, float32_products, model):
    source = damage.jittered(sources(model), 0)
    stage = stages_of(source, "fp16")[0][0]
    weights = [w for w in weights_of(source, stage, {}) if source.state[w].ndim > 1]
    weight = weights[len(weights) // 2]
    damaged = with_weight(source, weight, source.state[weight] * np.float32(1.02))
    setup = setup_of(damaged, backend="trt", half=True)
    wrong = first_wrong(compare_stages(source, setup, [stage], 0, 1))
    assert wrong and wrong.name == damage.layer_of(damage.layered(source, stage).layers, weight)
