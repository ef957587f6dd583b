"""FastPitch and FastSpeech in two CUDA graphs: what they give without, on the CPU and on a GPU."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from melforge.common.bench.random_weights import random_source
from melforge.common.config.deployment import Deployment
from melforge.common.engines.tensorrt.api import load_tensorrt
from melforge.common.engines.tensorrt.build import build_stage
from melforge.common.engines.tensorrt.engine_file import engine_files, needed_stages
from melforge.common.speech import Controls, MelTooLong
from melforge.common.synthesis import two_graphs
from melforge.common.synthesis.loading import make_driver
from melforge.common.text.style import PLAIN, Style
from melforge.common.weights.voices import load_voice
from melforge.trt_plugins.graphs import collecting
from melforge.trt_plugins.transformer.length_regulator import expanding
from tests.captured import capture_on_cpu
from tests.conftest import quick_for_the_voice

FORMS = {"fastpitch": None, "fastspeech": "dynamic"}  # in buckets FastSpeech has another
KERNELS = ("encoder", "decoder")
TEXTS = ([np.arange(1, 18), np.arange(30, 39)], [np.arange(60, 80), np.arange(5, 17)], [np.arange(1, 10)])
BUCKETS = {
    "trt_multi_engine": True,
    "trt_max_input_seq_len_list": (24, 40),
    "trt_max_output_seq_len_list": (100, 300),
}


@pytest.fixture(params=quick_for_the_voice(FORMS))
def model(request):
    return request.param


def controls_of(model: str, pace: float) -> Controls:
    """With the pitch changed too where it can be."""
    return Controls(pace=pace, **({"pitch_shift": 20.0} if model == "fastpitch" else {}))


def assert_alike(made, wanted, tolerance: float = 0.0) -> None:
    """Two outputs, as far as items go; the tolerance is a part of the largest value."""
    assert made.mel_lengths.tolist() == wanted.mel_lengths.tolist()
    assert np.array_equal(made.durations, wanted.durations)
    assert made.mel.shape == wanted.mel.shape
    pairs = [(a[:, :n], b[:, :n]) for a, b, n in zip(made.mel, wanted.mel, made.mel_lengths, strict=True)]
    if wanted.pitch is not None:
        pairs.append((made.pitch, wanted.pitch))
    for found, value in pairs:
        assert found.shape == value.shape
        scale = max(0.05, float(abs(value).max()))
        assert float(abs(torch.as_tensor(found) - torch.as_tensor(value)).max()) <= tolerance * scale


class TestWithoutGpu:
    """What stands in for a CUDA graph runs the function that would be captured."""

    @pytest.fixture
    def drivers(self, model, tiny_sources, monkeypatch):
        """Makes a driver with two graphs, and one without; the first's graphs are counted."""

        capture_on_cpu(monkeypatch, two_graphs)

        def make(source=tiny_sources[model], **how):
            deployment = Deployment(**how)
            driver, plain = (
                make_driver(source, "torch", "cpu", decoder=FORMS[model], deployment=deployment) for _ in "ab"
            )
            plain.two_graphs = None
            return driver, plain

        return make

    def test_they_make_what_the_engines_make(self, model, drivers):
        driver, plain = drivers()
        for ids in TEXTS:
            controls = controls_of(model, 1.2)
            assert_alike(driver.synthesise(ids, controls), plain.synthesise(ids, controls), 2e-5)
        assert driver.two_graphs.first.keys[0] == driver.two_graphs.first.keys[1]  # texts are filled up

    def test_each_item_has_its_own_controls(self, model, drivers):
        driver, plain = drivers()
        each = [replace(controls_of(model, 0.7), pitch_invert=model == "fastpitch"), controls_of(model, 1.3)]
        made = driver.synthesise(TEXTS[0], each)
        assert_alike(made, plain.synthesise(TEXTS[0], each), 2e-5)
        for row, one in enumerate(each):
            alone = plain.synthesise([TEXTS[0][row]], one)
            assert np.array_equal(made.durations[row, : len(TEXTS[0][row])], alone.durations[0])

    def test_each_symbol_has_its_own_style(self, model, drivers):
        """An item with styles beside one without: as alone, without graphs."""
        driver, plain = drivers()
        first, second = TEXTS[0][:2]
        styles = [PLAIN] * 2 + [Style(rate=0.5, semitones=4.0, range=0.5)] * (len(first) - 2)
        made = driver.synthesise([first, second], Controls(), [tuple(styles), ()])
        assert_alike(made, plain.synthesise([first, second], Controls(), [tuple(styles), ()]), 2e-5)
        for row, (ids, own) in enumerate(((first, tuple(styles)), (second, ()))):
            alone = plain.synthesise([ids], Controls(), [own])
            assert np.array_equal(made.durations[row, : len(ids)], alone.durations[0])
        usual = plain.synthesise([first]).durations[0]
        assert np.array_equal(made.durations[0, :2], usual[:2])
        assert made.durations[0, 2 : len(first)].sum() > 1.5 * usual[2:].sum()

    @pytest.mark.triton
    def test_before_a_decoder_kernels_give_what_it_takes(self, model, drivers):
        """A decoder on PyTorch's kernels takes nothing else."""
        driver, taken = drivers()[0], set()
        encoded = {
            **driver.two_graphs.encode(*driver.pad(TEXTS[0]), **driver.settings_of([Controls()] * 2, 17))
        }
        given = {name: encoded[name] for name in driver.two_graphs._shared}
        with collecting() as launches:
            expanding(taken.update)({**given, "frames": torch.arange(100)})
        assert taken == {tensor.name for tensor in driver.decoder.stage.inputs} and len(launches) == 1

    def test_buckets_are_used_and_counted(self, model, drivers):
        driver, plain = drivers(**BUCKETS)
        for ids in TEXTS:
            assert_alike(driver.synthesise(ids), plain.synthesise(ids), 2e-5)
        found, wanted = (
            [(row["stage"], row["bucket"], row["calls"], row["valid"]) for row in one.engines.report()]
            for one in (driver, plain)
        )
        decoding = [row for row in found if "decoder" in row[0]]
        assert sum(row[2] for row in decoding) == len(TEXTS)
        assert [row[2] for row in found] == [row[2] for row in wanted]

    def test_a_mel_for_a_longer_bucket(self, model, drivers):
        driver, plain = drivers(**BUCKETS)
        controls = controls_of(model, 0.4)
        made = driver.synthesise(TEXTS[0], controls)
        assert 100 < made.mel_lengths.max() <= 300
        assert_alike(made, plain.synthesise(TEXTS[0], controls), 2e-5)
        with pytest.raises(MelTooLong, match="goes up to 300"):
            driver.synthesise(TEXTS[0], Controls(pace=0.1))

    def test_warming_up_captures_what_speech_needs(self, model, drivers):
        driver, _ = drivers(**BUCKETS)
        driver.capture(driver.engines.buckets[0], 2)
        (captured,) = driver.two_graphs._staged
        driver.synthesise(TEXTS[0])
        assert list(driver.two_graphs._staged) == [captured]

    def test_a_network_that_attends_to_padding_gets_none(self, model, drivers, tiny_sources):
        source = tiny_sources[model]
        config = replace(source.config, mask_padding=False)
        source = replace(source, config=config, graphs={}, networks={})
        driver, plain = drivers(source)
        ids = TEXTS[2]
        assert_alike(driver.synthesise(ids), plain.synthesise(ids), 2e-5)
        assert driver.two_graphs.first.keys[0][0] == (1, len(ids[0]))


@pytest.mark.gpu
class TestOnGpu:
    @pytest.fixture
    def drivers(self, model, tiny_sources, tmp_path, monkeypatch):
        """Makes drivers on TensorRT, without graphs and with halves."""
        trt = load_tensorrt()
        monkeypatch.setenv("MELFORGE_CACHE", str(tmp_path))
        source = tiny_sources[model]

        def make(**how):
            deployment = Deployment(batch_size=2, **how)
            stages = needed_stages(source, deployment, FORMS[model])
            for file in engine_files(stages, source, deployment, trt):
                build_stage(file, source, trt, False, 8.0)
            return [
                make_driver(source, "trt", "cuda", decoder=FORMS[model], deployment=one)
                for one in (deployment, replace(deployment, trt_cuda_graph=True))
            ]

        return make

    @pytest.mark.trt
    def test_engines_give_the_bits_of_single_launches(self, model, drivers):
        plain, graphed = drivers(precision="fp16", trt_max_input_seq_len=32, trt_max_output_seq_len=320)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for ids in (*TEXTS, TEXTS[0]):
                for pace in (1.0, 0.5):
                    controls = controls_of(model, pace)
                    assert_alike(graphed.synthesise(ids, controls), plain.synthesise(ids, controls))
        for captured in (graphed.two_graphs.first, graphed.two_graphs.second):
            assert len(captured.graphs) == 2 and all(captured.graphs.values())  # batches of two and one

    @pytest.mark.trt
    def test_buckets_on_other_streams(self, model, drivers):
        plain, graphed = drivers(**BUCKETS)
        for ids in (*TEXTS, TEXTS[0]):
            wanted = plain.synthesise(ids, controls_of(model, 0.75))
            with torch.cuda.stream(torch.cuda.Stream()):
                made = graphed.synthesise(ids, controls_of(model, 0.75))
                torch.cuda.current_stream().synchronize()
            assert_alike(made, wanted)

    def test_kernels_give_the_bits_of_single_launches(self, model, tmp_path):
        """Kernels fill lengths up, also where the network attends to the padding of shorter items."""
        for source in (load_voice().source(model), random_source(model, tmp_path)):
            graphed, plain = (
                make_driver(source, "torch", "cuda", deployment=Deployment(kernels=KERNELS)) for _ in "ab"
            )
            plain.two_graphs = None
            for ids in (*TEXTS, TEXTS[0]):
                controls = controls_of(model, 1.0)
                assert_alike(graphed.synthesise(ids, controls), plain.synthesise(ids, controls))
            for captured in (graphed.two_graphs.first, graphed.two_graphs.second):
                assert captured.graphs and all(captured.graphs.values())

    def test_the_host_waits_for_nothing_but_durations(self, model):
        source = load_voice().source(model)
        driver = make_driver(source, "torch", "cuda", deployment=Deployment(kernels=KERNELS))
        driver.capture(None, 1)
        text = 96
        settings = driver.settings_of([Controls()], text)
        for mode in ("default", "default", "error"):  # the second time it captures
            torch.cuda.set_sync_debug_mode(mode)
            try:
                made = driver.two_graphs.encode(np.ones((1, text), np.int64), np.array([text]), **settings)
                decoded = driver.two_graphs.decode(made, np.array([600]))
            finally:
                torch.cuda.set_sync_debug_mode("default")
            assert decoded["mel"].shape[2] == 640
