"""Mel spectrograms in numpy, as NVIDIA's example programs compute them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from melforge.common.audio.contract import MelContract
from melforge.common.errors import InputError

OVERLAP = 4  # hops in a window of the denoiser, as published
FRAMES_AT_ONCE = 4096  # bounds the memory of spectrograms and of resampling
POWER_FLOOR = 1e-9  # added to the power before its root
QUIET, LOUD = -10.0, 1.0  # natural logarithms between which a mel's picture has its colours


def _hz_to_mel(hz: np.ndarray, scale: str) -> np.ndarray:
    if scale == "htk":
        return 2595.0 * np.log10(1.0 + hz / 700.0)
    # Slaney's: linear (15 mel for 1000 Hz) below 1000 Hz, logarithmic (27 mel for a factor of 6.4) above.
    return np.where(
        hz < 1000.0, hz * 0.015, 15.0 + np.log(np.maximum(hz, 1e-9) / 1000.0) * 27.0 / np.log(6.4)
    )


def _mel_to_hz(mel: np.ndarray, scale: str) -> np.ndarray:
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    return np.where(mel < 15.0, mel / 0.015, 1000.0 * np.exp((mel - 15.0) * np.log(6.4) / 27.0))


@lru_cache(maxsize=16)
def mel_basis(contract: MelContract) -> np.ndarray:
    """Triangular mel filters, float32 (n_mels, filter_length // 2 + 1), read-only."""
    bins = np.arange(contract.filter_length // 2 + 1) * (contract.sampling_rate / contract.filter_length)
    low, high = _hz_to_mel(np.array([contract.mel_fmin, contract.highest_frequency]), contract.mel_scale)
    corners = _mel_to_hz(np.linspace(low, high, contract.n_mel_channels + 2), contract.mel_scale)
    widths = np.diff(corners)
    slopes = corners[:, None] - bins
    rising = -slopes[:-2] / widths[:-1, None]
    falling = slopes[2:] / widths[1:, None]
    basis = np.maximum(0.0, np.minimum(rising, falling))
    if contract.mel_norm == "slaney":  # equal area
        basis *= (2.0 / (corners[2:] - corners[:-2]))[:, None]
    basis = basis.astype(np.float32)
    basis.flags.writeable = False
    return basis


def mel_levels(mel: np.ndarray) -> np.ndarray:
    """float32 [n_mels, T_mel] -> uint8 [T_mel, n_mels], of pictures: 0 for QUIET or less, 255 for LOUD."""
    levels = 255 / (LOUD - QUIET) * (mel.T - QUIET)
    return np.rint(levels.clip(0, 255)).astype(np.uint8)


@lru_cache(maxsize=16)
def analysis_window(contract: MelContract) -> np.ndarray:
    """Periodic Hann window of win_length, centred in filter_length: float32, read-only."""
    n = np.arange(contract.win_length)
    window = np.zeros(contract.filter_length, np.float32)
    start = (contract.filter_length - contract.win_length) // 2
    window[start : start + contract.win_length] = 0.5 - 0.5 * np.cos(2 * np.pi * n / contract.win_length)
    window.flags.writeable = False
    return window


def padding_of(contract: MelContract) -> int:
    """Samples of reflection at each end, by which T * hop samples give T frames."""
    return (contract.filter_length - contract.hop_length) // 2


def magnitude_spectrogram(audio: np.ndarray, contract: MelContract) -> np.ndarray:
    """audio (..., S) in [-1, 1] -> magnitude, float32 (..., filter_length // 2 + 1, S // hop)."""
    padding = padding_of(contract)
    audio = np.asarray(audio, np.float32)
    if audio.shape[-1] <= padding:
        raise InputError(f"{audio.shape[-1]} samples are too few for a spectrogram: give more than {padding}")
    padded = np.pad(audio, [(0, 0)] * (audio.ndim - 1) + [(padding, padding)], mode="reflect")
    if padded.shape[-1] < contract.filter_length:
        raise InputError(
            f"{audio.shape[-1]} samples are too few for a spectrogram: "
            f"give at least {contract.filter_length - 2 * padding}"
        )
    windows = np.lib.stride_tricks.sliding_window_view(padded, contract.filter_length, axis=-1)
    frames = windows[..., :: contract.hop_length, :]
    window = analysis_window(contract)
    out = np.empty((*audio.shape[:-1], contract.filter_length // 2 + 1, frames.shape[-2]), np.float32)
    for start in range(0, frames.shape[-2], FRAMES_AT_ONCE):
        span = slice(start, start + FRAMES_AT_ONCE)
        spectrum = np.fft.rfft(frames[..., span, :] * window)
        power = spectrum.real**2 + spectrum.imag**2 + POWER_FLOOR
        out[..., span] = np.swapaxes(np.sqrt(power), -1, -2)
    return out


def mel_spectrogram(audio: np.ndarray, contract: MelContract) -> np.ndarray:
    """audio (..., S) in [-1, 1] -> log mel, float32 (..., n_mels, S // hop), as vocoders are trained."""
    mel = mel_basis(contract) @ magnitude_spectrogram(audio, contract)
    log = np.log if contract.mel_log == "natural" else np.log10
    return log(np.maximum(mel, np.float32(contract.mel_clamp)))


def spectra_of(hop_length: int) -> MelContract:
    """The spectra in which a vocoder of this hop is denoised. The mel of the contract plays no part."""
    size = OVERLAP * hop_length
    return MelContract(filter_length=size, hop_length=hop_length, win_length=size)
