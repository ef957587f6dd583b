"""The mel spectrogram of audio/mel.py as a torch module: for losses and features on a GPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from melforge.common.audio.contract import MelContract
from melforge.common.audio.mel import POWER_FLOOR, mel_basis, padding_of


class MelSpectrogram(nn.Module):
    """audio (B, S) or (B, 1, S) in [-1, 1] -> log mel float32 (B, n_mels, T), whatever autocast says."""

    basis: Tensor
    window: Tensor

    def __init__(self, contract: MelContract) -> None:
        super().__init__()
        self.contract, self.padding = contract, padding_of(contract)
        self.register_buffer("basis", torch.from_numpy(mel_basis(contract).copy()), persistent=False)
        # torch's own window (computed in float32) rather than the exact one: published vocoders were trained
        # with it, and in nearly silent bands its rounding is what the logarithm shows.
        self.register_buffer("window", torch.hann_window(contract.win_length), persistent=False)

    def forward(self, audio: Tensor) -> Tensor:
        audio = audio.squeeze(1) if audio.dim() == 3 else audio
        with torch.autocast(audio.device.type, enabled=False):
            padded = F.pad(audio.float()[:, None], (self.padding, self.padding), mode="reflect")[:, 0]
            sizes = self.contract.filter_length, self.contract.hop_length, self.contract.win_length
            spectrum = torch.stft(padded, *sizes, self.window, center=False, return_complex=True)
            magnitude = (spectrum.real.square() + spectrum.imag.square() + POWER_FLOOR).sqrt()
            mel = (self.basis @ magnitude).clamp(min=self.contract.mel_clamp)
            return mel.log() if self.contract.mel_log == "natural" else mel.log10()
