"""The aligner, from which FastPitch learns durations in training only (arXiv 2108.10447).

Shape letters as in model.py: B batch, N symbols, T mel frames, C channels.
"""

from collections import OrderedDict
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ALIGNER_CHANNELS = 80


@torch.no_grad()
def monotonic_alignment(log_attn: Tensor, lengths: Tensor, mel_lengths: Tensor) -> Tensor:
    """The most probable path (B, T, N) of zeros and ones: each frame stays at its symbol or advances by one.

    The recursion has one small step per frame, so it runs on the CPU, for the whole batch at once.
    """
    device, (batch, n_frames, n_symbols) = log_attn.device, log_attn.shape
    scores, lengths, mel_lengths = log_attn.float().cpu(), lengths.cpu(), mel_lengths.cpu()
    best = torch.full((batch, n_symbols + 1), -torch.inf)  # a column more: the shift is a view
    best[:, 1] = scores[:, 0, 0]
    moved = torch.zeros(n_frames, batch, n_symbols, dtype=torch.bool)
    for t in range(1, n_frames):
        stay, move = best[:, 1:], best[:, :-1]
        torch.ge(move, stay, out=moved[t])
        best[:, 1:] = scores[:, t] + torch.maximum(stay, move)
    moved[:, :, 0] = False
    valid = torch.arange(n_frames) < mel_lengths[:, None]
    moved &= valid.T[:, :, None]

    path = torch.empty(n_frames, batch, dtype=torch.int64)
    symbol = lengths - 1
    for t in reversed(range(n_frames)):
        path[t] = symbol
        symbol = symbol - moved[t].gather(1, symbol[:, None])[:, 0].long()
    hard = F.one_hot(path.T, n_symbols) * valid[:, :, None]
    return hard.to(device, log_attn.dtype)


def aligner_conv(
    channels: int, out: int, kernel_size: int = 1, gain: Literal["linear", "relu"] = "linear"
) -> nn.Module:
    conv = nn.Conv1d(channels, out, kernel_size, padding=kernel_size // 2)
    nn.init.xavier_uniform_(conv.weight, nn.init.calculate_gain(gain))
    return nn.Sequential(OrderedDict(conv=conv))


class ConvAttention(nn.Module):
    """The aligner: soft attention of mel frames over symbols, by distance in a learned space."""

    def __init__(self, n_mels: int, channels: int):
        super().__init__()
        self.query_proj = nn.Sequential(
            aligner_conv(n_mels, 2 * n_mels, 3, "relu"),
            nn.ReLU(),
            aligner_conv(2 * n_mels, n_mels),
            nn.ReLU(),
            aligner_conv(n_mels, ALIGNER_CHANNELS),
        )
        self.key_proj = nn.Sequential(
            aligner_conv(channels, 2 * channels, 3, "relu"),
            nn.ReLU(),
            aligner_conv(2 * channels, ALIGNER_CHANNELS),
        )
        self.attn_proj = nn.Conv2d(ALIGNER_CHANNELS, 1, 1)  # unused, but in every published file

    def forward(self, mel: Tensor, text: Tensor, mask: Tensor, prior: Tensor | None) -> tuple[Tensor, Tensor]:
        """mel (B, n_mels, T), text (B, C, N), mask (B, N) -> attention and its unmasked log (B, 1, T, N)."""
        query, key = self.query_proj(mel), self.key_proj(text)
        with torch.autocast(query.device.type, enabled=False):  # differences of large numbers: float32
            query, key = query.float(), key.float()
            distance = query.square().sum(1)[:, :, None] + key.square().sum(1)[:, None]
            logprob = -0.0005 * (distance - 2 * query.transpose(1, 2) @ key)
            if prior is not None:
                logprob = logprob.log_softmax(2) + torch.log(prior.float() + 1e-8)
            attn = logprob.masked_fill(~mask[:, None], -torch.inf).softmax(2)
        return attn[:, None], logprob[:, None]
