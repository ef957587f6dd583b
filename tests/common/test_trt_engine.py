"""TensorRT's engines on a GPU: PyTorch's numbers, on the caller's stream, several at a time."""

import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from melforge.common.arrays import to_device, to_numpy
from melforge.common.config.deployment import Deployment
from melforge.common.engines.backends import make_engine
from melforge.common.engines.cuda_graphs import capture, put_in_order
from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.common.engines.tensorrt.build import build_stage
from melforge.common.engines.tensorrt.context import LoadedPlan
from melforge.common.engines.tensorrt.engine import MOST_CONTEXTS
from melforge.common.engines.tensorrt.engine_file import engine_file
from melforge.common.engines.tensorrt.steps import ItemByItem
from melforge.common.export.to_onnx import example_inputs, source_stages
from melforge.common.speech import Controls
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.voices import load_voice

pytestmark = [pytest.mark.gpu, pytest.mark.trt]
TOLERANCE = 3e-2  # of the largest value: products in TF32


def build(source, folder, stages=None, **how) -> Deployment:
    """Engines of a source's stages, and the deployment that finds them."""
    deployment = Deployment(trt_file_path=str(folder / f"{source.model}.trt"), batch_size=2, **how)
    trt = load_tensorrt()
    for stage in source_stages(source):
        if stages is None or stage.name in stages:
            build_stage(engine_file(stage, source, deployment, trt), source, trt, False, 8.0)
    return deployment


def stage_and_inputs(source, name, mel=40, seed=0, text=20):
    stage = next(stage for stage in source_stages(source) if stage.name == name)
    sizes = {
        dim.name: {"batch": 1, "text": text}.get(dim.name, mel * dim.times if dim.of else mel)
        for dim in stage.dynamic_dims.values()
    }
    inputs = example_inputs(stage, source.config, sizes, seed)
    return stage, {name: to_device(value, "cuda") for name, value in inputs.items()}


def near(got, wanted) -> bool:
    scale = max(0.05, float(wanted.abs().max()))
    return got.shape == wanted.shape and float((got - wanted).abs().max()) <= TOLERANCE * scale


@pytest.mark.parametrize(("model", "name"), [("fastpitch", "encoder"), ("hifigan", "generator")])
def test_the_numbers_are_pytorchs_on_the_stream_of_the_caller(tiny_sources, tmp_path, model, name):
    source = tiny_sources[model]
    deployment = build(source, tmp_path, [name])
    stage, inputs = stage_and_inputs(source, name)
    wanted = make_engine(stage, source, "torch", "cuda")(**inputs)
    engine = make_engine(stage, source, "trt", "cuda", None, deployment)
    with torch.cuda.stream(torch.cuda.Stream()):
        late = {key: value.clone() for key, value in inputs.items()}
        got = engine(**late)  # nothing waits between
        later = {key: value * 1 for key, value in got.items()}
    torch.cuda.synchronize()
    for key, value in later.items():
        assert value.is_cuda and near(value, wanted[key])


def test_engines_of_one_file_share_weights_and_run_at_a_time(tiny_sources, tmp_path):
    source = tiny_sources["hifigan"]
    deployment = build(source, tmp_path, ["generator"])
    stage, inputs = stage_and_inputs(source, "generator")
    _, others = stage_and_inputs(source, "generator", seed=1)
    engines = [make_engine(stage, source, "trt", "cuda", None, deployment) for _ in range(2)]
    assert engines[0].loaded is engines[1].loaded
    alone = [engines[0](**given)["audio"].clone() for given in (inputs, others)]
    engines[1](**inputs)
    assert engines[0]._first[True] is not engines[1]._first[True]
    found: list[list[torch.Tensor]] = [[], []]

    def work(i: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                found[i].append(engines[i](**(inputs, others)[i])["audio"].clone())
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        assert len(found[i]) == 20
        assert all(torch.equal(audio, alone[i]) for audio in found[i])


def test_a_cuda_graph_gives_the_bits_of_a_plain_run(tiny_sources, tmp_path):
    source = tiny_sources["hifigan"]
    deployment = build(source, tmp_path, ["generator"])
    stage, inputs = stage_and_inputs(source, "generator")
    _, others = stage_and_inputs(source, "generator", seed=1)
    plain = make_engine(stage, source, "trt", "cuda", None, deployment)
    graphed = make_engine(stage, source, "trt", "cuda", None, replace(deployment, trt_cuda_graph=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (inputs, others, inputs):
            assert torch.equal(graphed(**given)["audio"], plain(**given)["audio"])
    assert all(graphed._graphs.values())


def test_no_kernel_of_a_captured_graph_begins_early(tiny_sources, tmp_path):
    source = tiny_sources["hifigan"]
    deployment = build(source, tmp_path, ["generator"])
    stage, inputs = stage_and_inputs(source, "generator")
    run = make_engine(stage, source, "trt", "cuda", None, deployment).capturable()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        wanted = run(inputs)["audio"].clone()
        stream.synchronize()
        graph, outputs = capture(lambda: run(inputs), stream, error_mode="global", keep=True)
        early = put_in_order(graph.raw_cuda_graph())
        assert early > 0 or not load_tensorrt().portable  # the full TensorRT launches kernels its own way
        assert put_in_order(graph.raw_cuda_graph()) == 0
        graph.instantiate()
        outputs["audio"].zero_()
        graph.replay()
        assert torch.equal(outputs["audio"], wanted)


@pytest.mark.parametrize("name", ["generator", "masked_generator"])
def test_the_kernels_of_waveglow_run_in_order(tmp_path, name):
    """In float32 they began before what they need was there: each run gave other samples, at 2 to 30 dB."""
    source = load_voice().source("waveglow")
    deployment = build(source, tmp_path, [name])
    stage, inputs = stage_and_inputs(source, name, mel=256)
    _, others = stage_and_inputs(source, name, mel=300, seed=1)
    wanted = make_engine(stage, source, "torch", "cuda")(**inputs)["audio"]
    engine = make_engine(stage, source, "trt", "cuda", None, deployment)
    runs = [engine(**given)["audio"].clone() for _ in range(25) for given in (inputs, others)][::2]
    assert near(runs[0], wanted)
    assert all(torch.equal(run, runs[0]) for run in runs)
    graphed = make_engine(stage, source, "trt", "cuda", None, replace(deployment, trt_cuda_graph=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(graphed(**inputs)["audio"], runs[0])


def test_steps_in_one_cuda_graph_are_those_of_single_calls(tiny_sources, tmp_path):
    """A decoder's steps, eight at a time, free-running: mel and lengths of PyTorch's step by step."""
    source = tiny_sources["tacotron2"]
    deployment = build(source, tmp_path, ["encoder", "decoder_iter", "postnet"])
    ids = [np.arange(1, 18), np.arange(3, 12)]
    controls = Controls(step_limit=37, gate_threshold=1.0)
    wanted = make_driver(source, "torch", "cuda", decoder="steps").synthesise(ids, controls)
    driver = make_driver(source, "trt", "cuda", deployment=deployment)
    for _ in range(2):  # captured, then launched again
        got = driver.synthesise(ids, controls)
        assert np.array_equal(got.mel_lengths, wanted.mel_lengths)
        assert near(got.mel, wanted.mel)
        assert np.abs(got.alignment - wanted.alignment).max() < TOLERANCE


def test_a_batch_whose_steps_give_other_numbers_runs_item_by_item(tiny_sources, tmp_path, monkeypatch):
    """TensorRT for RTX goes wrong where code compiled for a batch of one runs larger ones."""
    source = tiny_sources["tacotron2"]
    deployment = build(source, tmp_path, ["encoder", "decoder_iter", "postnet"])
    controls = Controls(step_limit=37, gate_threshold=1.0)
    driver = make_driver(source, "trt", "cuda", deployment=deployment)
    monkeypatch.setattr(LoadedPlan, "has_ones", lambda self, inputs: False)
    driver.synthesise([np.arange(1, 18)], controls)  # compiled for a batch of one
    ids = [np.arange(1, 18), np.arange(3, 12)]
    wanted = make_driver(source, "torch", "cuda", decoder="steps").synthesise(ids, controls)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = driver.synthesise(ids, controls)
    assert np.array_equal(got.mel_lengths, wanted.mel_lengths) and near(got.mel, wanted.mel)
    (engine,) = (driver.engines[name] for name in ("decoder_iter",))
    alone = any(isinstance(steps, ItemByItem) for steps in engine._repeated.values())
    assert alone == any("run one by one" in str(one.message) for one in seen)


def test_the_loop_inside_an_engine_makes_the_frames_of_the_steps(tiny_sources, tmp_path):
    source = tiny_sources["tacotron2"]
    deployment = build(source, tmp_path, ["encoder", "decoder_loop", "postnet"])
    ids = [np.arange(1, 18), np.arange(3, 12)]
    controls = Controls(step_limit=21, gate_threshold=1.0)
    wanted = make_driver(source, "torch", "cuda", decoder="steps").synthesise(ids, controls)
    got = make_driver(source, "trt", "cuda", decoder="loop", deployment=deployment).synthesise(ids, controls)
    assert np.array_equal(got.mel_lengths, wanted.mel_lengths)
    assert near(got.mel, wanted.mel)


def test_lengths_that_alternate_get_contexts_of_their_own(tiny_sources, tmp_path):
    """Each gives the same as alone; a few stay."""
    source = tiny_sources["fastpitch"]
    deployment = build(source, tmp_path, ["encoder"])
    stage, _ = stage_and_inputs(source, "encoder")
    engine = make_engine(stage, source, "trt", "cuda", None, deployment)
    lengths = list(range(20, 20 + MOST_CONTEXTS + 3))
    given = {text: stage_and_inputs(source, "encoder", text=text)[1] for text in lengths}
    alone = {text: engine(**inputs)["encoded"].clone() for text, inputs in given.items()}
    assert not engine._contexts  # each came once
    for text in (*lengths, *reversed(lengths)):
        assert torch.equal(engine(**given[text])["encoded"], alone[text])
    assert len(engine._contexts) == MOST_CONTEXTS


@pytest.mark.rtx
def test_what_was_compiled_is_kept_beside_the_engine(tiny_sources, tmp_path):
    source = tiny_sources["hifigan"]
    deployment = build(source, tmp_path, ["generator"])
    stage, inputs = stage_and_inputs(source, "generator")
    make_engine(stage, source, "trt", "cuda", None, deployment)(**inputs)
    (cache,) = tmp_path.glob("*.cache")
    assert torch.cuda.get_device_name().replace(" ", "-") in cache.name
    again = replace(source, networks={})
    cache.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="is damaged: compiling anew"):
        make_engine(stage, again, "trt", "cuda", None, deployment)(**inputs)
    assert cache.stat().st_size > 1000


def test_too_little_memory_is_said_in_a_sentence(tiny_sources, tmp_path):
    source = tiny_sources["hifigan"]
    deployment = build(source, tmp_path, ["generator"])
    stage, inputs = stage_and_inputs(source, "generator", mel=1000)
    engine = make_engine(stage, source, "trt", "cuda", None, deployment)
    torch.cuda.set_per_process_memory_fraction(1e-6)  # of PyTorch's pool, where outputs come from
    try:
        torch.cuda.empty_cache()
        with pytest.raises(ValueError, match=r"the GPU's memory does not hold.*MB are free"):
            engine(**inputs)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_shape_beyond_the_profile_is_refused(tiny_sources, tmp_path):
    source = tiny_sources["hifigan"]
    deployment = build(source, tmp_path, ["generator"])
    stage, inputs = stage_and_inputs(source, "generator")
    engine = make_engine(stage, source, "trt", "cuda", None, deployment)
    with pytest.raises(ValueError, match="'mel' has batch = 3, outside 1 to 2"):
        engine(mel=inputs["mel"].expand(3, -1, -1).contiguous())


def test_the_voice_warms_up_and_speaks(tmp_path):
    from melforge.common.runner import TextToSpeech

    voice = load_voice()
    how = {}
    for model in ("fastpitch", "hifigan"):
        how[model] = build(voice.source(model), tmp_path, precision="fp16")
    tts = TextToSpeech.load("fastpitch", "hifigan", backend="trt", deployments=how)
    warmed = list(tts.warm_up(1))
    assert warmed and all(one.first > 0 for one in warmed)
    wanted = TextToSpeech.load("fastpitch", "hifigan", backend="torch", device="cuda").speak("It just works.")
    got = tts.speak("It just works.")
    assert len(got.samples) == len(wanted.samples)
    assert np.abs(to_numpy(got.mel) - to_numpy(wanted.mel)).mean() < 0.1
