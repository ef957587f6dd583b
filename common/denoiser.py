"""Bias removal: a vocoder's hum, measured on a silent mel, is taken out of the spectra of what it says.

The published WaveGlow denoiser, for any vocoder. NumPy only; common/denoiser_torch.py has it as a network.
The sizes are a `MelContract`'s filter_length, hop_length and win_length; its mel plays no part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from common.audio import FRAMES_AT_ONCE, MelContract, analysis_window

BIAS_FRAMES = 88  # of the silent mel, as published


def check_samples(samples: int, contract: MelContract) -> None:
    """A ValueError if the reflection at the ends needs more samples than there are."""
    if samples <= contract.filter_length // 2:
        raise ValueError(
            f"{samples} samples are too few to denoise: give more than {contract.filter_length // 2}"
        )


def stft(audio: np.ndarray, contract: MelContract) -> np.ndarray:
    """audio (..., S) -> complex64 (..., filter_length // 2 + 1, T), T = S // hop + 1 centred frames."""
    audio = np.asarray(audio, np.float32)
    check_samples(audio.shape[-1], contract)
    half = contract.filter_length // 2
    padded = np.pad(audio, [(0, 0)] * (audio.ndim - 1) + [(half, half)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, contract.filter_length, axis=-1)
    frames = windows[..., :: contract.hop_length, :]
    out = np.empty((*audio.shape[:-1], half + 1, frames.shape[-2]), np.complex64)
    for start in range(0, frames.shape[-2], FRAMES_AT_ONCE):
        span = slice(start, start + FRAMES_AT_ONCE)
        out[..., span] = np.swapaxes(np.fft.rfft(frames[..., span, :] * analysis_window(contract)), -1, -2)
    return out


def istft(spectrum: np.ndarray, contract: MelContract) -> np.ndarray:
    """complex (..., filter_length // 2 + 1, T) -> audio, float32 (..., (T - 1) * hop): undoes `stft`."""
    size, hop = contract.filter_length, contract.hop_length
    window = analysis_window(contract)
    count = spectrum.shape[-1]
    pieces = -(-size // hop)
    out = np.zeros((*spectrum.shape[:-2], count + pieces, hop), np.float32)
    weight = np.zeros((count + pieces, hop), np.float32)
    squared = np.pad(window**2, (0, pieces * hop - size)).reshape(pieces, hop)
    for start in range(0, count, FRAMES_AT_ONCE):
        stop = min(start + FRAMES_AT_ONCE, count)
        frames = np.fft.irfft(np.swapaxes(spectrum[..., start:stop], -1, -2), size) * window
        frames = np.pad(frames, [(0, 0)] * (frames.ndim - 1) + [(0, pieces * hop - size)])
        frames = frames.reshape(*frames.shape[:-1], pieces, hop)
        for piece in range(pieces):
            out[..., start + piece : stop + piece, :] += frames[..., piece, :]
            weight[start + piece : stop + piece] += squared[piece]
    kept = slice(size // 2, size // 2 + (count - 1) * hop)
    out = out.reshape(*out.shape[:-2], -1)[..., kept]
    weight = weight.reshape(-1)[kept]
    return out / np.where(weight > np.finfo(np.float32).tiny, weight, np.float32(1))


def bias_spectrum(
    vocoder: Callable[[np.ndarray], np.ndarray], n_mel_channels: int, contract: MelContract
) -> np.ndarray:
    """What a vocoder adds to everything: the magnitude of its first frame for a mel of zeros.

    `vocoder` takes mel (1, n_mels, T) to audio (1, S), WaveGlow with noise of zeros; float32
    (filter_length // 2 + 1,).
    """
    silent = np.zeros((1, n_mel_channels, BIAS_FRAMES), np.float32)
    audio = np.asarray(vocoder(silent), np.float32).reshape(1, -1)
    return np.abs(stft(audio, contract))[0, :, 0]


class Denoiser:
    """audio (..., S), strength -> audio without `strength` times the bias: (..., S // hop * hop)."""

    def __init__(self, bias: np.ndarray, contract: MelContract | None = None) -> None:
        self.contract = contract or MelContract()
        self.bias = check_bias(bias, self.contract)

    def __call__(self, audio: np.ndarray, strength: float = 0.1) -> np.ndarray:
        if not 0 <= strength < float("inf"):
            raise ValueError(f"denoising strength must be a number from 0, not {strength}")
        spectrum = stft(audio, self.contract)
        magnitude = np.abs(spectrum)
        left = np.maximum(magnitude - np.float32(strength) * self.bias[:, None], 0)
        spectrum *= left / np.maximum(magnitude, np.finfo(np.float32).tiny)
        return istft(spectrum, self.contract)


def check_bias(bias: np.ndarray, contract: MelContract) -> np.ndarray:
    """The bias as float32 (bins,); a ValueError where it doesn't fit the contract's spectra."""
    bias = np.asarray(bias, np.float32)
    bins = contract.filter_length // 2 + 1
    if bias.shape != (bins,):
        raise ValueError(f"bias spectrum {bias.shape} does not fit: filter_length makes {bins} bins")
    return bias
