"""Runs WaveGlow's kernels in Triton's interpreter and prints their error, as part of the largest value."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # is read when the kernels are defined
sys.path.insert(0, str(Path.cwd()))

import torch
import triton
import triton.language as tl

from trt_plugins.waveglow import kernels
from trt_plugins.waveglow.engine import Shape
from trt_plugins.waveglow.fold import fold
from waveglow.config import WaveglowConfig
from waveglow.model import Waveglow


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


kernels._tanh = _tanh  # which is an instruction of the GPU
lengths = torch.tensor([int(length) for length in sys.argv[1].split(",")]) if sys.argv[1] else None
config = WaveglowConfig(
    n_mel_channels=20,
    n_flows=3,
    n_early_every=2,
    wn_layers=3,
    wn_channels=80,
    hop_length=32,
    upsample_kernel_size=100,
)
torch.manual_seed(0)
network = Waveglow(config, weight_norm=False).eval().requires_grad_(False)
for name, weight in network.named_parameters():
    if name.endswith(("end.weight", "end.bias")):
        weight.normal_(0, 0.05)
mel, z = torch.randn(2, 20, 37) * 2 - 5, torch.randn(2, 8, 37 * 4) * 0.6
(wanted,) = network.generate(mel, z, lengths)
shape = Shape(config, fold(network), 2, 37, "cpu")
shape.inputs["mel"].copy_(mel)
shape.inputs["z"].copy_(z)
if lengths is not None:
    shape.inputs["lengths"].copy_(lengths)
shape.launch()
print(float((shape.audio - wanted).abs().max() / wanted.abs().max()))
