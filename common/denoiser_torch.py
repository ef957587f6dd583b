"""The denoiser of `common.denoiser` as a torch module to export: its Fourier transforms are convolutions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from common.audio import MelContract, analysis_window
from common.denoiser import check_bias


class DenoiserNetwork(nn.Module):
    """Buffers derived from the contract alone are left out of the state dict, which holds the bias."""

    def __init__(self, bias: np.ndarray, contract: MelContract | None = None) -> None:
        super().__init__()
        self.contract = contract or MelContract()
        size = self.contract.filter_length
        window = analysis_window(self.contract).astype(np.float64)
        analysis = np.fft.rfft(np.eye(size)).T  # (bins, size)
        synthesis = analysis.conj() * (2 / size)
        synthesis[0] /= 2
        if size % 2 == 0:
            synthesis[-1] /= 2
        self.register_buffer("bias", torch.from_numpy(check_bias(bias, self.contract).copy()))
        self._keep("analysis", np.concatenate((analysis.real, analysis.imag)) * window)
        self._keep("synthesis", np.concatenate((synthesis.real, -synthesis.imag)) * window)
        self._keep("squared_window", window[None] ** 2)

    def _keep(self, name: str, kernel: np.ndarray) -> None:
        value = torch.from_numpy(kernel.astype(np.float32))[:, None]  # (channels, 1, size)
        self.register_buffer(name, value, persistent=False)

    def denoise(self, audio: Tensor, strength: Tensor) -> tuple[Tensor]:
        """The stage "denoiser": audio (B, S), strength (B,) -> audio (B, S // hop * hop)."""
        hop, half = self.contract.hop_length, self.contract.filter_length // 2
        padded = F.pad(audio[:, None], (half, half), mode="reflect")
        spectrum = F.conv1d(padded, self.analysis, stride=hop)  # (B, 2 * bins, T), real then imaginary
        real, imaginary = spectrum.chunk(2, dim=1)
        magnitude = (real.square() + imaginary.square()).sqrt()
        left = (magnitude - strength[:, None, None] * self.bias[:, None]).clamp(min=0)
        gain = left / magnitude.clamp(min=torch.finfo(torch.float32).tiny)
        total = F.conv_transpose1d(torch.cat((real * gain, imaginary * gain), 1), self.synthesis, stride=hop)
        ones = torch.ones_like(magnitude[:, :1])
        weight = F.conv_transpose1d(ones, self.squared_window, stride=hop)
        kept = slice(half, half + (audio.shape[1] // hop) * hop)
        weight = weight[:, 0, kept]
        return (total[:, 0, kept] / torch.where(weight > torch.finfo(torch.float32).tiny, weight, 1.0),)

    def forward(self, audio: Tensor, strength: float = 0.1) -> Tensor:
        """audio (B, S) -> audio (B, S // hop * hop)."""
        return self.denoise(audio, audio.new_full((audio.shape[0],), strength))[0]
