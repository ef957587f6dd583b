"""The kernels of FastPitch's and FastSpeech's transformers against PyTorch in float32."""

import numpy as np
import pytest
import torch

from melforge.common.arrays import pad_to, random_lengths
from melforge.common.bench.random_weights import random_source
from melforge.common.engines.backends import make_engine
from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.export.examples import examples_of
from melforge.common.stages import Stage, stages_of
from melforge.common.weights.voices import ModelSource, load_voice
from tests.trt_plugins.vocoder_kernels import interpreted_error

TOLERANCE = 5e-3  # of the largest value
STAGES = [(model, stage) for model in ("fastpitch", "fastspeech") for stage in ("encoder", "decoder")]
SHAPES = ((1, 1, 1), (1, 37, 201), (3, 57, 203), (2, 128, 640))  # batch, text, mel
OTHER = {  # nothing is a power of two
    "fastpitch": {
        **dict.fromkeys(("symbols_embedding_dim", "in_fft_output_size", "out_fft_output_size"), 72),
        **{"in_fft_n_layers": 1, "in_fft_n_heads": 3, "in_fft_d_head": 20, "in_fft_conv1d_kernel_size": 5},
        **{"out_fft_conv1d_filter_size": 200, "pitch_predictor_filter_size": 100},
        **{"n_mel_channels": 20, "energy_conditioning": False, "n_speakers": 2, "mask_padding": True},
    },
    "fastspeech": {
        **dict.fromkeys(("d_model", "phoneme_side_output_size", "mel_side_output_size"), 72),
        **{"phoneme_side_n_layer": 1, "phoneme_side_head": 3, "fft_conv1d_kernel": 5},
        **{"fft_conv1d_padding": 2, "duration_predictor_filter_size": 100},
        **{"n_mel_channels": 20, "mask_padding": True},
    },
}


def stage_of(source: ModelSource, name: str) -> Stage:
    stages = stages_of(source.model, source.config)
    return next(stage for stage in stages if stage.name == name)


def kernels_of(source: ModelSource, name: str, device: str = "cuda"):
    return make_engine(stage_of(source, name), source, "cuda", device)


def inputs_for(source: ModelSource, stage: Stage, batch: int, text: int, mel: int, seed: int = 0):
    sizes = {"batch": batch, "text": text, "mel": mel}
    examples = examples_of(source.model)
    drawn = examples.example_inputs(stage, source.config, sizes, np.random.default_rng(seed))
    return {name: torch.as_tensor(value, device="cuda") for name, value in drawn.items()}


def assert_near(source: ModelSource, name: str, kernels, shape: tuple[int, int, int]) -> None:
    stage = kernels.stage
    inputs = inputs_for(source, stage, *shape)
    found, *again = (kernels(**inputs) for _ in range(3))  # launched, captured, replayed
    wanted = TorchEngine(stage, source, "cuda")(**inputs)
    assert set(found) == set(wanted)
    assert all(torch.equal(one[name], found[name]) for one in again for name in found)
    for output, value in wanted.items():
        assert found[output].shape == value.shape and found[output].dtype == torch.float32
        error = float((found[output] - value).abs().max()) / max(0.05, float(value.abs().max()))
        assert error < TOLERANCE, f"{output} of {shape}: {error:.1e} of the largest value"


@pytest.fixture(scope="module", params=STAGES, ids=".".join)
def published(request, tmp_path_factory):
    model, name = request.param
    return random_source(model, tmp_path_factory.mktemp("graphs")), name


@pytest.mark.gpu
class TestOnGpu:
    @pytest.fixture(autouse=True)
    def precision(self, whole_float32):
        """All of float32 for PyTorch."""

    def test_published_sizes_are_near_float32(self, published):
        source, name = published
        kernels = kernels_of(source, name)
        for shape in SHAPES:
            assert_near(source, name, kernels, shape)

    @pytest.mark.parametrize(("model", "name"), STAGES, ids=[".".join(stage) for stage in STAGES])
    def test_the_shipped_voice_is_near_float32(self, model, name):
        source = load_voice().source(model)
        kernels = kernels_of(source, name)
        for shape in SHAPES:
            assert_near(source, name, kernels, shape)

    @pytest.mark.parametrize(("model", "name"), STAGES, ids=[".".join(stage) for stage in STAGES])
    def test_other_networks_are_near_float32(self, model, name, tmp_path):
        source = random_source(model, tmp_path, OTHER[model])
        kernels = kernels_of(source, name)
        for shape in SHAPES[1:3]:
            assert_near(source, name, kernels, shape)

    def test_a_repeated_call_gives_the_same_and_leaves_what_others_gave(self, published):
        source, name = published
        kernels = kernels_of(source, name)
        inputs = inputs_for(source, kernels.stage, 2, 37, 100)
        first = kernels(**inputs)
        kept = {output: value.clone() for output, value in first.items()}
        kernels(**inputs_for(source, kernels.stage, 2, 37, 100, seed=1))
        again = kernels(**inputs)
        assert all(torch.equal(again[output], value) for output, value in kept.items())
        assert all(torch.equal(first[output], value) for output, value in kept.items())

    @pytest.mark.products
    def test_lengths_that_are_filled_up_alike_share_a_graph(self, published):
        source, name = published
        kernels = kernels_of(source, name)
        for text, mel in ((33, 65), (64, 128), (40, 100)):
            kernels(**inputs_for(source, kernels.stage, 1, text, mel))
        assert len(kernels._captured.graphs) == 1 and all(kernels._captured.graphs.values())

    @pytest.mark.products
    def test_what_is_behind_the_longest_item_is_not_heard(self, tmp_path):
        """Also in the published network, which hears the padding of shorter items."""
        source = random_source("fastpitch", tmp_path)
        kernels = kernels_of(source, "encoder")
        rng = np.random.default_rng(0)
        lengths = torch.as_tensor(random_lengths(2, 40, rng), device="cuda")
        symbols = torch.as_tensor(rng.integers(1, 100, (2, 40)), device="cuda")
        wanted = kernels(symbols=symbols, lengths=lengths)
        found = kernels(symbols=pad_to(symbols, (2, 60)), lengths=lengths)
        assert torch.equal(found["duration"][:, :40], wanted["duration"])


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("model", ["fastpitch", "fastspeech"])
@pytest.mark.parametrize(("masks", "channels"), [("masked", "48"), ("unmasked", "64")])
def test_interpreted_kernels_are_near_float32(model, masks, channels):
    """The kernels without a GPU: Triton's interpreter runs them, in a process of its own."""
    assert interpreted_error("transformer", model, masks, channels) < 3e-3
