"""The generator: its parts, its reach, and what training and exporting ask of it."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from common.audio.contract import MelContract
from common.config.hparams import load_hparams
from hifigan.config import HifiganConfig, receptive_field
from hifigan.model import HifiganGenerator
from hifigan.stages import stages

HPARAMS = Path(__file__).parents[2] / "hparams" / "hifigan"
SMALL = {
    "v1": HifiganConfig(upsample_initial_channel=16),
    "v3": HifiganConfig(
        upsample_initial_channel=16,
        upsample_rates=(8, 8, 4),
        upsample_kernel_sizes=(16, 16, 8),
        resblock="2",
        resblock_kernel_sizes=(3, 5, 7),
        resblock_dilation_sizes=((1, 2), (2, 6), (3, 12)),
    ),
    "hop 15, 7 mels": HifiganConfig(
        n_mel_channels=7,
        upsample_initial_channel=12,
        upsample_rates=(5, 3),
        upsample_kernel_sizes=(11, 7),
        resblock_kernel_sizes=(3,),
        resblock_dilation_sizes=((1, 4),),
    ),
    "odd overlap": HifiganConfig(
        upsample_initial_channel=12, upsample_rates=(5, 4), upsample_kernel_sizes=(16, 9)
    ),
}


def make(config: HifiganConfig, **options) -> HifiganGenerator:
    torch.manual_seed(0)
    return HifiganGenerator(config, **options).eval()


@pytest.fixture(params=SMALL)
def config(request) -> HifiganConfig:
    return SMALL[request.param]


@pytest.mark.parametrize(
    ("name", "millions"), [("v1", 13.926017), ("v2", 0.925985), ("v3", 1.462273), ("compact", 1.146369)]
)
def test_hparams_have_the_published_sizes(name, millions):
    config, contract = load_hparams(HPARAMS / f"{name}.yaml", HifiganConfig, MelContract)
    with torch.device("meta"):
        network = HifiganGenerator(config, weight_norm=False)
    assert sum(p.numel() for p in network.parameters()) == round(millions * 1e6)
    assert config.hop_length == contract.hop_length


@torch.no_grad()
def test_audio_has_hop_samples_a_frame(config):
    (audio,) = make(config).generate(torch.randn(2, config.n_mel_channels, 5))
    assert audio.shape == (2, 5 * config.hop_length)


@torch.no_grad()
def test_folding_the_weight_norm_changes_nothing(config):
    network, mel = make(config), torch.randn(1, config.n_mel_channels, 5)
    normed = network(mel)
    plain = make(config, weight_norm=False)
    plain.load_state_dict(network.remove_weight_norm().state_dict())
    assert not any("parametrizations" in name for name in plain.state_dict())
    torch.testing.assert_close(plain(mel), normed, rtol=0, atol=1e-6)


def test_transposed_convolutions_are_normed_over_input_channels():
    network = make(SMALL["v1"])
    assert network.ups[0].parametrizations.weight.original0.shape == (16, 1, 1)


@torch.no_grad()
def test_receptive_field_is_exactly_what_a_frame_reaches(config):
    reach = receptive_field(config)
    mel = torch.zeros(1, config.n_mel_channels, 2 * reach + 3)
    centre = reach + 1
    mel[:, :, centre] = torch.nan  # spreads to every sample that depends on this frame
    reached = make(config).generate(mel)[0][0].isnan().nonzero()[:, 0] // config.hop_length
    assert max(centre - int(reached.min()), int(reached.max()) - centre) == reach


@torch.no_grad()
def test_chunks_with_context_equal_one_shot(config):
    network, context, hop = make(config), receptive_field(config), config.hop_length
    mel = torch.randn(1, config.n_mel_channels, 70)
    (whole,) = network.generate(mel)
    chunks = []
    for start in range(0, 70, 16):
        left, right = max(0, start - context), min(70, start + 16 + context)
        (audio,) = network.generate(mel[:, :, left:right])
        chunks.append(audio[:, (start - left) * hop : (min(start + 16, 70) - left) * hop])
    torch.testing.assert_close(torch.cat(chunks, 1), whole, rtol=0, atol=1e-5)


def test_trains_in_bfloat16_with_the_last_convolution_in_float32():
    network = make(SMALL["v3"])
    with torch.autocast("cpu", torch.bfloat16):
        features = network.body(torch.randn(1, 80, 4))
    audio = network.head(features.float())
    audio.square().mean().backward()
    assert features.dtype == torch.bfloat16 and audio.dtype == torch.float32
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())


class _Stage(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, mel):
        return self.network.generate(mel)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v1", "v3"])
def test_exported_graph_equals_pytorch_at_other_lengths_and_batches(name, tmp_path):
    network = make(SMALL[name]).remove_weight_norm()
    stage = stages(network.config)[0]
    with torch.no_grad():
        torch.onnx.export(
            _Stage(network).eval(),
            (torch.randn(2, 80, 20),),
            tmp_path / "generator.onnx",
            input_names=[t.name for t in stage.inputs],
            output_names=[t.name for t in stage.outputs],
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC},),
            opset_version=20,
            dynamo=True,
            verbose=False,
        )
    session = onnxruntime.InferenceSession(tmp_path / "generator.onnx", providers=["CPUExecutionProvider"])
    for batch, frames in ((1, 9), (3, 33), (1, 1)):
        mel = torch.randn(batch, 80, frames)
        with torch.no_grad():
            (expected,) = network.generate(mel)
        (audio,) = session.run(["audio"], {"mel": mel.numpy()})
        np.testing.assert_allclose(audio, expected.numpy(), rtol=0, atol=1e-5)


def test_stage_declares_samples_by_the_hop():
    generator, denoiser, *_ = stages(SMALL["v1"])
    (mel,), (audio,) = generator.inputs, generator.outputs
    assert generator.full_name == "hifigan.generator" and mel.dims[1] == 80
    assert (audio.dims[1].min, audio.dims[1].max) == (256, 4096 * 256)
    samples = denoiser.inputs[0].dims[1]
    assert denoiser.full_name == "hifigan.denoiser" and denoiser.inputs[2].dims == (513,)
    assert (samples.min, samples.max) == (513, 4096 * 256)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resblock": "3"}, 'resblock must be "1" or "2"'),
        ({"upsample_rates": (8, 8)}, "upsample_rates has 2 entries, upsample_kernel_sizes 4"),
        ({"resblock_kernel_sizes": (3,)}, "resblock_kernel_sizes has 1 entries"),
        ({"resblock_kernel_sizes": (3, 4, 5)}, "must be odd"),
        ({"upsample_kernel_sizes": (16, 16, 4, 1)}, "must cover the rate"),
        ({"upsample_initial_channel": 8}, "would reach zero"),
    ],
)
def test_impossible_sizes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        HifiganConfig(**wrong)
