"""The kernels of HiFi-GAN's generator with a harmonic source give what PyTorch gives."""

import pytest

from tests.trt_plugins.vocoder_kernels import interpreted_error


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
