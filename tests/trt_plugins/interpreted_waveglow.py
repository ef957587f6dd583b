"""Runs WaveGlow's kernels in Triton's interpreter and prints their error, as part of the largest value."""

import dataclasses
import sys

import torch

from melforge.trt_plugins.waveglow import engine
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.model import Waveglow
from tests.trt_plugins.vocoder_kernels import print_error

PUBLISHED = WaveglowConfig(
    n_mel_channels=20,
    n_flows=3,
    n_early_every=2,
    wn_layers=3,
    wn_channels=80,
    hop_length=32,
    upsample_kernel_size=100,
)
CONFIGS = {
    "as published": PUBLISHED,
    "as in the voice": dataclasses.replace(PUBLISHED, wn_channels=24, cond_channels=10, upsample_groups=20),
    "taps": dataclasses.replace(
        PUBLISHED, wn_channels=24, upsample_groups=5, wn_kernel_size=5, upsample_kernel_size=64
    ),
}
config = CONFIGS[sys.argv[1]]
torch.manual_seed(0)
network = Waveglow(config, weight_norm=False).eval().requires_grad_(False)
for name, weight in network.named_parameters():
    if name.endswith(("end.weight", "end.bias")):
        weight.normal_(0, 0.05)
mel, z = torch.randn(2, 20, 37) * 2 - 5, torch.randn(2, 8, 37 * 4) * 0.6
print_error(engine.WaveglowKernels, network, sys.argv[2], mel=mel, z=z)
