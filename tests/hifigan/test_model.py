"""The generator: its parts, its reach, and what training and exporting ask of it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from melforge.common.audio.contract import MelContract
from melforge.common.config.hparams import load_hparams
from melforge.common.training.vocoder import VocoderRecipe
from melforge.hifigan.config import HifiganConfig, receptive_field
from melforge.hifigan.model import LARGEST_MAGNITUDE, HifiganGenerator, InverseSTFT
from melforge.hifigan.stages import stages

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
    "istft": HifiganConfig(
        upsample_initial_channel=16,
        upsample_rates=(4, 2),
        upsample_kernel_sizes=(8, 4),
        resblock="2",
        resblock_kernel_sizes=(3, 5),
        resblock_dilation_sizes=((1, 2), (2, 6)),
        istft_n_fft=32,
        istft_hop_length=8,
    ),
    "istft, odd overlap": HifiganConfig(
        upsample_initial_channel=12,
        upsample_rates=(3, 2),
        upsample_kernel_sizes=(8, 3),
        resblock_kernel_sizes=(3,),
        resblock_dilation_sizes=((1, 4),),
        istft_n_fft=10,
        istft_hop_length=5,
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
def test_masked_items_of_a_batch_equal_those_alone(config):
    network, lengths = make(config), torch.tensor([7, 12, 1])
    mel = torch.randn(3, config.n_mel_channels, 12)
    (audio,) = network.generate(mel, lengths)
    for row, length in enumerate(lengths.tolist()):
        (alone,) = network.generate(mel[row : row + 1, :, :length])
        torch.testing.assert_close(audio[row, : length * config.hop_length], alone[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["v3", "istft"])
def test_trains_in_bfloat16_with_the_head_in_float32(name):
    network = make(SMALL[name])
    with torch.autocast("cpu", torch.bfloat16):
        features = network.body(torch.randn(1, 80, 4))
    audio = network.head(features.float())
    audio.square().mean().backward()
    assert features.dtype == torch.bfloat16 and audio.dtype == torch.float32
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())


@pytest.mark.parametrize(("size", "hop"), [(16, 4), (64, 16), (128, 32), (24, 8), (10, 5)])
def test_the_inverse_stft_is_pytorchs(size, hop):
    config = HifiganConfig(istft_n_fft=size, istft_hop_length=hop)
    spectrum = torch.randn(2, size // 2 + 1, 9, dtype=torch.complex64)
    audio = InverseSTFT(config)(torch.cat((spectrum.real, spectrum.imag), dim=1))
    # PyTorch's phases count from the window's first sample, and its windows' sum ends with the frames.
    centred = spectrum * (-1.0) ** torch.arange(size // 2 + 1)[:, None]
    window, beyond = torch.hann_window(size), size // hop
    padded = nn.functional.pad(torch.view_as_real(centred), (0, 0, beyond, beyond))
    whole = torch.istft(torch.view_as_complex(padded), size, hop, window=window, center=True)
    start = beyond * hop + config.istft_start - size // 2
    torch.testing.assert_close(audio, whole[:, start : start + 9 * hop], rtol=0, atol=1e-6)


@torch.no_grad()
def test_spectra_of_a_signal_give_it_back():
    config = HifiganConfig(istft_n_fft=64, istft_hop_length=16)
    signal, steps = torch.randn(1, 50 * 16), torch.arange(64)
    windows = signal.unfold(1, 64, 16) * torch.hann_window(64)
    turns = torch.outer(steps - 32.0, torch.arange(33.0)) * (2 * torch.pi / 64)
    spectrum = torch.cat((windows @ turns.cos(), -windows @ turns.sin()), dim=2).mT
    audio = InverseSTFT(config)(spectrum)
    inside = slice(3 * 16, -3 * 16)  # the ends lack windows
    first = config.istft_start
    torch.testing.assert_close(
        audio[:, inside], signal[:, first : first + audio.shape[1]][:, inside], rtol=0, atol=1e-5
    )


@torch.no_grad()
@pytest.mark.parametrize("log_magnitude", [20.0, 200.0])  # the exponentials of half and of single precision
def test_magnitudes_are_clamped_before_they_overflow(log_magnitude):
    network = make(SMALL["istft"]).remove_weight_norm()
    bins = network.config.istft_n_fft // 2 + 1
    network.conv_post.bias[:bins] = log_magnitude
    audio = network(torch.randn(1, 80, 20))
    assert audio.abs().max() <= bins * network.istft.overlap * LARGEST_MAGNITUDE


@torch.no_grad()
def test_an_inverse_stft_starts_its_training_at_the_level_of_speech():
    recipe = HPARAMS / "train_c4c4i.yaml"
    config, contract, _ = load_hparams(recipe, HifiganConfig, MelContract, VocoderRecipe)
    assert config.hop_length == contract.hop_length
    audio = make(config)(torch.randn(1, 80, 30) * 2 - 5)
    assert 1e-4 < audio.std() < 0.1


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
        ({"istft_n_fft": 64}, "istft_n_fft 64 and istft_hop_length 0: an inverse STFT needs both"),
        ({"istft_n_fft": 64, "istft_hop_length": 24}, "must be even and a multiple of istft_hop_length 24"),
        ({"istft_n_fft": 15, "istft_hop_length": 5}, "must be even"),
        ({"istft_n_fft": 64, "istft_hop_length": 64}, "so that windows overlap everywhere"),
    ],
)
def test_impossible_sizes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        HifiganConfig(**wrong)
