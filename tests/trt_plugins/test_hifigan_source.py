"""The kernels of HiFi-GAN's generator with a harmonic source give what PyTorch gives."""

import pytest
import torch

from melforge.trt_plugins.hifigan.source_filter import KernelSourceFilter
from melforge.trt_plugins.pitch.engine import KernelPitch
from tests.conftest import tiny_source_filter
from tests.trt_plugins.vocoder_kernels import interpreted_error


def test_weights_too_large_for_half_precision_are_refused():
    network = tiny_source_filter()[0].requires_grad_(False)
    network.conv_pre.weight[0] = 1e6
    with pytest.raises(ValueError, match="weights are larger than half precision can hold"):
        KernelSourceFilter(network)


def test_tensors_keep_the_types_that_their_kernels_take():
    kernels = KernelSourceFilter(tiny_source_filter()[0]).to("cpu", torch.float32)
    assert kernels.first.weight.dtype == torch.float16 and kernels.first.bias.dtype == torch.float32
    pitch = KernelPitch(tiny_source_filter()[0].pitch)
    assert all(tensor.dtype == torch.float32 for tensor in pitch.buffers())


@pytest.mark.triton
class TestInterpreted:
    """Without a GPU: Triton's interpreter runs the kernels, in a process of its own."""

    def test_the_source_is_that_of_the_host(self):
        assert interpreted_error("source", "join") < 1e-6

    def test_the_pitch_is_the_networks(self):
        assert interpreted_error("source", "pitch") < 1e-6

    def test_products_with_tables_are_those_of_float32(self):
        assert interpreted_error("source", "product") < 1e-6

    def test_an_item_has_the_same_bits_alone_and_in_a_longer_batch(self):
        assert interpreted_error("source", "alone") == 0

    def test_pulses_are_no_further_from_exact_ones_than_pytorchs(self):
        assert interpreted_error("source", "pulses") < 1.2

    @pytest.mark.parametrize("lengths", ["64,41", "64,64"])
    @pytest.mark.parametrize("blocks", ["one", "two"])
    def test_the_audio_is_near_float32(self, blocks, lengths):
        assert interpreted_error("source", "audio", lengths, blocks) < 2e-3
