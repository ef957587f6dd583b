"""The denoiser a second time, in numpy's FFT: what the stage is compared with."""

import numpy as np

from melforge.common.audio.contract import MelContract
from melforge.common.audio.mel import FRAMES_AT_ONCE, analysis_window


def stft(audio: np.ndarray, contract: MelContract) -> np.ndarray:
    """audio (..., S) -> complex64 (..., filter_length // 2 + 1, T), T = S // hop + 1 centred frames."""
    audio = np.asarray(audio, np.float32)
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


class Denoiser:
    """audio (..., S), strength -> audio without `strength` times the bias: (..., S // hop * hop)."""

    def __init__(self, bias: np.ndarray, contract: MelContract | None = None) -> None:
        self.contract = contract or MelContract()
        self.bias = np.asarray(bias, np.float32)

    def __call__(self, audio: np.ndarray, strength: float = 0.1) -> np.ndarray:
        spectrum = stft(audio, self.contract)
        magnitude = np.abs(spectrum)
        left = np.maximum(magnitude - np.float32(strength) * self.bias[:, None], 0)
        spectrum *= left / np.maximum(magnitude, np.finfo(np.float32).tiny)
        return istft(spectrum, self.contract)
