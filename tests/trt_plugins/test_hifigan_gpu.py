"""HiFi-GAN's kernels on a GPU against PyTorch in float32, and what they refuse without one."""

import warnings

import pytest
import torch

from melforge.common.bench.random_weights import random_source
from melforge.common.engines import limits
from melforge.common.engines.backends import make_engine
from melforge.common.weights.voices import ModelSource, load_voice
from melforge.hifigan.infer import join_source
from melforge.trt_plugins.hifigan.engine import kernel_join
from tests.trt_plugins.test_hifigan import COMPACT
from tests.trt_plugins.vocoder_kernels import (
    VOICE_TOLERANCE,
    OnGpu,
    assert_near,
    assert_repeatable,
    inputs_for,
    interpreted_error,
    kernels_of,
    stage_of,
)

V2 = {"upsample_initial_channel": 128}
V3 = {**COMPACT, "upsample_rates": (8, 8, 4), "upsample_kernel_sizes": (16, 16, 8)}
OTHER = {
    **{"n_mel_channels": 20, "upsample_rates": (3, 2, 4), "upsample_kernel_sizes": (9, 2, 6)},
    **{"upsample_initial_channel": 96, "resblock_dilation_sizes": ((2,), (2,), (2,))},
}
ISTFT = {
    **{**COMPACT, "upsample_rates": (4, 4), "upsample_kernel_sizes": (8, 8)},
    **{"istft_n_fft": 64, "istft_hop_length": 16},
}
SOURCE = {
    **{"source": True, "upsample_rates": (), "upsample_kernel_sizes": (), "upsample_initial_channel": 32},
    **{"resblock": "2", "resblock_kernel_sizes": (3,), "resblock_dilation_sizes": ((1, 2, 4),)},
    **{"istft_n_fft": 1024, "istft_hop_length": 256},
}
SEVERAL_BLOCKS = {
    **{**SOURCE, "resblock_kernel_sizes": (3, 7, 5)},
    **{"resblock_dilation_sizes": ((1, 2), (1, 8), (4,)), "noise_channels": 0},
}


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> ModelSource:
    return random_source("hifigan", tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="module")
def voice(tmp_path_factory) -> ModelSource:
    """The shipped voice's has a harmonic source, which other kernels run: compact sizes, random weights."""
    return random_source("hifigan", tmp_path_factory.mktemp("compact"), COMPACT)


class TestOnGpu(OnGpu):
    def test_published_sizes_are_near_float32(self, published):
        kernels = kernels_of(published)
        for batch, frames in ((1, 1), (1, 37), (1, 40), (2, 37), (4, 40), (1, 640), (2, 640)):
            assert_near(kernels, published, batch, frames)

    def test_published_sizes_hear_nothing_behind_an_items_end(self, published):
        kernels = kernels_of(published, "masked_generator")
        for batch, frames in ((1, 37), (4, 40)):
            assert_near(kernels, published, batch, frames)

    @pytest.mark.parametrize("sizes", [V2, V3, OTHER], ids=["V2", "V3", "other"])
    def test_other_networks_are_near_float32(self, sizes, tmp_path):
        source = random_source("hifigan", tmp_path, sizes)
        kernels = kernels_of(source)
        for batch, frames in ((1, 1), (3, 50)):
            assert_near(kernels, source, batch, frames)

    def test_a_repeated_call_gives_the_same_audio(self, published):
        assert_repeatable(published, 2, 37)

    def test_what_has_an_inverse_stft_runs_on_pytorchs_kernels(self, tmp_path):
        source = random_source("hifigan", tmp_path, ISTFT)
        for name in ("generator", "masked_generator"):
            with pytest.warns(UserWarning, match="runs on PyTorch's kernels"):
                kernels = kernels_of(source, name)
            for batch, frames in ((1, 37), (4, 129)):
                assert_near(kernels, source, batch, frames)

    @pytest.mark.products
    @pytest.mark.parametrize("name", ["generator", "masked_generator"])
    @pytest.mark.parametrize("sizes", [SOURCE, SEVERAL_BLOCKS], ids=["one block", "three"])
    def test_a_source_is_near_float32(self, sizes, name, tmp_path):
        source = random_source("hifigan", tmp_path, sizes)
        kernels = without_a_warning(source, name)
        for batch, frames in ((1, 1), (1, 37), (4, 129)):
            assert_near(kernels, source, batch, frames)

    @pytest.mark.products
    def test_the_shipped_voices_source_is_near_float32(self):
        source = load_voice().source("hifigan")
        kernels = without_a_warning(source, "masked_generator")
        for batch, frames in ((1, 37), (2, 128), (1, 640), (8, 400)):
            assert_near(kernels, source, batch, frames, VOICE_TOLERANCE)

    def test_the_pitch_is_pytorchs(self):
        source = load_voice().source("hifigan")
        stage = stage_of(source, "masked_pitch")
        engines = [make_engine(stage, source, backend, "cuda") for backend in ("cuda", "torch")]
        for batch, frames in ((1, 37), (8, 400)):
            inputs = inputs_for(source, stage, batch, frames)
            found, wanted = (engine(**inputs)["pitch"] for engine in engines)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0)

    def test_a_source_without_triton_runs_on_pytorchs_kernels(self, tmp_path, monkeypatch):
        monkeypatch.setattr(limits, "can_launch", lambda: False)
        source = random_source("hifigan", tmp_path, SOURCE)
        with pytest.warns(UserWarning, match="runs on PyTorch's kernels: ours need Triton"):
            kernels = kernels_of(source, "masked_generator")
        assert kernel_join("cuda") is None
        assert_near(kernels, source, 4, 129)

    def test_a_source_is_joined_as_on_the_host(self):
        join = kernel_join("cuda")
        for batch, frames in ((1, 1), (3, 1000), (1, 4096)):
            pitch, drawn = 0.004 + 0.01 * torch.rand(batch, frames), torch.randn(batch, frames * 32)
            wanted, found = (join_source(pitch, drawn, 256), join(pitch.cuda(), drawn.cuda(), 256))
            apart = (found.cpu() - wanted).abs()
            assert not apart[:, 1:].any()
            assert torch.minimum(apart[:, 0], 1 - apart[:, 0]).max() < 1e-6


def without_a_warning(source: ModelSource, name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kernels_of(source, name)


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize(
    ("config", "lengths"),
    [("1", ""), ("1", "11,6"), ("2", "11,6"), ("dilations", ""), ("upsampling", "11,6")],
)
def test_interpreted_kernels_are_near_float32(config, lengths):
    """The kernels without a GPU: Triton's interpreter runs them, in a process of its own."""
    assert interpreted_error("hifigan", config, lengths) < 3e-3
