"""Engines of every backend give the same numbers and refuse inputs that do not fit the declaration."""

import dataclasses
import json
import os
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.engines import onnx_engine
from melforge.common.engines.backends import make_engine
from melforge.common.engines.onnx_engine import run_bound
from melforge.common.engines.torch_engine import build_network
from melforge.common.export.to_onnx import example_inputs, source_stages
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.voices import load_voice

MODELS = ("fastpitch", "hifigan")


@pytest.fixture(scope="module")
def sources(tiny_voice):
    return load_voice(tiny_voice).models


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch, length", [(1, 1), (1, 37), (3, 23)])
def test_torch_and_onnx_agree(sources, model, batch, length):
    source = sources[model]
    for stage in source_stages(source):
        sizes = {name: max(length, dim.min) for name, dim in stage.dynamic_dims.items()} | {"batch": batch}
        inputs = example_inputs(stage, source.config, sizes, seed=length)
        ours = make_engine(stage, source, "onnx")(**inputs)
        reference = make_engine(stage, source, "torch")(**inputs)
        assert list(ours) == [tensor.name for tensor in stage.outputs]
        for name, value in reference.items():
            assert ours[name].dtype == value.dtype
            np.testing.assert_allclose(ours[name], value, atol=1e-4)


def test_bound_tensors_give_what_arrays_give(sources):
    """The path of GPU tensors, on the CPU's memory."""
    source = sources["fastpitch"]
    stage = source_stages(source)[0]
    engine = make_engine(stage, source, "onnx")
    inputs = example_inputs(stage, source.config, {"batch": 2, "text": 9}, seed=0)
    tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
    bound = run_bound(engine.session, list(engine(**inputs)), tensors)
    for value, tensor in zip(engine(**inputs).values(), bound, strict=True):
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_array_equal(tensor.numpy(), value)


def test_no_weights_are_drawn_where_there_are_stored_ones(sources):
    before = torch.get_rng_state()
    for model in MODELS:
        build_network(source_stages(sources[model])[0], sources[model])
    assert torch.equal(torch.get_rng_state(), before)


def test_torch_stages_of_one_source_share_a_network(sources):
    first, second = (
        make_engine(s, sources["fastpitch"], "torch") for s in source_stages(sources["fastpitch"])
    )
    assert first.network is second.network


@pytest.mark.parametrize(
    "change, message",
    [
        ({"lengths": None}, "input 'lengths' is missing"),
        ({"length": np.array([3])}, "unknown input 'length': did you mean 'lengths'?"),
        ({"symbols": np.zeros((2, 3), np.int32)}, "'symbols' is int32, declared int64"),
        ({"symbols": np.zeros(3, np.int64)}, r"has shape \(3,\), declared \[batch, text\]"),
        ({"lengths": np.array([3])}, "'lengths' has batch = 1, but 'symbols' has batch = 2"),
        ({"symbols": np.zeros((2, 10_000), np.int64)}, "has text = 10000, outside 1 to"),
        ({"symbols": np.zeros((2, 0), np.int64)}, "has text = 0, outside 1 to"),
    ],
)
@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_inputs_that_do_not_fit_are_refused(sources, backend, change, message):
    source = sources["fastpitch"]
    engine = make_engine(source_stages(source)[0], source, backend)
    inputs = {"symbols": np.ones((2, 3), np.int64), "lengths": np.array([3, 3])} | change
    with pytest.raises(ValueError, match=message):
        engine(**{name: value for name, value in inputs.items() if value is not None})


def test_fixed_sizes_are_checked(sources):
    source = sources["hifigan"]
    engine = make_engine(source_stages(source)[0], source)
    with pytest.raises(ValueError, match=r"shape \(1, 40, 9\), declared \[batch, 80, mel\]"):
        engine(mel=np.zeros((1, 40, 9), np.float32))


def test_unknown_backend_suggests_the_nearest(sources):
    with pytest.raises(ValueError, match=r"unknown backend 'onx': did you mean 'onnx'\?"):
        make_engine(source_stages(sources["hifigan"])[0], sources["hifigan"], "onx")


@pytest.mark.no_gpu
@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_a_gpu_that_is_not_there_is_named(sources, backend):
    with pytest.raises(ValueError, match="device 'cuda'"):
        make_engine(source_stages(sources["hifigan"])[0], sources["hifigan"], backend, "cuda")


@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_weights_of_other_sizes_are_refused(sources, backend):
    source = sources["hifigan"]
    name = "conv_pre.weight"
    other = dataclasses.replace(
        source, given_state={**source.state, name: np.zeros((16, 80, 7), np.float32)}, networks={}
    )
    with pytest.raises(ValueError, match=r"weights\.safetensors|generator\.onnx"):
        make_engine(source_stages(source)[0], other, backend)


@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_missing_weights_are_named(sources, backend):
    source = sources["hifigan"]
    state = {name: value for name, value in source.state.items() if name != "conv_post.bias"}
    other = dataclasses.replace(source, given_state=state, networks={})
    with pytest.raises(ValueError, match=r"conv_post\.bias"):
        make_engine(source_stages(source)[0], other, backend)


def test_a_method_that_returns_no_tuple_is_named(sources):
    source = sources["hifigan"]
    stage = dataclasses.replace(source_stages(source)[0], method="body")  # which gives a tensor
    inputs = example_inputs(stage, source.config, {"batch": 1, "mel": 4}, seed=0)
    with pytest.raises(TypeError, match=r"hifigan\.generator: .*\.body must return a tuple of audio"):
        make_engine(stage, source, "torch")(**inputs)


def test_a_small_decoders_steps_run_on_one_thread():
    source = load_voice().source("tacotron2")
    stages = {stage.name: stage for stage in source_stages(source)}

    def threads_of(name: str, asked: int | None) -> int:
        session = make_engine(stages[name], source, "onnx", threads=asked).session
        return session.get_session_options().intra_op_num_threads

    assert threads_of("decoder_loop", None) == 1
    assert threads_of("decoder_loop", 2) == 2
    assert threads_of("postnet", None) == os.cpu_count()


def test_nodes_run_where_the_graph_has_them(tmp_path, monkeypatch):
    """Else the outputs of all that needs the mel alone wait for the rest: 80 MB in WaveGlow."""
    make_options = onnx_engine.session_options

    def profiled(threads):
        options = make_options(threads)
        options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "run")
        return options

    monkeypatch.setattr(onnx_engine, "session_options", profiled)
    vocoder = make_driver(load_voice("hazel").models["waveglow"], "onnx", "cpu", 1)
    vocoder.vocode(np.zeros((1, 80, 30), np.float32), np.array([30]))
    events = json.loads(Path(vocoder.generator.session.end_profiling()).read_text())
    run = [event["args"]["op_name"] for event in events if event["name"].endswith("_kernel_time")]
    assert run.count("Conv") > 100
    assert max(len(list(same)) for kind, same in groupby(run) if kind == "Conv") < 10
