"""On a GPU: encoder engine, kernels and mel engine in one CUDA graph give the bits of single launches."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from melforge.common.arrays import to_device
from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines.cuda_graphs import WARM_UPS
from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.common.engines.tensorrt.build import build_stage
from melforge.common.engines.tensorrt.engine_file import engine_files, needed_stages
from melforge.common.export import to_onnx
from melforge.common.export.to_onnx import export_source, source_stages
from melforge.common.speech import Controls, MelTooLong
from melforge.common.synthesis.loading import make_driver
from melforge.common.synthesis.warm_up import sizes_of
from melforge.common.weights.published import read_checkpoint
from melforge.fastspeech import regulate
from melforge.fastspeech.operations import Operations
from tests.conftest import save_trained, tiny_fastspeech

pytestmark = pytest.mark.gpu
TOLERANCE = 3e-2  # of the largest value: products in TF32
TEXTS = ([np.arange(1, 18), np.arange(30, 39)], [np.arange(60, 80), np.arange(5, 17)])
ONE_BUCKET = {"trt_max_input_seq_len": 32, "trt_max_output_seq_len": 160}
BUCKETS = {
    "trt_multi_engine": True,
    "trt_max_input_seq_len_list": (8, 16),
    "trt_max_output_seq_len_list": (30, 80),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tiny network with the graphs of all its stages."""
    folder = tmp_path_factory.mktemp("fastspeech")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(to_onnx, "check_sizes", lambda stage: [])
        stored = read_checkpoint(save_trained(folder / "fastspeech.safetensors", *tiny_fastspeech()))
        yield export_source(stored, folder / "graphs")[0]


@pytest.fixture
def drivers(source, tmp_path, monkeypatch):
    """Makes a driver of the form "kernels" on TensorRT, its engines built, without a graph and with one."""
    trt = load_tensorrt()
    monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))

    def make(**how):
        deployment = Deployment(batch_size=2, **how)
        stages = needed_stages(source, deployment, "kernels")
        assert [stage.name for stage in stages] == ["encoder", "mel_side"]
        for file in engine_files(stages, source, deployment, trt):
            build_stage(file, source, trt, False, 8.0)
        return [
            make_driver(source, "trt", "cuda", decoder="kernels", deployment=one)
            for one in (deployment, replace(deployment, trt_cuda_graph=True))
        ]

    return make


def near(got, wanted) -> bool:
    scale = max(0.05, float(wanted.abs().max()))
    return got.shape == wanted.shape and float((got - wanted).abs().max()) <= TOLERANCE * scale


def inside(output):
    """The frames of a batch's items that are valid."""
    return [mel[:, :frames] for mel, frames in zip(output.mel, output.mel_lengths, strict=True)]


@pytest.fixture
def launched(monkeypatch):
    """Counts what is asked of the kernels; a graph that is launched again asks nothing."""
    counts, kernels = {"repeat": 0, "add_pos_enc": 0}, regulate.kernels()

    def counting(name):
        def run(*tensors):
            counts[name] += 1
            return getattr(kernels, name)(*tensors)

        return run

    monkeypatch.setattr(regulate, "kernels", lambda: Operations(counting("repeat"), counting("add_pos_enc")))
    return counts


def test_kernels_between_networks_of_pytorch(source, launched):
    for ids in TEXTS:
        made, wanted = (
            make_driver(source, "torch", "cuda", decoder=form).synthesise(ids, Controls(pace=1.2))
            for form in ("kernels", "dynamic")
        )
        assert made.mel.is_cuda and made.mel_lengths.tolist() == wanted.mel_lengths.tolist()
        assert all(near(a, b) for a, b in zip(inside(made), inside(wanted), strict=True))
    assert launched == {"repeat": 2, "add_pos_enc": 2}


@pytest.mark.trt
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_one_graph_gives_the_bits_of_single_launches(source, drivers, launched, half):
    plain, graphed = drivers(use_fp16=half, **ONE_BUCKET)
    reference = make_driver(source, "torch", "cuda", decoder="dynamic")
    each = WARM_UPS + 1  # calls for one graph
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ids in (*TEXTS, TEXTS[0]):
            made = graphed.synthesise(ids)
            assert launched == {"repeat": each, "add_pos_enc": each}
            wanted = plain.synthesise(ids)
            launched.update(repeat=each, add_pos_enc=each)
            assert np.array_equal(made.durations, wanted.durations)
            assert made.mel_lengths.tolist() == wanted.mel_lengths.tolist()
            assert all(torch.equal(a, b) for a, b in zip(inside(made), inside(wanted), strict=True))
            torchs = reference.synthesise(ids)
            if torchs.mel_lengths.tolist() == made.mel_lengths.tolist():  # no duration lay near a half
                assert all(near(a, b) for a, b in zip(inside(made), inside(torchs), strict=True))
    assert len(graphed.one_graph.graphs) == 1 and all(graphed.one_graph.graphs.values())


@pytest.mark.trt
def test_one_graph_on_other_streams_and_batches(drivers):
    plain, graphed = drivers(**ONE_BUCKET)
    for _ in range(2):
        for ids in (TEXTS[0], TEXTS[1][:1]):
            wanted = inside(plain.synthesise(ids))
            with torch.cuda.stream(torch.cuda.Stream()):
                made = graphed.synthesise(ids)
                torch.cuda.current_stream().synchronize()
            assert all(torch.equal(a, b) for a, b in zip(inside(made), wanted, strict=True))
    assert len(graphed.one_graph.graphs) == 2 and all(graphed.one_graph.graphs.values())


@pytest.mark.trt
def test_the_host_waits_for_nothing_while_it_launches(drivers):
    _, graphed = drivers(**ONE_BUCKET)
    graphed.synthesise(TEXTS[0])
    arrays = *graphed.pad(TEXTS[0]), np.ones(len(TEXTS[0]), np.float32)
    symbols, lengths, alpha = (to_device(array, "cuda") for array in arrays)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = graphed._launch(symbols, lengths, alpha, Bucket(32, 160))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert out["mel"].shape[2] == 160


@pytest.mark.trt
def test_without_buckets_lengths_are_rounded_up(drivers):
    plain, graphed = drivers()
    for ids in (*TEXTS, TEXTS[0]):
        made, wanted = graphed.synthesise(ids), plain.synthesise(ids)
        assert made.mel_lengths.tolist() == wanted.mel_lengths.tolist()
        assert all(near(a, b) for a, b in zip(inside(made), inside(wanted), strict=True))
    (graph,) = graphed.one_graph.graphs.values()
    assert graph


@pytest.mark.trt
def test_a_mel_that_does_not_fit_takes_a_longer_graph(drivers):
    plain, graphed = drivers(**BUCKETS)
    ids = [np.arange(1, 9)]
    for pace in (1.0, 0.5, 1.0):
        made, wanted = (one.synthesise(ids, Controls(pace=pace)) for one in (graphed, plain))
        assert made.mel_lengths.tolist() == wanted.mel_lengths.tolist()
        assert all(near(a, b) for a, b in zip(inside(made), inside(wanted), strict=True))
    assert made.mel_lengths[0] <= 30
    graphs = graphed.one_graph.graphs
    assert sorted(dict(key)["frames"] for key in graphs) == [(30,), (80,)] and all(graphs.values())
    assert [use.misses for use in graphed.decoder.uses.values()] == [1, 0]
    with pytest.raises(MelTooLong, match="goes up to 80"):
        graphed.synthesise(ids, Controls(pace=0.1))


@pytest.mark.trt
def test_warming_up_captures_every_bucket(drivers):
    _, graphed = drivers(**BUCKETS)
    for bucket in graphed.engines.buckets:
        for batch in (1, 2):
            graphed.capture(bucket, batch)
    assert len(graphed.one_graph.graphs) == 4 and all(graphed.one_graph.graphs.values())


@pytest.mark.trt
def test_an_engines_own_graph_stays_its_own(source, drivers):
    """Of an engine that is captured with others, and by itself: the same bits before and after."""
    plain, graphed = drivers(**ONE_BUCKET)
    bucket = Bucket(32, 160)
    engines = [one.decoder._engine(bucket) for one in (plain, graphed)]
    stage = next(stage for stage in source_stages(source) if stage.name == "mel_side")
    inputs = to_onnx.example_inputs(stage, source.config, sizes_of(stage, bucket, 2), seed=1)
    inputs = {name: torch.as_tensor(value, device="cuda") for name, value in inputs.items()}
    wanted = engines[0](**inputs)["mel"]
    for _ in range(2):
        assert torch.equal(engines[1](**inputs)["mel"], wanted)
        graphed.synthesise(TEXTS[0])
    assert all(engines[1]._graphs.values()) and all(graphed.one_graph.graphs.values())
