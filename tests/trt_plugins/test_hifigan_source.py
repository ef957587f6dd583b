"""The kernels of HiFi-GAN's generator with a harmonic source give what PyTorch gives."""

import pytest
import torch

from tests.conftest import tiny_source_filter
from tests.trt_plugins.vocoder_kernels import interpreted_error
from trt_plugins.hifigan.source_filter import KernelSourceFilter, find_pitch


def test_the_pitch_with_bins_last_is_the_networks():
    network = tiny_source_filter()[0]
    mel, lengths = torch.randn(2, 80, 70) * 2 - 5, torch.tensor([70, 41])
    with torch.no_grad():
        (found,), (wanted,) = find_pitch(network, mel, lengths), network.find_pitch(mel, lengths)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


def test_weights_too_large_for_half_precision_are_refused():
    network = tiny_source_filter()[0].requires_grad_(False)
    network.conv_pre.weight[0] = 1e6
    with pytest.raises(ValueError, match="weights are larger than half precision can hold"):
        KernelSourceFilter(network)


def test_tensors_keep_the_types_that_their_kernels_take():
    kernels = KernelSourceFilter(tiny_source_filter()[0]).to("cpu", torch.float32)
    assert kernels.first.weight.dtype == torch.float16 and kernels.first.bias.dtype == torch.float32


@pytest.mark.triton
class TestInterpreted:
    """Without a GPU: Triton's interpreter runs the kernels, in a process of its own."""

    def test_the_source_is_that_of_the_host(self):
        assert interpreted_error("source", "join") < 1e-6

    def test_pulses_are_no_further_from_exact_ones_than_pytorchs(self):
        assert interpreted_error("source", "pulses") < 1.2

    @pytest.mark.parametrize("lengths", ["64,41", "64,64"])
    @pytest.mark.parametrize("blocks", ["one", "two"])
    def test_the_audio_is_near_float32(self, blocks, lengths):
        assert interpreted_error("source", "audio", lengths, blocks) < 2e-3
