"""The kernels of HiFi-GAN's generator with a harmonic source give what PyTorch gives."""

import pytest

from tests.trt_plugins.vocoder_kernels import interpreted_error


@pytest.mark.triton
def test_the_interpreted_source_is_that_of_the_host():
    """The kernel without a GPU: Triton's interpreter runs it, in a process of its own."""
    assert interpreted_error("source", "join") < 1e-6
