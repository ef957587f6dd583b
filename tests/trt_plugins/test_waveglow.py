"""How WaveGlow's weights are folded for the kernels. That these make its audio test_waveglow_gpu.py shows."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from melforge.trt_plugins.waveglow import fold as folding
from melforge.trt_plugins.waveglow.fold import CHUNK, fold, layout_of, phase_weights
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.model import Waveglow

SMALL = WaveglowConfig(
    n_mel_channels=20,
    n_flows=5,
    n_early_every=2,
    wn_layers=3,
    wn_channels=24,
    hop_length=32,
    upsample_kernel_size=100,
)
CONFIGS = {
    "as published": SMALL,
    "filled up": dataclasses.replace(SMALL, wn_channels=80, n_mel_channels=10),
    "as in the voice": dataclasses.replace(SMALL, cond_channels=10, upsample_groups=20, n_early_every=3),
    "groups and taps": dataclasses.replace(
        SMALL, upsample_groups=5, wn_kernel_size=5, upsample_kernel_size=64
    ),
}


def network_of(config: WaveglowConfig) -> Waveglow:
    torch.manual_seed(0)
    network = Waveglow(config, weight_norm=False).eval().requires_grad_(False)
    for name, weight in network.named_parameters():
        if name.endswith(("end.weight", "end.bias")):  # zeros would leave a flow's net out
            weight.normal_(0, 0.05)
    return network


def windows(config: WaveglowConfig, mel: torch.Tensor) -> torch.Tensor:
    """mel (B, n_mels, T) -> (B, T, W): each frame's mels and those of the frames before it."""
    layout, frames = layout_of(config), mel.shape[2]
    padded = F.pad(mel, (layout.delays - 1, 0))
    heard = [padded[:, :, layout.delays - 1 - delay :][:, :, :frames] for delay in range(layout.delays)]
    heard = torch.cat(heard, dim=1).transpose(1, 2)
    return F.pad(heard, (0, layout.window * CHUNK - heard.shape[2]))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_phase_hears_what_the_upsampled_mel_says(config):
    network = network_of(config)
    mel = torch.randn(2, config.n_mel_channels, 6, generator=torch.Generator().manual_seed(1)) * 2 - 5
    weights, bias = phase_weights(network)
    heard = windows(config, mel)[:, :, : weights.shape[2]]
    found = torch.einsum("btw,pcw->bctp", heard, weights).flatten(2) + bias[:, None]
    wanted = network._grouped(mel, 6 * config.hop_length)
    torch.testing.assert_close(found, wanted, atol=2e-5 * float(wanted.abs().max()), rtol=0)


def test_what_is_filled_up_has_no_weight():
    config = CONFIGS["filled up"]
    folded, layout = fold(network_of(config)), layout_of(config)
    assert layout.channels == 128
    assert not folded.gates[:, :, 2 * config.wn_channels :].any()
    assert not folded.gate_bias[:, 2 * config.wn_channels :].any()
    assert not folded.residual[:, config.wn_channels :].any()
    assert not folded.residual[:, :, config.wn_channels :].any()
    assert not folded.start[:, config.wn_channels :].any()
    assert not folded.first[:, :, 2 * config.wn_channels :].any()


def test_published_sizes_are_laid_out_in_whole_chunks():
    layout = layout_of(WaveglowConfig())
    assert (layout.channels, layout.chunks, layout.phases, layout.window) == (256, 4, 32, 5)
    assert (layout.delays, layout.margin) == (4, 4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n_group": 6}, "hop_length 32 must be a multiple of n_group 6"),
        ({"n_group": 32}, "n_group of 16 at most, not 32"),
    ],
)
def test_sizes_that_the_kernels_cannot_run_are_refused(change, reason):
    with pytest.raises(ValueError, match=reason):
        folding.layout_of(dataclasses.replace(SMALL, **change))


def test_weights_too_large_for_half_precision_are_refused():
    network = network_of(SMALL)
    network.WN[1].res_skip_layers[0].weight[0] = 1e6
    with pytest.raises(ValueError, match=r"folded weights \(residual\) are larger than half precision"):
        fold(network)
