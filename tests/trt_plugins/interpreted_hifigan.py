"""Runs HiFi-GAN's kernels in Triton's interpreter and prints their error, as part of the largest value."""

import dataclasses
import sys

import torch
import triton.language as tl  # noqa: F401 (which a kernel must see)

from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import HifiganGenerator
from melforge.trt_plugins.hifigan import engine
from tests.trt_plugins.vocoder_kernels import print_error

PUBLISHED = HifiganConfig(
    n_mel_channels=20,
    upsample_rates=(4, 4, 2),
    upsample_kernel_sizes=(8, 8, 4),
    upsample_initial_channel=160,
    resblock_kernel_sizes=(3, 7),
    resblock_dilation_sizes=((1, 3), (1, 3)),
)
CONFIGS = {
    "1": PUBLISHED,
    "2": dataclasses.replace(
        PUBLISHED, upsample_kernel_sizes=(6, 12, 4), resblock="2", resblock_dilation_sizes=((1, 2), (2, 4))
    ),
    "dilations": dataclasses.replace(PUBLISHED, resblock_dilation_sizes=((2, 3), (2, 4))),
    "upsampling": dataclasses.replace(
        PUBLISHED,
        upsample_rates=(3, 2, 4),
        upsample_kernel_sizes=(9, 2, 6),
        resblock_dilation_sizes=((1,), (1,)),
    ),
}
config = CONFIGS[sys.argv[1]]
torch.manual_seed(0)
network = HifiganGenerator(config, weight_norm=False).eval().requires_grad_(False)
mel = torch.randn(2, config.n_mel_channels, 11) * 2 - 5
print_error(engine.HifiganKernels, network, sys.argv[2], mel=mel)
