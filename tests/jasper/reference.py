"""Jasper's features in numpy: normalised log mels of pre-emphasised audio, as published."""

import numpy as np

from melforge.common.arrays import length_mask
from melforge.common.audio.mel import mel_basis
from melforge.jasper.config import DEVIATION_FLOOR, LOG_FLOOR, JasperConfig
from melforge.jasper.features import symmetric_window


def reflected(positions: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Positions int64 [N] as indices into items of `ends` [B] samples, mirrored at both ends: [B, N]."""
    places = np.abs(positions)[None]
    return np.clip(np.minimum(places, 2 * (ends[:, None] - 1) - places), 0, None)


def features(
    audio: np.ndarray, lengths: np.ndarray, config: JasperConfig, together: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """audio [B, S], samples in [-1, 1] and zeros behind the `lengths` [B] -> (features float32
    [B, n_mels, T], frames int64 [B]), T as the longest item's padding says. Dither is added before this.

    Each item is what it is alone. `together` computes as NVIDIA does for a batch: shorter items end in zeros
    instead of at their own end, which changes their last frames.
    """
    longest = int(lengths.max())
    frames = config.padded_frames(longest)
    hop, window, size = config.hop_length, config.win_length, config.filter_length
    audio = np.asarray(audio, np.float32)[:, :longest]
    ends = np.full_like(lengths, longest) if together else lengths
    emphasised = np.concatenate(
        (audio[:, :1], audio[:, 1:] - np.float32(config.preemphasis) * audio[:, :-1]), axis=1
    )
    left = size // 2 - (size - window) // 2
    positions = (np.arange(frames) * hop)[:, None] + np.arange(window) - left
    places = reflected(positions.ravel(), ends)
    places = np.minimum(places, longest - 1)  # frames behind all ends are padding
    windows = np.take_along_axis(emphasised, places, axis=1).reshape(len(audio), frames, window)
    padded = np.zeros((len(audio), frames, size), np.float32)
    first = (size - window) // 2
    padded[:, :, first : first + window] = windows * symmetric_window(config).astype(np.float32)
    spectrum = np.fft.rfft(padded)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
    mel = np.log(power @ mel_basis(config.mel).T + np.float32(LOG_FLOOR)).swapaxes(1, 2)
    counts = -(-lengths // hop)
    return normalised(mel, counts, config), counts


def normalised(mel: np.ndarray, counts: np.ndarray, config: JasperConfig) -> np.ndarray:
    """log mel [B, n_mels, T] of `counts` [B] frames -> mean 0 and (unbiased) deviation 1 of each band, or of
    all together; zeros behind the frames.
    """
    inside = length_mask(counts, mel.shape[2])[:, None]
    axes, bands = ((2,), 1) if config.normalize == "per_feature" else ((1, 2), mel.shape[1])
    number = (counts * bands)[:, None, None].astype(np.float32)
    mean = np.where(inside, mel, 0).sum(axes, keepdims=True) / number
    centred = np.where(inside, mel - mean, 0)
    variance = (centred**2).sum(axes, keepdims=True) / np.maximum(number - 1, 1)
    return (centred / (np.sqrt(variance) + np.float32(DEVIATION_FLOOR))).astype(np.float32)
