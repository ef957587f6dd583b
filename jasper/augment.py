"""Augmentation of a batch on the GPU: speed, rooms, noise, other speech, band limits, codecs, level, length
of the vocal tract, uneven pace, and SpecAugment (Park and others 2019, arXiv:1904.08779).
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from melforge.common.audio.mel import mel_basis
from melforge.jasper.config import JasperConfig
from melforge.jasper.features_network import JasperFeatures

LONGEST_ROOM = 0.5  # seconds of an echo
WARPS = 31  # vocal-tract lengths in the table
FACTORS = 2 * 3 * 5 * 7  # of the sizes of Fourier transforms
TELEPHONE = 3400.0  # Hz: the lowest band limit
CODEC_WINDOW = 512  # samples of a codec's spectra
WAVES = 6  # of an uneven pace


@dataclass(frozen=True)
class Augmentation:
    """Ranges, and the shares of recordings that get each. The defaults leave recordings unchanged."""

    speed_min: float = 1.0
    speed_max: float = 1.0
    speed_discrete: bool = False  # only these two and 1
    warp: float = 0.0  # of the vocal tract's length, 0.15: from 0.85 to 1.15
    room_share: float = 0.0
    room_seconds: float = 0.5  # of reverberation (60 dB), at most
    noise_share: float = 0.0
    noise_snr_min: float = 5.0  # dB
    noise_snr_max: float = 30.0
    babble_share: float = 0.0  # of the noisy ones, whose noise is other recordings
    band_share: float = 0.0
    codec_share: float = 0.0  # coded as by telephones, or as by low bit rates
    level_min: float = 0.0  # dB below the recording's own
    smear_share: float = 0.0
    smear_frames: float = 3.0  # over which sounds run into each other, at most
    pace_share: float = 0.0
    unevenness: float = 0.3  # of the pace: a part is so much faster or slower, at most
    freq_masks: int = 0
    max_freq_mask: int = 20  # bands
    time_masks: int = 0
    max_time_mask: int = 75  # frames


def uniform(like: Tensor, low: float, high: float) -> Tensor:
    """Numbers (B, 1) on the device of `like` (B, ...)."""
    return torch.rand(len(like), 1, device=like.device) * (high - low) + low


def read_at_speeds(
    audio: Tensor, starts: Tensor, lengths: Tensor, speeds: Tensor, samples: int
) -> tuple[Tensor, Tensor]:
    """Recordings of audio int16 [N], from `starts` (B,) and of `lengths` (B,), at `speeds` (B,) -> float32
    (B, samples) with zeros behind them, and their new lengths (B,). Interpolation is cubic (Catmull-Rom).
    """
    new = torch.clamp((lengths / speeds).long(), max=samples)
    place = torch.arange(samples, device=audio.device) * speeds[:, None]
    whole = place.floor()
    t = (place - whole)[:, :, None]
    offsets = torch.arange(-1, 3, device=audio.device)
    index = (whole.long()[:, :, None] + offsets).clamp(min=0)
    index = torch.minimum(index, lengths[:, None, None] - 1) + starts[:, None, None]
    p = audio[index].float() / 32768
    a, b, c, d = p.unbind(2)
    t = t[:, :, 0]
    value = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
    inside = torch.arange(samples, device=audio.device) < new[:, None]
    return value * inside, new


def rooms(like: Tensor, samples: int, rate: int, longest: float) -> Tensor:
    """Impulse responses (B, samples): a direct sound and an echo of noise that decays exponentially."""
    time = torch.arange(samples, device=like.device) / rate
    decay = torch.exp(-6.9 * time / uniform(like, 0.1, longest))
    echo = torch.randn(len(like), samples, device=like.device) * decay
    echo[:, : int(0.002 * rate)] = 0
    echo = echo / echo.norm(dim=1, keepdim=True) * 10 ** (uniform(like, -15.0, 0.0) / 20)
    echo[:, 0] = 1
    return echo


def coloured_noise(like: Tensor, bins: int) -> Tensor:
    """Spectra (B, bins) of noise whose power falls with a power of the frequency, from white to brown."""
    frequency = torch.arange(1, bins + 1, device=like.device, dtype=torch.float32)
    shape = frequency ** (-uniform(like, 0.0, 1.0))
    noise = torch.randn(len(like), bins, 2, device=like.device)
    return torch.view_as_complex(noise) * shape


def chosen(like: Tensor, share: float) -> Tensor:
    """bool (B, 1), true for this share on average."""
    return torch.rand(len(like), 1, device=like.device) < share


def power(x: Tensor) -> Tensor:
    """Mean squares (B, 1) of x (B, S), above zero."""
    return x.square().mean(1, keepdim=True).clamp(min=1e-12)


@cache
def transform_size(samples: int) -> int:
    """The next even number whose prime factors are 2, 3, 5 and 7: the lengths of fast Fourier transforms."""
    size = samples + samples % 2
    while FACTORS**20 % size:  # FFT sizes have no factor more than 20 times
        size += 2
    return size


def degrade(audio: Tensor, lengths: Tensor, how: Augmentation, rate: int) -> Tensor:
    """audio (B, S), zeros behind the `lengths` (B,) -> the same through rooms, noise and channels."""
    samples = audio.shape[1]
    inside = torch.arange(samples, device=audio.device) < lengths[:, None]
    size = transform_size(samples + int(LONGEST_ROOM * rate))
    level = 10 ** (uniform(audio, how.level_min, 0.0) / 20)
    if not (how.room_share or how.noise_share or how.band_share or how.codec_share):
        return audio * level
    spectrum = torch.fft.rfft(audio, size)
    if how.room_share:
        room = torch.fft.rfft(rooms(audio, int(LONGEST_ROOM * rate), rate, how.room_seconds), size)
        spectrum = torch.where(chosen(audio, how.room_share), spectrum * room, spectrum)
    if how.noise_share:
        noise = torch.fft.irfft(coloured_noise(audio, spectrum.shape[1]), size)[:, :samples]
        others = audio.roll(1, 0) + audio.roll(2, 0) + audio.roll(3, 0)  # recordings of the batch
        noise = torch.where(chosen(audio, how.babble_share), others, noise)
        speech = torch.fft.irfft(spectrum, size)[:, :samples]
        snr = uniform(audio, how.noise_snr_min, how.noise_snr_max)
        noise = noise * (power(speech) / power(noise)).sqrt() * 10 ** (-snr / 20)
        noisy = speech + noise * chosen(audio, how.noise_share)
        spectrum = torch.fft.rfft(noisy, size)
    if how.band_share:
        frequency = torch.arange(spectrum.shape[1], device=audio.device) * (rate / size)
        high, low = uniform(audio, TELEPHONE, rate / 2), uniform(audio, 20.0, 300.0)
        passed = torch.sigmoid((high - frequency) / 50) * torch.sigmoid((frequency - low) / 20)
        spectrum = torch.where(chosen(audio, how.band_share), spectrum * passed, spectrum)
    audio = torch.fft.irfft(spectrum, size)[:, :samples]
    if how.codec_share:
        audio = coded(audio * inside, how.codec_share)
    return audio * level * inside


def coded(audio: Tensor, share: float) -> Tensor:
    """audio (B, S): half the share has 8 bits a sample (G.711's mu-law), the other half spectra without what
    is faint beside the loudest of the same time.
    """
    kind = torch.rand(len(audio), 1, device=audio.device)
    peak = audio.abs().amax(1, keepdim=True).clamp(min=1e-6)
    curve = torch.sign(audio) * torch.log1p(255 * audio.abs() / peak) / math.log(256)
    steps = torch.round(127 * curve) / 127
    law = torch.sign(steps) * (torch.exp(steps.abs() * math.log(256)) - 1) / 255 * peak
    hop = CODEC_WINDOW // 2
    window = torch.hann_window(CODEC_WINDOW, device=audio.device).sqrt()
    padded = F.pad(audio, (hop, hop + -audio.shape[1] % hop))
    spectrum = torch.fft.rfft(padded.unfold(1, CODEC_WINDOW, hop) * window)
    loudness = spectrum.abs()
    faint = loudness.amax(2, keepdim=True) * 10 ** (uniform(audio, -45.0, -20.0)[:, :, None] / 20)
    parts = torch.fft.irfft(spectrum * (loudness > faint)) * window
    sparse = (parts[:, 1:, :hop] + parts[:, :-1, hop:]).flatten(1)[:, : audio.shape[1]]
    return torch.where(kind < share / 2, law, torch.where(kind < share, sparse, audio))


def warped_bases(features: JasperFeatures, config: JasperConfig, warp: float) -> Tensor:
    """Mel filters (WARPS, places, n_mels) for vocal tracts from 1 - warp to 1 + warp times as long: every
    filter stands at other frequencies, up to the highest there are.
    """
    basis = mel_basis(config.mel)
    bins = np.arange(basis.shape[1])
    tables = []
    for factor in np.linspace(1 - warp, 1 + warp, WARPS):
        places = np.minimum(bins * factor, bins[-1])
        moved = np.stack([np.interp(places, bins, row) for row in basis])
        tables.append(features.spread(moved.astype(np.float32)).T)
    return torch.from_numpy(np.stack(tables))


def smeared(x: Tensor, how: Augmentation) -> Tensor:
    """features (B, n_mels, T) of speakers whose sounds run into each other, or are kept further apart.

    Each band is moved towards its Gaussian average over time, or away from it.
    """
    width = uniform(x, 0.5, how.smear_frames)
    towards = uniform(x, -0.5, 1.0) * chosen(x, how.smear_share)
    frequency = torch.fft.rfftfreq(x.shape[2], device=x.device)
    kept = 1 + towards * (torch.exp(-2 * (torch.pi * width * frequency).square()) - 1)
    return torch.fft.irfft(torch.fft.rfft(x) * kept[:, None], x.shape[2])


def unevenly_paced(x: Tensor, frames: Tensor, how: Augmentation) -> Tensor:
    """features (B, n_mels, T) of `frames` (B,), parts of which pass faster and others slower."""
    last = (frames[:, None] - 1).clamp(min=1).to(x.dtype)
    place = torch.arange(x.shape[2], device=x.device, dtype=x.dtype)[None]
    waves = torch.arange(1, WAVES + 1, device=x.device)
    swing = torch.randn(len(x), WAVES, device=x.device)
    swing = swing / swing.abs().sum(1, keepdim=True) * uniform(x, 0.0, how.unevenness)
    # Of the place; that of the pace is without this divisor.
    swing = swing * chosen(x, how.pace_share) / (torch.pi * waves)
    wave = torch.sin(torch.pi * waves[:, None] * (place / last)[:, None])
    moved = place + last * (swing[:, :, None] * wave).sum(1)
    moved = torch.where(place < last, moved.minimum(last).clamp(min=0), place)
    before = moved.floor()
    index = before.long()[:, None].expand_as(x)
    after = (index + 1).clamp(max=x.shape[2] - 1)
    return torch.lerp(x.gather(2, index), x.gather(2, after), (moved - before)[:, None])


def spec_augment(x: Tensor, how: Augmentation) -> Tensor:
    """features (B, n_mels, T) with bands and spans of time set to 0."""
    for axis, count, longest in (
        (1, how.freq_masks, how.max_freq_mask),
        (2, how.time_masks, how.max_time_mask),
    ):
        steps = x.shape[axis]
        place = torch.arange(steps, device=x.device)
        for _ in range(count):
            width = uniform(x, 0, min(longest, steps))
            first = torch.rand(len(x), 1, device=x.device) * (steps - width)
            kept = (place < first) | (place >= first + width)
            x = x * (kept[:, :, None] if axis == 1 else kept[:, None])
    return x


def augmented_features(
    features: JasperFeatures, bases: Tensor | None, audio: Tensor, lengths: Tensor, how: Augmentation
) -> tuple[Tensor, Tensor]:
    """audio (B, T * hop) -> features (B, n_mels, T) and frames (B,), all augmented."""
    config = features.config
    audio = degrade(audio, lengths, how, config.sampling_rate)
    audio = audio + config.dither * torch.randn_like(audio)
    basis = None
    if bases is not None:
        basis = bases[torch.randint(len(bases), (len(audio),), device=audio.device)]
    made, frames = features(audio, lengths, lengths, basis)
    if how.pace_share:
        made = unevenly_paced(made, frames, how)
    if how.smear_share:
        made = features.normalised(smeared(made, how), frames)
    return spec_augment(made, how), frames


def clean_features(features: JasperFeatures, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """audio (B, S) -> features (B, n_mels, T) and frames (B,) of recordings as they are, with dither."""
    samples = -(-audio.shape[1] // features.config.hop_length) * features.config.hop_length
    audio = F.pad(audio, (0, samples - audio.shape[1]))
    return features(audio + features.config.dither * torch.randn_like(audio), lengths, lengths)
