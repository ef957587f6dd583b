"""The denoiser as a stage's network; what it does, and on which windows: `melforge.common.audio.denoiser`."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from melforge.common.audio.fourier_network import Tables, WindowedFourier
from melforge.common.audio.mel import OVERLAP


class DenoiserNetwork(WindowedFourier):
    """Takes a bias spectrum out of audio; of a vocoder's config it needs the hop."""

    def __init__(self, config: Any) -> None:
        super().__init__(config.hop_length)

    def spectrum(self, audio: Tensor, tables: Tables, lengths: Tensor | None = None) -> Tensor:
        """audio (B, S) -> real and imaginary parts (B, 2, bins, T) of T = S // hop + 1 centred windows.

        With `lengths` (B,), in hops, an item is reflected at its own end.
        """
        half, count = self.size // 2, audio.shape[1] // self.hop + 1
        samples = (count + OVERLAP - 1) * self.hop
        if lengths is None:
            audio = F.pad(audio[:, None], (half, half), mode="reflect")[:, 0, :samples]
        else:
            places = torch.arange(-half, samples - half, device=audio.device).abs()[None]
            last = (lengths * self.hop - 1)[:, None]
            places = torch.minimum(places, (2 * last - places).clamp(min=0))
            audio = audio.gather(1, places)
        return self.spectra(audio.unflatten(1, (count + OVERLAP - 1, self.hop)), tables)

    def denoise(
        self, audio: Tensor, strength: Tensor, bias: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor]:
        """The stage "denoiser": audio (B, S), strength (B,), bias (bins,) -> audio (B, S // hop * hop).

        "masked_denoiser" takes `lengths` (B,) too, the hops after which an item ends and zeros follow.
        """
        tables, tiny = self.tables(), torch.finfo(torch.float32).tiny
        spectrum = self.spectrum(audio, tables, lengths)
        count, frames = spectrum.shape[3], audio.shape[1] // self.hop
        real, imaginary = spectrum.unbind(1)
        magnitude = (real * real + imaginary * imaginary).sqrt().clamp(min=tiny)
        hum = (strength[:, None] * (bias[self.bins] * self.counts))[:, :, None]
        gain = (self.counts[:, None] - hum / magnitude).clamp(min=0)
        inside = torch.ones(1, count, device=audio.device)
        if lengths is not None:
            inside = (torch.arange(count, device=audio.device) <= lengths[:, None]).to(audio.dtype)
            gain = gain * inside[:, None]
        total = self.overlapped(spectrum * gain[:, None], tables)
        windows = torch.stack([F.pad(inside, (i, OVERLAP - 1 - i)) for i in range(OVERLAP)], dim=2)
        weight = torch.matmul(windows, self.squares)  # (B, T + OVERLAP - 1, hop)
        kept = slice(OVERLAP // 2, OVERLAP // 2 + frames)
        denoised = total[:, kept] / weight[:, kept].clamp(min=tiny)
        if lengths is not None:  # a window's edge alone, divided by its weight, is as large as may be
            denoised = denoised * inside[:, 1:, None]
        return (denoised.flatten(1),)
