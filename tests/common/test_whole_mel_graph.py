"""Vocoders on kernels: all stages of whole mels as one CUDA graph, on a CPU and on a GPU."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from melforge.common.config.deployment import Bucket, Deployment
from melforge.common.engines import limits
from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.speech import Controls
from melforge.common.stages.choose import kernel_stages
from melforge.common.synthesis import one_graph
from melforge.common.synthesis.loading import make_driver
from melforge.common.synthesis.stage_engines import StageEngines
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import load_voice
from melforge.waveglow.source import SourcedWaveglow
from tests.conftest import save_trained, tiny_source_filter, tiny_waveglow

CONTROLS = [Controls(seed=seed) for seed in (3, 0, 7)]


def tiny_sourced_waveglow():
    config = replace(tiny_waveglow()[1], source=True, pitch_channels=16, pitch_bins=32)
    network = SourcedWaveglow(config, weight_norm=False).eval()
    for net in network.WN:
        torch.nn.init.normal_(net.end.weight, std=0.05)
    return network, config


def mels_of(*frames: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((80, count), np.float32) * 2 - 5 for count in frames]


class TestWithoutGpu:
    """What stands in for a CUDA graph runs the function that would be captured."""

    @pytest.fixture(params=[tiny_source_filter, tiny_sourced_waveglow, tiny_waveglow])
    def drivers(self, tmp_path, monkeypatch, request):
        """A driver with a graph, which is counted, and one without."""

        class Launched:
            def __init__(self, name, make, stream, directly=False):
                self.make, self.frames = make, []

            def __call__(self, inputs, own=False):
                self.frames.append(inputs["mel"].shape[2])
                return self.make(inputs)(inputs) if self.frames[-1] < 300 else None

            def in_use(self) -> None:
                pass

        def capturable(engine, bucket=None):
            return lambda inputs: engine(**inputs)

        monkeypatch.setattr(one_graph, "Captured", Launched)
        monkeypatch.setattr(one_graph, "new_stream", lambda device: None)
        monkeypatch.setattr(TorchEngine, "prefers_batches", True)
        monkeypatch.setattr(TorchEngine, "can_be_captured", True)
        monkeypatch.setattr(TorchEngine, "capturable", capturable, raising=False)
        for name in ("captures", "on_kernels"):
            monkeypatch.setattr(StageEngines, name, property(lambda self: True))
        source = read_checkpoint(save_trained(tmp_path / "weights.safetensors", *request.param()))
        graphed, plain = (make_driver(source, "torch", "cpu", decoder="masked") for _ in "ab")
        plain.one_graph = None
        return graphed, plain

    def test_it_makes_what_the_engines_make(self, drivers):
        graphed, plain = drivers
        mels = mels_of(130, 50, 190)
        controls = CONTROLS
        if "sigma" in plain.controls:
            controls = [*CONTROLS[:2], replace(CONTROLS[2], sigma=0.3)]
        for made, wanted in zip(*(one.vocode_each(mels, controls) for one in (graphed, plain)), strict=True):
            assert len(made) == len(wanted)
            # The pitch's rounding adds up in the phase.
            assert np.abs(made - wanted).max() < 1e-3 * np.abs(wanted).max()
        assert graphed.one_graph._captured.frames == [192]  # mels are filled up

    def test_without_a_graph_the_engines_run(self, drivers):
        graphed, plain = drivers
        (made,), (wanted,) = (one.vocode_each(mels_of(310)) for one in (graphed, plain))
        assert len(made) == len(wanted) and np.abs(made - wanted).max() < 1e-3 * np.abs(wanted).max()
        assert graphed.one_graph._captured.frames == [320]

    def test_warming_up_captures_what_mels_need(self, drivers):
        graphed, plain = drivers
        bucket = Bucket(0, 128)
        for one in graphed.warm_ups(bucket, 2):
            one.run()
        assert graphed.one_graph._captured.frames == [128]
        assert not list(plain.warm_ups(bucket, 2))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*PyTorch's kernels")
class TestOnGpu:
    @pytest.fixture
    def make(self):
        how = Deployment(kernels=kernel_stages("hifigan"))
        source = load_voice().source("hifigan")
        return lambda: make_driver(source, "torch", "cuda", deployment=how)

    @pytest.mark.parametrize("has_triton", [pytest.param(True, marks=pytest.mark.triton), False])
    def test_it_makes_what_the_engines_make(self, make, has_triton, monkeypatch):
        if not has_triton:
            monkeypatch.setattr(limits, "can_launch", lambda: False)
        graphed, plain = make(), make()
        plain.one_graph = None
        mels = [torch.from_numpy(mel).cuda() for mel in mels_of(130, 50, 700)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", ".*PyTorch's kernels")
            for given, controls in ((mels, CONTROLS), (mels[:1], CONTROLS[0])) * 3:
                made, wanted = (one.vocode_each(given, controls) for one in (graphed, plain))
                for one, other in zip(made, wanted, strict=True):
                    assert np.abs(one - other).max() < 1e-3 * np.abs(other).max()
        graphs = graphed.one_graph._captured.graphs
        assert len(graphs) == 2 and all(graphs.values())

    def test_the_host_waits_for_nothing_but_audio(self, make):
        driver, mels = make(), [torch.from_numpy(mel).cuda() for mel in mels_of(700, 600)]
        for _ in range(2):  # captured when they come again
            driver.vocode_each(mels, CONTROLS[:2])
        torch.cuda.set_sync_debug_mode("error")
        try:
            read = driver.vocode_later(mels, CONTROLS[:2])
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert [len(samples) for samples in read()] == [700 * 256, 600 * 256]
