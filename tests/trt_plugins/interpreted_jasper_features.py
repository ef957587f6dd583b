"""Runs the kernels of Jasper's features in Triton's interpreter and prints their largest error."""

import torch
import triton.language as tl  # noqa: F401 (which a kernel must see)

from melforge.jasper.config import JasperConfig
from melforge.jasper.features_network import JasperFeatures
from melforge.trt_plugins.jasper.features import KernelFeatures

torch.manual_seed(0)
errors = []
for config in (JasperConfig(), JasperConfig(win_length=400, n_mel_channels=80, hop_length=128)):
    hop, network = config.hop_length, JasperFeatures(config)
    lengths = torch.tensor([70 * hop - 37, 5000, 2 * hop + 1])
    audio = 0.1 * torch.randn(3, 70 * hop) * (torch.arange(70 * hop) < lengths[:, None])
    wanted, frames = network.extract_each(audio, lengths)
    found, counts = KernelFeatures(network).extract_each(audio, lengths)
    assert counts.dtype == torch.int64 and counts.tolist() == frames.tolist()
    errors.append(float((found - wanted).abs().max()))
print(max(errors))
