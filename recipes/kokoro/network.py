"""Kokoro-82M's network in PyTorch: phonemes and a style to durations, pitch, energy and a waveform of 24 kHz.

The layout is StyleTTS 2's (Li et al. 2023, arXiv:2306.07691) with iSTFTNet's decoder (Kaneko et al. 2022,
arXiv:2203.02395). Utterances of different lengths stand in one batch: what is behind an item's end is zero
before every layer that looks aside, and means are of what an item has, so that each sounds as if alone.

Shape letters: B batch, N phonemes, C channels, T steps, S samples. A frame of durations has 600 samples, 25
ms; pitch and energy have two values a frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

RATE = 24_000  # Hz
FRAME, HALF = 600, 300  # samples of a duration's frame, and of a value of pitch or energy
LONGEST = 510  # phonemes
HARMONICS, SINE, VOICED = 9, 0.1, 10.0  # of the source: how many, their amplitude, Hz where they begin
NOISE_VOICED, NOISE = 0.003, 0.1 / 3  # beside the sines, and where there are none
WINDOW, HOP = 20, 5  # samples, of the inverse STFT at the decoder's end
MASKED_SCORE = -1e9


@dataclass(frozen=True)
class KokoroConfig:
    """Kokoro-82M's sizes; others are for tests."""

    symbols: int = 178
    style: int = 128  # each half of a voice's style has so many numbers: the decoder's, then the prosody's
    channels: int = 512  # of encoded phonemes; pitch and energy end with half as many
    albert_embedding: int = 128
    albert_channels: int = 768
    albert_hidden: int = 2048
    albert_heads: int = 12
    albert_repeats: int = 12
    durations: int = 50  # the longest, in frames
    decoder_channels: int = 1024
    decoder_residual: int = 64  # of what the decoder sees of the phonemes in each of its blocks
    generator_channels: tuple[int, int] = (256, 128)


class Prosody(NamedTuple):
    """What is known before a sample is made."""

    durations: Tensor  # (B, N) int64: frames of each phoneme, 0 behind an item's end
    frames: Tensor  # (B,) int64
    pitch: Tensor  # (B, 2 * frames) Hz; below VOICED there is no voice
    energy: Tensor  # (B, 2 * frames)
    content: Tensor  # (B, C, frames): the phonemes, each as long as it lasts


def inside(lengths: Tensor, size: int) -> Tensor:
    """(B,) -> (B, size) bool, true before an item's end."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


class Lstm(nn.LSTM):
    """Both directions, over each item's own length: (B, C, T) -> (B, C, T)."""

    def __init__(self, narrow: int, wide: int):
        super().__init__(narrow, wide // 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            x.transpose(1, 2), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(super().forward(packed)[0], batch_first=True, total_length=x.size(2))
        return out.transpose(1, 2)


class AlbertLayer(nn.Module):
    def __init__(self, config: KokoroConfig):
        super().__init__()
        channels, hidden, self.heads = config.albert_channels, config.albert_hidden, config.albert_heads
        self.query, self.key, self.value, self.dense = (nn.Linear(channels, channels) for _ in range(4))
        self.attention_norm = nn.LayerNorm(channels, eps=1e-12)
        self.ffn, self.ffn_output = nn.Linear(channels, hidden), nn.Linear(hidden, channels)
        self.norm = nn.LayerNorm(channels, eps=1e-12)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        parts = (layer(x).unflatten(2, (self.heads, -1)) for layer in (self.query, self.key, self.value))
        query, key, value = (part.transpose(1, 2) for part in parts)
        heads = F.scaled_dot_product_attention(query, key, value, bias)
        x = self.attention_norm(x + self.dense(heads.transpose(1, 2).flatten(2)))
        return self.norm(x + self.ffn_output(F.gelu(self.ffn(x), approximate="tanh")))


class Albert(nn.Module):
    """One layer, applied twelve times (Lan et al. 2019, arXiv:1909.11942)."""

    def __init__(self, config: KokoroConfig):
        super().__init__()
        self.repeats, narrow = config.albert_repeats, config.albert_embedding
        self.words, self.positions = nn.Embedding(config.symbols, narrow), nn.Embedding(LONGEST + 2, narrow)
        self.kinds = nn.Embedding(2, narrow)  # of sentences: there is one here
        self.norm = nn.LayerNorm(narrow, eps=1e-12)
        self.mapping = nn.Linear(narrow, config.albert_channels)
        self.layer = AlbertLayer(config)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids) + self.kinds.weight[0] + self.positions.weight[: ids.size(1)]
        x, bias = self.mapping(self.norm(x)), MASKED_SCORE * (~mask).float()[:, None, None]
        for _ in range(self.repeats):
            x = self.layer(x, bias)
        return x  # (B, N, C)


class TextEncoder(nn.Module):
    def __init__(self, config: KokoroConfig):
        super().__init__()
        channels = config.channels
        self.embedding = nn.Embedding(config.symbols, channels)
        self.convs = nn.ModuleList(nn.Conv1d(channels, channels, 5, padding=2) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.lstm = Lstm(channels, channels)

    def forward(self, ids: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(ids).transpose(1, 2) * mask
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.leaky_relu(norm(conv(x).transpose(1, 2)).transpose(1, 2), 0.2) * mask
        return self.lstm(x, lengths)


class StyleNorm(nn.Module):
    """Normalises each phoneme over its channels; the style says scale and shift."""

    def __init__(self, config: KokoroConfig):
        super().__init__()
        self.fc = nn.Linear(config.style, 2 * config.channels)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        scale, shift = self.fc(style)[:, :, None].chunk(2, dim=1)
        return (1 + scale) * F.layer_norm(x.transpose(1, 2), x.shape[1:2]).transpose(1, 2) + shift


class DurationEncoder(nn.Module):
    def __init__(self, config: KokoroConfig):
        super().__init__()
        wide = config.channels + config.style
        pairs = ((Lstm(wide, config.channels), StyleNorm(config)) for _ in range(3))
        self.layers = nn.ModuleList(layer for pair in pairs for layer in pair)

    def forward(self, x: Tensor, style: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
        beside = style[:, :, None] * mask
        x = torch.cat((x * mask, beside), dim=1)
        for lstm, norm in zip(self.layers[::2], self.layers[1::2], strict=True):
            x = torch.cat((norm(lstm(x, lengths), style) * mask, beside), dim=1)
        return x  # (B, C + style, N)


class AdaIn(nn.Module):
    """Normalises each channel over its item's time; the style says scale and shift."""

    def __init__(self, channels: int, style: int):
        super().__init__()
        self.fc = nn.Linear(style, 2 * channels)

    def forward(self, x: Tensor, style: Tensor, mask: Tensor) -> Tensor:
        count = mask.sum(2, keepdim=True)
        mean = (x * mask).sum(2, keepdim=True) / count
        variance = ((x - mean) * mask).square().sum(2, keepdim=True) / count
        scale, shift = self.fc(style)[:, :, None].chunk(2, dim=1)
        scale = (1 + scale) * (variance + 1e-5).rsqrt()
        return torch.addcmul(shift - mean * scale, x, scale)


class AdaInBlock(nn.Module):
    """A residual block of two convolutions; with `upsample` twice as long as its input."""

    def __init__(self, narrow: int, wide: int, style: int, upsample: bool = False):
        super().__init__()
        self.norm1, self.norm2 = AdaIn(narrow, style), AdaIn(wide, style)
        self.conv1 = nn.Conv1d(narrow, wide, 3, padding=1)
        self.conv2 = nn.Conv1d(wide, wide, 3, padding=1)
        self.conv1x1 = nn.Conv1d(narrow, wide, 1, bias=False) if narrow != wide else None
        self.pool = (
            nn.ConvTranspose1d(narrow, narrow, 3, 2, padding=1, output_padding=1, groups=narrow)
            if upsample
            else None
        )

    def forward(self, x: Tensor, style: Tensor, masks: tuple[Tensor, Tensor]) -> Tensor:
        """masks (B, 1, T) of the input and of the output."""
        before, after = masks
        y = F.leaky_relu(self.norm1(x, style, before), 0.2) * before
        if self.pool is not None:
            y, x = self.pool(y) * after, x.repeat_interleave(2, dim=2)
        y = self.conv1(y)
        y = self.conv2(F.leaky_relu(self.norm2(y, style, after), 0.2) * after)
        return (y + (x if self.conv1x1 is None else self.conv1x1(x))) * (math.sqrt(0.5) * after)


class SnakeBlock(nn.Module):
    """HiFi-GAN's residual block with Snake activations (Ziyin et al. 2020) and the style's normalisation."""

    def __init__(self, channels: int, kernel: int, style: int):
        super().__init__()

        def conv(dilation: int) -> nn.Conv1d:
            return nn.Conv1d(channels, channels, kernel, dilation=dilation, padding=kernel // 2 * dilation)

        self.convs1, self.convs2 = (nn.ModuleList(map(conv, d)) for d in ((1, 3, 5), (1, 1, 1)))
        self.adain1, self.adain2 = (nn.ModuleList(AdaIn(channels, style) for _ in range(3)) for _ in range(2))
        self.alpha1, self.alpha2 = (
            nn.ParameterList(nn.Parameter(torch.ones(1, channels, 1)) for _ in range(3)) for _ in range(2)
        )

    def forward(self, x: Tensor, style: Tensor, mask: Tensor) -> Tensor:
        layers = (self.adain1, self.alpha1, self.convs1), (self.adain2, self.alpha2, self.convs2)
        for step in range(3):
            y = x
            for norms, alphas, convs in layers:
                y = convs[step](snake(norms[step](y, style, mask), alphas[step]) * mask)
            x = x + y
        return x * mask


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    return torch.addcdiv(x, (alpha * x).sin().square(), alpha)


class Generator(nn.Module):
    """Features at 80 a second, and the pitch, to the waveform."""

    window: Tensor

    def __init__(self, config: KokoroConfig):
        super().__init__()
        bins, style = WINDOW // 2 + 1, config.style
        first, second = config.generator_channels
        self.source = nn.Linear(HARMONICS, 1)
        self.noise_convs = nn.ModuleList(
            (nn.Conv1d(2 * bins, first, 12, 6, padding=3), nn.Conv1d(2 * bins, second, 1))
        )
        self.noise_res = nn.ModuleList((SnakeBlock(first, 7, style), SnakeBlock(second, 11, style)))
        ups = (config.channels, first, 10), (first, second, 6)
        self.ups = nn.ModuleList(nn.ConvTranspose1d(a, b, 2 * r, r, padding=r // 2) for a, b, r in ups)
        kernels = 3, 7, 11
        self.resblocks = nn.ModuleList(SnakeBlock(c, k, style) for c in (first, second) for k in kernels)
        self.conv_post = nn.Conv1d(second, 2 * bins, 7, padding=3)
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)

    def forward(self, x: Tensor, style: Tensor, pitch: Tensor, lengths: Tensor, noise: float) -> Tensor:
        """x (B, C, T), pitch (B, T) Hz, lengths (B,) in its values -> audio (B, T * HALF)."""
        harmonic = self.spectrum(self.sines(pitch, noise), lengths * HALF)
        sizes = (10 * x.size(2), lengths * 10), (60 * x.size(2) + 1, lengths * 60 + 1)
        for stage, (size, length) in enumerate(sizes):
            mask = inside(length, size)[:, None].float()
            x = self.ups[stage](F.leaky_relu(x, 0.1))
            if stage == 1:
                x = F.pad(x, (1, 0), mode="reflect")
            beside = self.noise_res[stage](self.noise_convs[stage](harmonic) * mask, style, mask)
            x = (x + beside) * mask
            blocks = self.resblocks[3 * stage : 3 * stage + 3]
            x = torch.stack([block(x, style, mask) for block in blocks]).sum(0) / 3
        maps = self.conv_post(F.leaky_relu(x, 0.01))
        log_magnitude, phase = maps.chunk(2, dim=1)
        return self.waveform(torch.polar(log_magnitude.exp() * mask, phase.sin()), mask)

    def sines(self, pitch: Tensor, noise: float) -> Tensor:
        """pitch (B, T) -> the source (B, T * HALF): sines of the pitch and its multiples, and noise.

        Their phases are summed in float64 from the middle of a value to the next one's.
        """
        times = torch.arange(1, HARMONICS + 1, device=pitch.device, dtype=torch.float64)
        turns = phase_of(pitch)[:, :, None] * times  # (B, S, HARMONICS)
        sines = SINE * (2 * math.pi * (turns - turns.floor())).sin().float()
        voiced = (pitch > VOICED).repeat_interleave(HALF, dim=1)[:, :, None]
        sines = sines * voiced
        if noise:
            amplitude = torch.where(voiced, NOISE_VOICED, NOISE) * noise
            sines = sines + amplitude * torch.randn_like(sines)
        return self.source(sines)[:, :, 0].tanh()

    def spectrum(self, wave: Tensor, samples: Tensor) -> Tensor:
        """(B, S), of which an item has so many samples (B,) -> magnitudes and phases (B, 2 * bins, S / HOP +
        1).

        The wave is mirrored at both ends of an item.
        """
        edge, size = WINDOW // 2, wave.size(1)
        at = torch.arange(-edge, size + edge, device=wave.device).abs().expand(len(wave), -1)
        last = samples[:, None] - 1
        at = torch.where(at > last, (2 * last - at).clamp(min=0), at)
        frames = wave.gather(1, at).unfold(1, WINDOW, HOP) * self.window
        spectrum = torch.fft.rfft(frames).transpose(1, 2)
        mask = inside(samples // HOP + 1, spectrum.size(2))[:, None]
        return torch.cat((spectrum.abs(), spectrum.angle()), dim=1) * mask

    def waveform(self, spectrum: Tensor, mask: Tensor) -> Tensor:
        """(B, bins, T) complex, mask (B, 1, T) -> (B, (T - 1) * HOP)."""
        frames = torch.fft.irfft(spectrum.transpose(1, 2), WINDOW) * self.window  # (B, T, WINDOW)
        weight = self.window.square() * mask.transpose(1, 2)
        total, weight = overlap(frames), overlap(weight)
        edge = WINDOW // 2
        return (total / weight.clamp(min=1e-6))[:, edge:-edge]


def overlap(frames: Tensor) -> Tensor:
    """Adds frames (B, T, WINDOW), HOP samples apart -> (B, (T - 1) * HOP + WINDOW)."""
    size = (frames.size(1) - 1) * HOP + WINDOW
    return F.fold(frames.transpose(1, 2), (1, size), (1, WINDOW), stride=(1, HOP))[:, 0, 0]


def phase_of(pitch: Tensor) -> Tensor:
    """pitch (B, T) in Hz -> turns of the fundamental at every sample (B, T * HALF), float64.

    A value's turns are added at its middle, and interpolated between: what the network was trained with.
    """
    total = (pitch.double() / RATE * HALF).cumsum(1)
    return F.interpolate(total[:, None], scale_factor=HALF, mode="linear")[:, 0]


class Decoder(nn.Module):
    def __init__(self, config: KokoroConfig):
        super().__init__()
        channels, inner, style = config.channels, config.decoder_channels, config.style
        wide = inner + 2 + config.decoder_residual
        self.F0_conv, self.N_conv = (nn.Conv1d(1, 1, 3, 2, padding=1) for _ in range(2))
        self.encode = AdaInBlock(channels + 2, inner, style)
        last = AdaInBlock(wide, channels, style, upsample=True)
        self.decode = nn.ModuleList((*(AdaInBlock(wide, inner, style) for _ in range(3)), last))
        self.asr_res = nn.Conv1d(channels, config.decoder_residual, 1)
        self.generator = Generator(config)

    def forward(
        self, content: Tensor, pitch: Tensor, energy: Tensor, frames: Tensor, style: Tensor, noise: float
    ) -> Tensor:
        mask = inside(frames, content.size(2))[:, None].float()
        twice = inside(2 * frames, pitch.size(1))[:, None].float()
        curves = self.F0_conv((pitch * twice[:, 0])[:, None]), self.N_conv((energy * twice[:, 0])[:, None])
        beside = torch.cat((self.asr_res(content), *curves), dim=1) * mask
        x = self.encode(torch.cat((content, *curves), dim=1) * mask, style, (mask, mask))
        for block in self.decode:
            x = block(torch.cat((x, beside), dim=1), style, (mask, mask if block.pool is None else twice))
        return self.generator(x, style, pitch * twice[:, 0], 2 * frames, noise)


class Predictor(nn.Module):
    """Durations of the phonemes, then pitch and energy."""

    def __init__(self, config: KokoroConfig):
        super().__init__()
        channels, style = config.channels, config.style
        half = channels // 2
        self.text_encoder = DurationEncoder(config)
        self.lstm, self.shared = Lstm(channels + style, channels), Lstm(channels + style, channels)
        self.duration_proj = nn.Linear(channels, config.durations)

        def blocks() -> nn.ModuleList:
            middle = AdaInBlock(channels, half, style, upsample=True)
            return nn.ModuleList(
                (AdaInBlock(channels, channels, style), middle, AdaInBlock(half, half, style))
            )

        self.F0, self.N = blocks(), blocks()
        self.F0_proj, self.N_proj = nn.Conv1d(half, 1, 1), nn.Conv1d(half, 1, 1)

    def durations(self, encoded: Tensor, lengths: Tensor, mask: Tensor, speed: float) -> Tensor:
        x = self.duration_proj(self.lstm(encoded, lengths).transpose(1, 2)).sigmoid().sum(2)
        return (x / speed).round().clamp(min=1).long() * mask[:, 0].long()

    def curves(self, encoded: Tensor, frames: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
        """encoded (B, C, frames) -> pitch and energy (B, 2 * frames)."""
        once, twice = (inside(k * frames, k * encoded.size(2))[:, None].float() for k in (1, 2))
        shared, found = self.shared(encoded, frames), []
        for blocks, proj in ((self.F0, self.F0_proj), (self.N, self.N_proj)):
            x = shared
            for block, masks in zip(blocks, ((once, once), (once, twice), (twice, twice)), strict=True):
                x = block(x, style, masks)
            found.append(proj(x)[:, 0] * twice[:, 0])
        return found[0], found[1]


class Kokoro(nn.Module):
    """The whole network. `prosody` and `decode` are its halves, so that the pitch can be changed between."""

    def __init__(self, config: KokoroConfig | None = None):
        super().__init__()
        self.config = config = config or KokoroConfig()
        self.albert = Albert(config)
        self.bert_encoder = nn.Linear(config.albert_channels, config.channels)
        self.text_encoder = TextEncoder(config)
        self.predictor = Predictor(config)
        self.decoder = Decoder(config)

    @torch.inference_mode()
    def prosody(self, ids: Tensor, lengths: Tensor, styles: Tensor, speed: float = 1.0) -> Prosody:
        """ids (B, N), a pad (0) at both ends of each, lengths (B,) with them, styles (B, 2 * style)."""
        style, known = styles[:, self.config.style :], inside(lengths, ids.size(1))
        mask = known[:, None].float()
        encoded = self.bert_encoder(self.albert(ids, known)).transpose(1, 2)
        encoded = self.predictor.text_encoder(encoded, style, lengths, mask)
        durations = self.predictor.durations(encoded, lengths, mask, speed)
        frames, ends = durations.sum(1), durations.cumsum(1)
        size = int(frames.max())
        owner = torch.searchsorted(
            ends, torch.arange(size, device=ids.device).repeat(len(ids), 1), right=True
        )
        owner = owner.clamp(max=ids.size(1) - 1)[:, None]
        present = inside(frames, size)[:, None].float()

        def stretch(x: Tensor) -> Tensor:
            return x.gather(2, owner.expand(-1, x.size(1), -1)) * present

        pitch, energy = self.predictor.curves(stretch(encoded), frames, style)
        content = stretch(self.text_encoder(ids, lengths, mask))
        return Prosody(durations, frames, pitch, energy, content)

    @torch.inference_mode()
    def decode(self, prosody: Prosody, styles: Tensor, noise: float = 1.0) -> Tensor:
        """Audio (B, S) of 24 kHz, an item's first `frames * FRAME` samples.

        `noise` is how much of the noise the source has that Kokoro's own code adds and its ONNX export lacks.
        """
        _, frames, pitch, energy, content = prosody
        return self.decoder(content, pitch, energy, frames, styles[:, : self.config.style], noise)
