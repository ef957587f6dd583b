"""FastPitch 1.1: text to mel in one pass, with predicted durations, pitch and energy (arXiv 2006.06873).

Parameter names are those of the published checkpoints.
Shape letters: B batch, N symbols, T mel frames, C channels.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.arrays import length_mask, round_half_up
from melforge.fastpitch.aligner import ConvAttention, monotonic_alignment
from melforge.fastpitch.config import LONGEST_SYMBOL, FastPitchConfig

# Added to the attention scores of padded keys: far below any score, but within the range of float16.
MASKED_SCORE = -6e4


class Synthesis(NamedTuple):
    """What `infer` returns; `energy` is what the decoder used."""

    mel: Tensor  # (B, n_mels, T)
    mel_lengths: Tensor  # (B,)
    duration: Tensor  # (B, N) predicted frames
    pitch: Tensor  # (B, 1, N)
    energy: Tensor | None  # (B, N)


class Prediction(NamedTuple):
    """What the training forward returns. The attention fields are None where durations were given."""

    mel: Tensor  # (B, n_mels, T)
    mel_mask: Tensor  # (B, T) True at valid frames
    log_duration: Tensor  # (B, N) log(1 + frames)
    pitch: Tensor  # (B, 1, N)
    energy: Tensor | None  # (B, N)
    duration_target: Tensor  # (B, N) int64 frames
    pitch_target: Tensor  # (B, 1, N)
    energy_target: Tensor | None  # (B, N) log(1 + energy)
    attn_soft: Tensor | None  # (B, 1, T, N)
    attn_hard: Tensor | None  # (B, 1, T, N)
    attn_logprob: Tensor | None  # (B, 1, T, N)


def make_repeat_index(repeats: Tensor, n_frames: int) -> Tensor:
    """(B, N) integer durations -> (B, n_frames): the symbol index of each frame."""
    ends = repeats.cumsum(1)
    frames = torch.arange(n_frames, device=repeats.device).expand(len(repeats), -1).contiguous()
    return torch.searchsorted(ends, frames, right=True).clamp(max=repeats.size(1) - 1)


def average_over_symbols(values: Tensor, durations: Tensor) -> Tensor:
    """Mean of a frame-level signal (B, 1, T) over each symbol's frames (B, N), without zeros (unvoiced)."""
    ends = durations.cumsum(1).clamp(max=values.size(2))[:, None]
    starts = F.pad(ends[:, :, :-1], (1, 0))
    sums, counts = (F.pad(x.float().cumsum(2), (1, 0)) for x in (values, values != 0))
    total = sums.gather(2, ends) - sums.gather(2, starts)
    count = counts.gather(2, ends) - counts.gather(2, starts)
    return torch.where(count > 0, total / count.clamp(min=1), 0.0)


class PositionalEmbedding(nn.Module):
    inv_freq: Tensor

    def __init__(self, channels: int):
        super().__init__()
        self.register_buffer("inv_freq", 10000 ** (-torch.arange(0.0, channels, 2.0) / channels))

    def forward(self, size: int) -> Tensor:
        # In float32 whatever the network's precision: float16 cannot count beyond 2048.
        positions = torch.arange(size, device=self.inv_freq.device).float()
        angles = positions[:, None] * self.inv_freq.float()
        return torch.cat([angles.sin(), angles.cos()], dim=1)  # (size, C)


class SelfAttention(nn.Module):
    def __init__(self, channels: int, n_heads: int, d_head: int, dropout: float, attention_dropout: float):
        super().__init__()
        self.n_heads, self.d_head, self.attention_dropout = n_heads, d_head, attention_dropout
        self.qkv_net = nn.Linear(channels, 3 * n_heads * d_head)
        self.o_net = nn.Linear(n_heads * d_head, channels, bias=False)
        self.drop = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, score_bias: Tensor) -> Tensor:
        heads = (part.unflatten(2, (self.n_heads, self.d_head)) for part in self.qkv_net(x).chunk(3, dim=2))
        q, k, v = (part.transpose(1, 2) for part in heads)  # (B, heads, time, d_head)
        dropout = self.attention_dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, score_bias.to(q.dtype), dropout)
        return self.layer_norm(x + self.drop(self.o_net(out.transpose(1, 2).flatten(2))))


class ConvFeedForward(nn.Module):
    def __init__(self, channels: int, hidden: int, kernel_size: int, dropout: float, mask_padding: bool):
        super().__init__()
        self.mask_padding = mask_padding
        self.CoreNet = nn.Sequential(
            nn.Conv1d(channels, hidden, kernel_size, padding=kernel_size // 2),
            nn.ReLU(),
            nn.Conv1d(hidden, channels, kernel_size, padding=kernel_size // 2),
            nn.Dropout(dropout),
        )
        self.layer_norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        expand, relu, contract, dropout = self.CoreNet
        hidden = relu(expand(x.transpose(1, 2)))
        if self.mask_padding:
            hidden = hidden * mask.transpose(1, 2)
        return self.layer_norm(x + dropout(contract(hidden)).transpose(1, 2))


class TransformerLayer(nn.Module):
    def __init__(self, attention: SelfAttention, feed_forward: ConvFeedForward):
        super().__init__()
        self.dec_attn = attention
        self.pos_ff = feed_forward

    def forward(self, x: Tensor, mask: Tensor, score_bias: Tensor) -> Tensor:
        x = self.dec_attn(x, score_bias) * mask
        return self.pos_ff(x, mask) * mask


class Transformer(nn.Module):
    """The stack of feed-forward transformer layers on either side of the length regulator."""

    def __init__(self, config: FastPitchConfig, side: str):
        super().__init__()

        def sizes(*names: str):
            return [getattr(config, name.replace("fft", f"{side}_fft")) for name in names]

        attention = sizes("fft_n_heads", "fft_d_head", "p_fft_dropout", "p_fft_dropatt")
        filters = sizes("fft_conv1d_filter_size", "fft_conv1d_kernel_size", "p_fft_dropout")
        n_layers, dropout = sizes("fft_n_layers", "p_fft_dropemb")
        channels = config.symbols_embedding_dim
        if side == "in":
            self.word_emb = nn.Embedding(config.n_symbols, channels, padding_idx=config.padding_idx)
        self.pos_emb = PositionalEmbedding(channels)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(
                SelfAttention(channels, *attention),
                ConvFeedForward(channels, *filters, mask_padding=config.mask_padding),
            )
            for _ in range(n_layers)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (B, time, C), mask (B, time, 1)."""
        x = self.drop(x + self.pos_emb(x.size(1)).to(x.dtype) * mask)
        score_bias = MASKED_SCORE * (~mask).to(x.dtype).transpose(1, 2)[:, None]  # (B, 1, 1, time)
        for layer in self.layers:
            x = layer(x, mask, score_bias)
        return x


class ConvReluNorm(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, dropout: float):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)
        self.norm = nn.LayerNorm(out_channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.dropout(self.norm(x))


class Predictor(nn.Module):
    """One scalar per symbol: its log duration, pitch or energy."""

    def __init__(self, config: FastPitchConfig, name: str):
        super().__init__()
        filters = getattr(config, f"{name}_predictor_filter_size")
        kernel_size = getattr(config, f"{name}_predictor_kernel_size")
        dropout = getattr(config, f"p_{name}_predictor_dropout")
        sizes = [config.in_fft_output_size] + [filters] * getattr(config, f"{name}_predictor_n_layers")
        self.mask_padding = config.mask_padding
        self.layers = nn.ModuleList(
            ConvReluNorm(n_in, n_out, kernel_size, dropout) for n_in, n_out in pairwise(sizes)
        )
        self.fc = nn.Linear(sizes[-1], 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x * mask
        for layer in self.layers:
            x = layer(x)
            if self.mask_padding:
                x = x * mask
        return (self.fc(x) * mask).squeeze(2)  # (B, N)


def _forgive_missing_aligner(_: nn.Module, incompatible: Any) -> None:
    """Allows weights without the aligner, which is used in training only."""
    missing = incompatible.missing_keys
    missing[:] = [name for name in missing if not name.startswith("attention.")]


class FastPitch(nn.Module):
    """The published network. `encode` and `decode` are its two stages; `forward` is for training."""

    def __init__(self, config: FastPitchConfig):
        super().__init__()
        self.config = config
        channels = config.symbols_embedding_dim
        self.encoder = Transformer(config, "in")
        self.speaker_emb = nn.Embedding(config.n_speakers, channels) if config.n_speakers > 1 else None
        self.duration_predictor = Predictor(config, "dur")
        self.decoder = Transformer(config, "out")
        self.pitch_predictor = Predictor(config, "pitch")
        self.pitch_emb = self._embedding_of_value(config.pitch_embedding_kernel_size)
        self.pitch_mean: Tensor
        self.pitch_std: Tensor
        self.register_buffer("pitch_mean", torch.zeros(1))
        self.register_buffer("pitch_std", torch.zeros(1))
        if config.energy_conditioning:
            self.energy_predictor = Predictor(config, "energy")
            self.energy_emb = self._embedding_of_value(config.energy_embedding_kernel_size)
        self.proj = nn.Linear(config.out_fft_output_size, config.n_mel_channels)
        self.attention = ConvAttention(config.n_mel_channels, channels)
        self.register_load_state_dict_post_hook(_forgive_missing_aligner)

    def _embedding_of_value(self, kernel_size: int) -> nn.Conv1d:
        return nn.Conv1d(1, self.config.symbols_embedding_dim, kernel_size, padding=(kernel_size - 1) // 2)

    def encode(
        self, symbols: Tensor, lengths: Tensor, speaker: Tensor | None = None, max_duration: float = 100.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Stage "encoder": symbols (B, N) -> encoded (B, N, C), frames (B, N), pitch (B, 1, N).

        `speaker` (B, n_speakers) is each speaker's share of the voice; or (B,) numbers, by default 0.
        """
        encoded, mask = self._encode_symbols(symbols, lengths, speaker)
        duration = torch.clamp(torch.exp(self.duration_predictor(encoded, mask)) - 1, 0.0, max_duration)
        return encoded, duration, self.pitch_predictor(encoded, mask)[:, None]

    def decode(
        self,
        encoded: Tensor,
        lengths: Tensor,
        pitch: Tensor,
        repeat_index: Tensor,
        mel_lengths: Tensor,
        energy: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Stage "decoder": -> mel (B, n_mels, T), and energy (B, N) in a network with energy."""
        # The encoder gives zeros at a padding symbol inside a text; the published network masks these too.
        mask = length_mask(lengths, encoded.size(1))[:, :, None] & (encoded != 0).any(2, keepdim=True)
        encoded = self._add_value(encoded, pitch, self.pitch_emb, mask)
        if not self.config.energy_conditioning:
            return (self._decode_frames(encoded, repeat_index, mel_lengths),)
        loudness: Tensor = self.energy_predictor(encoded, mask) if energy is None else energy
        encoded = self._add_value(encoded, loudness[:, None], self.energy_emb, mask)
        return self._decode_frames(encoded, repeat_index, mel_lengths), loudness

    @torch.no_grad()
    def infer(
        self,
        symbols: Tensor,
        lengths: Tensor | None = None,
        speaker: Tensor | int | None = None,
        *,
        durations: Tensor | None = None,
        pitch: Tensor | None = None,
        energy: Tensor | None = None,
    ) -> Synthesis:
        """Symbols to mel. Without `lengths`, padding is where the padding symbol is.

        Given `durations` (B, N), `pitch` (B, 1, N) or `energy` (B, N) replace the predictions.
        """
        if lengths is None:
            lengths = torch.full_like(symbols[:, 0], symbols.size(1))
        if speaker is not None:
            speaker = torch.as_tensor(speaker, device=symbols.device).expand(len(symbols))
        encoded, duration, predicted_pitch = self.encode(symbols, lengths, speaker, LONGEST_SYMBOL)
        repeats = round_half_up((duration if durations is None else durations).float())
        mel_lengths = repeats.sum(1)
        mel, *used_energy = self.decode(
            encoded,
            lengths,
            predicted_pitch if pitch is None else pitch,
            make_repeat_index(repeats, int(mel_lengths.max())),
            mel_lengths,
            None if energy is None else energy.flatten(1),
        )
        return Synthesis(mel, mel_lengths, duration, predicted_pitch, used_energy[0] if used_energy else None)

    def forward(
        self,
        symbols: Tensor,
        lengths: Tensor,
        mel: Tensor,
        mel_lengths: Tensor,
        pitch: Tensor,
        energy: Tensor | None = None,
        speaker: Tensor | None = None,
        attn_prior: Tensor | None = None,
        durations: Tensor | None = None,
    ) -> Prediction:
        """Training, with pitch (B, 1, T) and energy (B, T) per frame, the latter before log(1 + x).

        Without `durations` (B, N) the aligner finds them, with `attn_prior` (B, T, N) as its prior. With them
        no aligner runs and the host is not synchronised with, so that a CUDA graph can capture the step.
        """
        encoded, mask = self._encode_symbols(symbols, lengths, speaker)
        log_duration = self.duration_predictor(encoded, mask)
        predicted_pitch = self.pitch_predictor(encoded, mask)[:, None]

        attn_soft = attn_hard = attn_logprob = None
        if durations is None:
            text_mask = length_mask(lengths, symbols.size(1))
            text = self.encoder.word_emb(symbols).transpose(1, 2)
            attn_soft, attn_logprob = self.attention(mel, text, text_mask, attn_prior)
            attn_hard = monotonic_alignment(attn_soft[:, 0].log(), lengths, mel_lengths)[:, None]
            durations = attn_hard.sum(2)[:, 0]
        durations = durations.long()

        pitch_target = average_over_symbols(pitch, durations)
        encoded = self._add_value(encoded, pitch_target, self.pitch_emb, mask)
        predicted_energy = energy_target = None
        if self.config.energy_conditioning:
            assert energy is not None
            predicted_energy = self.energy_predictor(encoded, mask)
            measured = torch.log1p(average_over_symbols(energy[:, None], durations))[:, 0]
            # A symbol without frames has no energy. Zero would be learnt, as the loudest sound that there is,
            # which a pause gets where durations are predicted: there stands what inference will have.
            energy_target = torch.where(durations > 0, measured, predicted_energy.detach().to(measured.dtype))
            encoded = self._add_value(encoded, energy_target[:, None], self.energy_emb, mask)

        n_frames = mel.size(2)
        decoded_lengths = durations.sum(1).clamp(max=n_frames)
        decoded = self._decode_frames(encoded, make_repeat_index(durations, n_frames), decoded_lengths)
        predicted = log_duration, predicted_pitch, predicted_energy
        targets, attention = (durations, pitch_target, energy_target), (attn_soft, attn_hard, attn_logprob)
        return Prediction(decoded, length_mask(decoded_lengths, n_frames), *predicted, *targets, *attention)

    def _symbol_mask(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        return (symbols != self.config.padding_idx) & length_mask(lengths, symbols.size(1))

    def _encode_symbols(
        self, symbols: Tensor, lengths: Tensor, speaker: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        mask = self._symbol_mask(symbols, lengths)[:, :, None]
        x = self.encoder.word_emb(symbols)
        if self.speaker_emb is not None:
            if speaker is None:
                speaker = torch.zeros_like(lengths)
            shared = speaker.is_floating_point()
            own = speaker @ self.speaker_emb.weight if shared else self.speaker_emb(speaker)
            x = x + self.config.speaker_emb_weight * own[:, None]
        return self.encoder(x, mask), mask

    def _add_value(self, encoded: Tensor, value: Tensor, embedding: nn.Conv1d, mask: Tensor) -> Tensor:
        """Adds the embedding of one scalar per symbol, value (B, 1, N)."""
        if self.config.mask_padding:
            value = value * mask.transpose(1, 2)
        return encoded + embedding(value).transpose(1, 2)

    def _decode_frames(self, encoded: Tensor, repeat_index: Tensor, mel_lengths: Tensor) -> Tensor:
        batch, n_symbols, _ = encoded.shape
        first = torch.arange(batch, device=encoded.device)[:, None] * n_symbols
        frames = F.embedding(repeat_index + first, encoded.flatten(0, 1))  # one Gather: (B, T, C)
        mask = length_mask(mel_lengths, repeat_index.size(1))[:, :, None]
        return self.proj(self.decoder(frames * mask, mask)).transpose(1, 2)
