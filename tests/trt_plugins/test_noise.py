"""The noise kernel gives the host's numbers, bit for bit; engines draw with it."""

import numpy as np
import pytest
import torch

from melforge.common.engines import limits
from melforge.common.noise import draw
from melforge.common.weights.voices import load_voice
from melforge.tacotron2.decode import SeededNoise
from melforge.trt_plugins import noise
from melforge.waveglow.noise import draw_noise
from tests.trt_plugins.drawn import RANGES, differing
from tests.trt_plugins.vocoder_kernels import interpreted_error, kernels_of


@pytest.mark.triton
def test_the_interpreted_kernel_draws_the_hosts_bits():
    """The kernel without a GPU: Triton's interpreter runs it, in a process of its own."""
    assert interpreted_error("noise") == 0


@pytest.mark.gpu
@pytest.mark.triton
@pytest.mark.parametrize("what", [*RANGES, ("normal", (11,), 256 * 99, 256 * 640)], ids=str)
def test_the_kernel_draws_the_hosts_bits(what):
    assert differing(noise.draw, "cuda", *what) == 0


@pytest.mark.gpu
@pytest.mark.triton
def test_waveglows_noise_is_the_same_on_a_gpu():
    source = load_voice().source("waveglow")
    engine, config = kernels_of(source), source.config
    for seed, first, last in ((0, 0, 1), (5, 0, 640), (5, 37, 300)):
        drawn = draw_noise(config, first, last, seed, engine.draw)
        assert drawn.is_cuda and np.array_equal(drawn.cpu(), draw_noise(config, first, last, seed))


@pytest.mark.gpu
@pytest.mark.triton
@pytest.mark.parametrize("has_triton", [True, False])
@pytest.mark.filterwarnings("ignore:.*PyTorch's kernels")
def test_tacotron2s_noise_is_the_same_on_a_gpu(has_triton, monkeypatch):
    source = load_voice().source("tacotron2")
    engine, channels = kernels_of(source, "decoder_loop"), source.config.prenet_dim
    if not has_triton:
        monkeypatch.setattr(limits, "can_launch", lambda: False)
    on_gpu, on_host = SeededNoise([3, 0, 3], channels, engine.draw), SeededNoise([3, 0, 3], channels)
    for steps in (1, 64, 1000):
        rows = torch.as_tensor(on_gpu.rows(steps))
        assert rows.is_cuda == has_triton and np.array_equal(rows.cpu(), on_host.rows(steps))


@pytest.mark.gpu
@pytest.mark.triton
@pytest.mark.parametrize("has_triton", [True, False])
@pytest.mark.filterwarnings("ignore:.*PyTorch's kernels")
def test_the_noise_of_a_source_is_the_same_on_a_gpu(has_triton, monkeypatch):
    engine = kernels_of(load_voice().source("hifigan"), "masked_generator")
    if not has_triton:
        monkeypatch.setattr(limits, "can_launch", lambda: False)
    what = "normal", [3, 0, 3], 0, 700 * 32
    drawn = torch.as_tensor(engine.draw(*what))
    assert drawn.is_cuda == has_triton and np.array_equal(drawn.cpu(), draw(*what))
