"""FastSpeech as NVIDIA's CUDA-Optimized project has it: text to mel in one pass (arXiv 1905.09263).

Parameter names are those of the published checkpoints, except for the sinusoid table, which is shared here.
Shape letters: B batch, N symbols, T mel frames, C channels.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.arrays import length_mask, round_half_even
from melforge.fastspeech.config import HEAD_SIZE, FastSpeechConfig
from melforge.fastspeech.operations import DECOMPOSED, Operations, gather_steps

MASKED_SCORE = -65504.0  # as published for padded keys: the lowest float16


class FastSpeechPrediction(NamedTuple):
    """What the training forward returns."""

    mel: Tensor  # (B, n_mels, T)
    mel_mask: Tensor  # (B, T) True at valid frames
    log_duration: Tensor  # (B, N) log(1 + frames)


def sinusoids(positions: int, channels: int) -> Tensor:
    """(positions + 1, C): sines in even channels, cosines in odd ones; row 0, for padding, holds zeros."""
    channel = np.arange(channels)
    angles = np.arange(positions + 1)[:, None] / np.power(10000.0, 2 * (channel // 2) / channels)
    table = np.where(channel % 2, np.cos(angles), np.sin(angles))
    table[0] = 0.0
    return torch.from_numpy(table.astype(np.float32))


class FastSpeechAttention(nn.Module):
    """Heads of 64 channels; `linear` has each head's queries, keys and values together."""

    def __init__(self, channels: int, n_heads: int, dropout: float):
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.linear = nn.Linear(channels, n_heads * 3 * HEAD_SIZE)
        self.layer_norm = nn.LayerNorm(channels)
        self.fc = nn.Linear(n_heads * HEAD_SIZE, channels)
        self.drop = nn.Dropout(dropout)

    def attend(self, x: Tensor, score_bias: Tensor) -> Tensor:
        """x (B, T, C) -> the heads' outputs, (B, T, heads * 64)."""
        heads = self.linear(x).unflatten(2, (self.n_heads, 3 * HEAD_SIZE)).transpose(1, 2)
        q, k, v = heads.chunk(3, dim=3)  # (B, heads, T, 64)
        dropout = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, score_bias.to(q.dtype), dropout)
        return seen.transpose(1, 2).flatten(2)

    def forward(self, x: Tensor, score_bias: Tensor) -> Tensor:
        return self.layer_norm(x + self.drop(self.fc(self.attend(x, score_bias))))


class FastSpeechFeedForward(nn.Module):
    def __init__(self, channels: int, hidden: int, config: FastSpeechConfig):
        super().__init__()
        self.mask_padding = config.mask_padding
        kernel, padding = config.fft_conv1d_kernel, config.fft_conv1d_padding
        self.w_1 = nn.Conv1d(channels, hidden, kernel, padding=padding)
        self.w_2 = nn.Conv1d(hidden, channels, kernel, padding=padding)
        self.layer_norm = nn.LayerNorm(channels)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        hidden = F.relu(self.w_1(x.transpose(1, 2)))
        if self.mask_padding:
            hidden = hidden * mask.transpose(1, 2)
        return self.layer_norm(x + self.drop(self.w_2(hidden).transpose(1, 2)))


class FastSpeechLayer(nn.Module):
    def __init__(self, channels: int, n_heads: int, hidden: int, config: FastSpeechConfig):
        super().__init__()
        self.slf_attn = FastSpeechAttention(channels, n_heads, config.dropout)
        self.pos_ffn = FastSpeechFeedForward(channels, hidden, config)

    def forward(self, x: Tensor, mask: Tensor, score_bias: Tensor) -> Tensor:
        x = self.slf_attn(x, score_bias) * mask
        return self.pos_ffn(x, mask) * mask


class FastSpeechTransformer(nn.Module):
    """The stack of layers on one side of the length regulator: "phoneme_side" or "mel_side"."""

    def __init__(self, config: FastSpeechConfig, side: str):
        super().__init__()
        heads, hidden = (getattr(config, f"{side}_{what}") for what in ("head", "conv1d_filter_size"))
        self.layer_stack = nn.ModuleList(
            FastSpeechLayer(config.d_model, heads, hidden, config)
            for _ in range(getattr(config, f"{side}_n_layer"))
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (B, T, C) with its positions, mask (B, T, 1)."""
        score_bias = MASKED_SCORE * (~mask).to(x.dtype).transpose(1, 2)[:, None]  # (B, 1, 1, T)
        for layer in self.layer_stack:
            x = layer(x, mask, score_bias)
        return x


class DurationPredictor(nn.Module):
    """log(1 + frames) of each symbol."""

    def __init__(self, config: FastSpeechConfig):
        super().__init__()
        self.mask_padding = config.mask_padding
        filters, kernel = config.duration_predictor_filter_size, config.duration_predictor_kernel_size
        self.conv1d_1 = nn.Conv1d(config.d_model, filters, kernel, padding=kernel // 2)
        self.layer_norm_1 = nn.LayerNorm(filters)
        self.conv1d_2 = nn.Conv1d(filters, filters, kernel, padding=kernel // 2)
        self.layer_norm_2 = nn.LayerNorm(filters)
        self.linear_layer = nn.Linear(filters, 1)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for conv, norm in ((self.conv1d_1, self.layer_norm_1), (self.conv1d_2, self.layer_norm_2)):
            x = self.drop(norm(F.relu(conv(x.transpose(1, 2)).transpose(1, 2))))
            if self.mask_padding:
                x = x * mask
        return (self.linear_layer(x) * mask).squeeze(2)  # (B, N)


class FastSpeechLengthRegulator(nn.Module):
    """Holds the duration predictor under its published name; the repetition itself is an operation."""

    def __init__(self, config: FastSpeechConfig):
        super().__init__()
        self.duration_predictor = DurationPredictor(config)


class FastSpeech(nn.Module):
    """The published network.

    Two forms run the same weights: `encode` and `decode`, with the length regulator's index computed between
    them; and `synthesise`, all in one with a given output length. `forward` is for training.
    """

    def __init__(self, config: FastSpeechConfig, operations: Operations = DECOMPOSED):
        super().__init__()
        self.config, self.operations = config, operations
        self.word_emb = nn.Embedding(config.n_symbols, config.d_model, padding_idx=config.padding_idx)
        self.position = nn.Embedding.from_pretrained(sinusoids(config.max_seq_len, config.d_model))
        self.phoneme_side = FastSpeechTransformer(config, "phoneme_side")
        self.length_regulator = FastSpeechLengthRegulator(config)
        self.mel_side = FastSpeechTransformer(config, "mel_side")
        self.mel_linear = nn.Linear(config.d_model, config.n_mel_channels)

    def encode(self, symbols: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Stage "encoder": symbols (B, N) -> encoded (B, N, C), frames (B, N) before alpha."""
        encoded, mask = self._encode_symbols(symbols, lengths)
        return encoded, self._durations(encoded, mask)

    def decode(self, encoded: Tensor, repeat_index: Tensor, mel_lengths: Tensor) -> tuple[Tensor]:
        """Stage "decoder": encoded (B, N, C), each frame's symbol (B, T) -> mel (B, n_mels, T)."""
        return (self._decode_frames(gather_steps(encoded, repeat_index), mel_lengths),)

    def synthesise(
        self, symbols: Tensor, lengths: Tensor, alpha: Tensor, frames: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Stage "synthesis": symbols (B, N), alpha (1,), frames 0 to T - 1 (T,) -> mel (B, n_mels, T), its
        valid frames (B,), the total frames (B,) before cropping to T, durations (B, N) before alpha.
        """
        encoded, duration = self.encode(symbols, lengths)
        counts = round_half_even(duration * alpha)
        total = counts.sum(1)
        mel_lengths = total.clamp(max=frames.size(0))
        mel = self._decode_frames(self.operations.repeat(encoded, counts, frames), mel_lengths)
        return mel, mel_lengths, total, duration

    def forward(
        self, symbols: Tensor, lengths: Tensor, durations: Tensor, frames: Tensor
    ) -> FastSpeechPrediction:
        """Training on given durations (B, N) int64; `frames` counts 0 to T - 1 (T,)."""
        encoded, mask = self._encode_symbols(symbols, lengths)
        log_duration = self.length_regulator.duration_predictor(encoded, mask)
        mel_lengths = durations.sum(1).clamp(max=frames.size(0))
        mel = self._decode_frames(self.operations.repeat(encoded, durations, frames), mel_lengths)
        return FastSpeechPrediction(mel, length_mask(mel_lengths, frames.size(0)), log_duration)

    def log_durations(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """Symbols (B, N) -> log(1 + frames) (B, N), before anything is rounded."""
        return self.length_regulator.duration_predictor(*self._encode_symbols(symbols, lengths))

    def _encode_symbols(self, symbols: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        mask = length_mask(lengths, symbols.size(1))[:, :, None]
        x = self.operations.add_pos_enc(self.word_emb(symbols), lengths, self.position.weight)
        return self.phoneme_side(x, mask) * mask, mask

    def _durations(self, encoded: Tensor, mask: Tensor) -> Tensor:
        return (self.length_regulator.duration_predictor(encoded, mask).exp() - 1).clamp(min=0)

    def _decode_frames(self, repeated: Tensor, mel_lengths: Tensor) -> Tensor:
        mask = length_mask(mel_lengths, repeated.size(1))[:, :, None]
        placed = self.operations.add_pos_enc(repeated * mask, mel_lengths, self.position.weight)
        return self.mel_linear(self.mel_side(placed, mask)).transpose(1, 2)
