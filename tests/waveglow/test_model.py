"""The flows: both directions against the goldens and each other, and what exporting asks of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from melforge.common.audio.contract import MelContract
from melforge.common.config.hparams import load_hparams
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.model import Waveglow
from melforge.waveglow.noise import noise_shape, scale_noise
from tests.networks import load_network

HPARAMS = Path(__file__).parents[2] / "hparams" / "waveglow"
GOLDEN = Path(__file__).parents[1] / "golden" / "waveglow"
IO = np.load(GOLDEN / "io.npz")
SMALL = {
    "published shape": WaveglowConfig(n_mel_channels=5, wn_layers=2, wn_channels=6),
    "no early outputs": WaveglowConfig(
        n_mel_channels=3, n_flows=3, n_group=4, n_early_every=3, wn_layers=3, wn_channels=7
    ),
    "other hop": WaveglowConfig(
        n_mel_channels=3,
        n_flows=5,
        n_group=12,
        n_early_every=1,
        wn_layers=1,
        wn_kernel_size=5,
        wn_channels=4,
        upsample_kernel_size=50,
        hop_length=50,
    ),
}


def make(config: WaveglowConfig, **options) -> Waveglow:
    """A network whose coupling nets do something."""
    torch.manual_seed(0)
    network = Waveglow(config, **options).eval()
    for net in network.WN:
        nn.init.normal_(net.end.weight, std=0.05)
    return network


def assert_golden(value: torch.Tensor, name: str) -> None:
    expected = IO[name]
    tolerance = 1e-4 * max(1, np.abs(np.nan_to_num(expected)).max())
    np.testing.assert_allclose(value.numpy(), expected, rtol=0, atol=tolerance, err_msg=name)


def golden(name: str) -> torch.Tensor:
    return torch.from_numpy(IO[name])


@pytest.fixture(scope="module")
def network() -> Waveglow:
    return load_network("waveglow", GOLDEN / "checkpoint.pt")[0].requires_grad_(False)


@pytest.fixture(params=SMALL)
def config(request) -> WaveglowConfig:
    return SMALL[request.param]


def test_golden_audio_inverses_and_activations(network):
    seen = {}
    for name, module in (
        ("upsample_out", network.upsample),
        ("first_WN_in_layer1_out", network.WN[-1].in_layers[1]),
        ("first_WN_out", network.WN[-1].end),
    ):
        module.register_forward_hook(lambda _m, _i, output, name=name: seen.update({name: output}))
    (audio,) = network.generate(golden("mel"), 0.9 * torch.cat([golden(f"z{i}") for i in range(3)], 1))
    assert_golden(audio, "audio_sigma09")
    for name, value in seen.items():
        assert_golden(value[: len(golden(name))], name)  # of the larger ones the first item is recorded
    for flow, conv in enumerate(network.convinv):
        assert_golden(conv.inverse[:, :, 0], f"W_inverse_{flow}")


def test_golden_training_direction(network):
    z, log_s, log_det = network(golden("mel"), golden("fwd_audio_in"))
    assert_golden(z, "fwd_z")
    assert_golden(log_det, "fwd_log_det")
    assert len(log_s) == 6
    for flow, value in enumerate(log_s):
        assert_golden(value, f"fwd_log_s{flow}")


@pytest.mark.slow
@torch.no_grad()
def test_generating_undoes_the_training_direction(config):
    network = make(config)
    frames = 6
    audio = torch.randn(2, config.noise_length(frames) * config.n_group)
    mel = torch.randn(2, config.n_mel_channels, frames)
    z, _, _ = network(mel, audio)
    assert z.shape == noise_shape(config, 2, frames)
    z = network.generation_order(z)
    for form in (network, network.remove_weight_norm()):
        torch.testing.assert_close(form.generate(mel, z)[0], audio, rtol=0, atol=1e-4)


def test_log_determinants_are_those_of_the_jacobian():
    config = WaveglowConfig(2, 3, 4, 2, 2, 1, 3, 4, upsample_kernel_size=8, hop_length=4)
    network, mel = make(config), torch.randn(1, 2, 2)
    audio = torch.randn(1, 8)
    jacobian = torch.autograd.functional.jacobian(lambda x: network(mel, x)[0], audio).reshape(8, 8)
    with torch.no_grad():
        _, log_s, log_det = network(mel, audio)
    expected = sum(s.sum() for s in log_s) + log_det.sum()
    torch.testing.assert_close(torch.linalg.slogdet(jacobian).logabsdet, expected, rtol=0, atol=1e-5)


def test_every_weight_learns():
    network = make(SMALL["published shape"]).train()
    z, log_s, log_det = network(torch.randn(2, 5, 3), torch.randn(2, 700))
    (z.square().mean() - sum(s.mean() for s in log_s) - log_det.sum() / z.numel()).backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())


@torch.no_grad()
def test_folding_changes_nothing_and_names_are_the_published_ones(config):
    network, mel = make(config), torch.randn(1, config.n_mel_channels, 4)
    z = torch.randn(noise_shape(config, 1, 4))
    normed = network.generate(mel, z)[0]
    state = network.remove_weight_norm().state_dict()
    published = {name: value for name, value in state.items() if not name.endswith("inverse")}
    plain = make(config, weight_norm=False)
    plain.load_state_dict(published)  # inverses come with their matrices
    torch.testing.assert_close(plain.generate(mel, z)[0], normed, rtol=0, atol=1e-5)
    assert {name.split(".")[0] for name in published} == {"upsample", "WN", "convinv"}
    assert not any("parametrizations" in name for name in published)


@pytest.mark.parametrize(("name", "parameters"), [("base", 87_731_816), ("waveglow512", 267_999_848)])
def test_hparams_have_the_published_sizes(name, parameters):
    config, contract = load_hparams(HPARAMS / f"{name}.yaml", WaveglowConfig, MelContract)
    with torch.device("meta"):
        network = Waveglow(config, weight_norm=False)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert (config.hop_length, config.n_remaining) == (contract.hop_length, 4)


@torch.no_grad()
def test_singular_matrix_is_named(config):
    network = make(config)
    network.convinv[2].conv.weight[1] = network.convinv[2].conv.weight[0]
    with pytest.raises(ValueError, match="1x1 convolution of flow 2 is singular"):
        network.remove_weight_norm()
    state = make(config, weight_norm=False).state_dict()
    del state["convinv.1.inverse"]
    state["convinv.1.conv.weight"] = torch.zeros_like(state["convinv.1.conv.weight"])
    with pytest.raises(ValueError, match="1x1 convolution of flow 1 is singular"):
        make(config, weight_norm=False).load_state_dict(state)


@pytest.mark.parametrize("wrong", [(1, 8, 288), (2, 4, 288), (2, 8, 287)])
def test_noise_that_does_not_fit_the_mel_is_refused(network, wrong):
    with pytest.raises(ValueError, match=r"don't belong together: z must be \(2, 8, 288\)"):
        network.generate(golden("mel"), torch.zeros(wrong))


def test_audio_that_does_not_fit_the_mel_is_refused(network):
    with pytest.raises(ValueError, match="9 frames lead at most 3072 samples"):
        network(golden("mel"), torch.zeros(2, 3073))


@pytest.mark.parametrize("sigma", [-1.0, float("nan"), float("inf")])
def test_impossible_sigma_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma must be a number from 0"):
        scale_noise(np.zeros((1, 8, 4), np.float32), sigma)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"wn_channels": 0}, "wn_channels must be positive"),
        ({"n_group": 7}, "n_group must be even"),
        ({"n_early_size": 3}, "n_early_size must be even"),
        ({"wn_kernel_size": 2}, "wn_kernel_size must be odd"),
        ({"upsample_kernel_size": 128}, "must cover hop_length 256"),
        ({"n_early_every": 2}, "leave nothing of n_group 8"),
    ],
)
def test_impossible_sizes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        WaveglowConfig(**wrong)
