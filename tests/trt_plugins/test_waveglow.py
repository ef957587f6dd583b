"""The folded weights that WaveGlow's kernels take: in plain PyTorch they make what the network makes."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from melforge.trt_plugins.waveglow import fold as folding
from melforge.trt_plugins.waveglow.fold import CHUNK, NARROW, FoldedWaveglow, fold, layout_of, phase_weights
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


@pytest.fixture
def unrounded(monkeypatch):
    """Folding without its rounding, so that only float32's own is left."""
    monkeypatch.setattr(torch.Tensor, "half", torch.Tensor.float)


def numbers(config: WaveglowConfig, batch: int, frames: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    mel = torch.randn(batch, config.n_mel_channels, frames, generator=generator) * 2 - 5
    z = torch.randn(batch, config.n_group, config.noise_length(frames), generator=generator)
    return mel, z * 0.6


def windows(config: WaveglowConfig, mel: torch.Tensor) -> torch.Tensor:
    """mel (B, n_mels, T) -> (B, T, W): each frame's mels and those of the frames before it."""
    layout, frames = layout_of(config), mel.shape[2]
    padded = F.pad(mel, (layout.delays - 1, 0))
    heard = [padded[:, :, layout.delays - 1 - delay :][:, :, :frames] for delay in range(layout.delays)]
    heard = torch.cat(heard, dim=1).transpose(1, 2)
    return F.pad(heard, (0, layout.window * CHUNK - heard.shape[2]))


def generate(
    folded: FoldedWaveglow, config: WaveglowConfig, mel: torch.Tensor, z: torch.Tensor
) -> torch.Tensor:
    """The stage from folded weights, step by step as the kernels have it, one layer at a time."""
    layout, steps = layout_of(config), z.shape[2]
    heard = windows(config, mel)
    used = config.n_remaining
    x = z[:, :used].transpose(1, 2)  # (B, L, channels)
    for flow in reversed(range(config.n_flows)):
        half = x.shape[2] // 2
        few = F.pad(F.pad(x[:, :, :half], (0, 1), value=1.0), (0, NARROW - half - 1))
        hidden = few @ folded.start[flow].T
        ends = folded.end_bias[flow].expand(*x.shape[:2], NARROW)
        for layer in range(config.wn_layers):
            index, reach = flow * config.wn_layers + layer, 2**layer
            weight = folded.gates[index]  # (K, 2C, 64)
            of_mel = weight[: layout.phases * layout.window].unflatten(0, (layout.phases, -1))
            of_mel = of_mel.transpose(1, 2).flatten(2)  # (P, 2C, W)
            total = torch.einsum("btw,pcw->btpc", heard, of_mel).flatten(1, 2) + folded.gate_bias[index]
            source, of_x = hidden, weight[layout.phases * layout.window :].transpose(0, 1).flatten(1)
            if layer == 0:
                source, of_x = few, folded.first[flow].transpose(0, 1).flatten(1)
            sides = (layout.taps - 1) // 2 * reach
            padded = F.pad(source, (0, 0, sides, sides))
            taps = [padded[:, tap * reach : tap * reach + steps] for tap in range(layout.taps)]
            total = total + torch.cat(taps, dim=2) @ of_x.T
            acts = total[:, :, 0::2].tanh() * total[:, :, 1::2].sigmoid()
            hidden = hidden + acts @ folded.residual[index].T + folded.residual_bias[index]
            ends = ends + acts @ folded.ends[index].T
        shift, log_scale = ends[:, :, :half], ends[:, :, half : 2 * half]
        x = torch.cat((x[:, :, :half], (x[:, :, half:] - shift) * (-log_scale).exp()), dim=2)
        early = config.n_early_size if config.is_early(flow) else 0
        x = (F.pad(x, (0, NARROW - 2 * half)) @ folded.inverse[flow])[:, :, : 2 * half + early]
        x[:, :, :early] = z[:, used : used + early].transpose(1, 2)
        used += early
    return x.flatten(1)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(("batch", "frames"), [(1, 1), (2, 7)])
def test_folded_weights_make_the_audio_of_the_network(config, batch, frames, unrounded):
    network = network_of(config)
    mel, z = numbers(config, batch, frames)
    (wanted,) = network.generate(mel, z)
    found = generate(fold(network), config, mel, z)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, atol=2e-5 * float(wanted.abs().max()), rtol=0)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_phase_hears_what_the_upsampled_mel_says(config):
    network = network_of(config)
    mel, _ = numbers(config, 2, 6)
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
