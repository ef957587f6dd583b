"""Takes a room's steady noise out of recordings, which a voice would learn: hiss, fans, hum.

The noise is the spectrum of the quietest moments. A Wiener filter keeps what stands above it; its ratios of
speech to noise go on from window to window, so that no tones come and go (Y. Ephraim and D. Malah, "Speech
Enhancement Using a Minimum Mean-Square Error Short-Time Spectral Amplitude Estimator", 1984), and are found
in two steps (C. Plapous et al., "Improved Signal-to-Noise Ratio Estimation for Speech Enhancement", 2006).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from melforge.common.training.corpus.dataset import RATE
from melforge.common.training.corpus.defects import DROWNED

SIZE, HOP = 1024, 256  # samples of a window, and from one to the next
WINDOW = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(SIZE) / SIZE)).astype(np.float32)
AT_ONCE, AROUND = 30 * RATE, RATE // 2  # samples that are filtered together, and heard on both sides
BINS = np.fft.rfftfreq(SIZE, 1 / RATE)  # Hz
AUDIBLE = BINS >= 60.0
# By which a voice's low sounds count as much as its high ones: there are few bins below.
SHARES = np.where(AUDIBLE, 1 / np.sqrt(np.maximum(BINS, 60.0)), 0.0)
SHARES /= SHARES.sum()
SILENCE, NOTHING = -100.0, 1e-20  # dB, below which is what a program left, not a room; power
PAUSE, STEADY = 7, 1.5  # windows; dB above the quietest pause in which others are as quiet
FEWEST, ENOUGH = 8, 24  # windows that say something of a noise, and by which it is known
NEIGHBOURS, ABOVE = 9, 2.0  # bins; a recording's noise may be its room's up to so many times its own
CARRIED = 0.98  # of a window's ratio to the next
LOWEST = 0.01  # ratio of speech to noise
LEAST = 0.05  # gain: what is left of the noise is even
WORTH = 55.0  # dB of speech above the noise: a voice gains nothing by less noise


@dataclass(frozen=True, eq=False)
class Quiet:
    """The quietest moments of a recording: their mean power, float64 [bins], and the number of windows."""

    power: np.ndarray
    windows: int


def quiet_moments(audio: np.ndarray) -> Quiet | None:
    """Of float32 samples `[T]` at `RATE`, of the first half minute; None without a sound all over.

    Moments are as quiet as others by the mean over all bins in dB, each seen beside its own quiet: else
    rumble, which is the loudest of a room, would hide speech.
    """
    power = np.square(np.abs(_spectra(audio[:AT_ONCE]))).astype(np.float64)
    inner = np.arange(SIZE // HOP, len(power) - SIZE // HOP)  # windows that are full
    sounds = np.convolve(_level(power) < SILENCE, np.ones(PAUSE), "same") == 0
    inner = inner[sounds[inner]]
    if len(inner) < FEWEST:
        return None
    usual = np.quantile(power[inner], 0.1, axis=0) + NOTHING
    above = np.convolve(10 * np.log10(power / usual + 1e-9) @ SHARES, np.full(PAUSE, 1 / PAUSE), "same")
    quiet = inner[above[inner] <= np.partition(above[inner], 2)[2] + STEADY]
    return Quiet(power[quiet].mean(0), len(quiet))


def room_noise(found: Sequence[Quiet]) -> np.ndarray | None:
    """The noise that recordings of one room have in common, float64 [bins]: of the quietest quarter, since
    the quietest moments of the others may be speech.
    """
    quietest = sorted(found, key=lambda one: float(_level(one.power)))[: -(-len(found) // 4)]
    windows = [one.windows for one in quietest]
    if sum(windows) < ENOUGH:
        return None
    return np.average([one.power for one in quietest], axis=0, weights=windows)


def noise_to_remove(quiet: Quiet | None, room: np.ndarray | None, level: float) -> np.ndarray | None:
    """A recording's noise, by its own quietest moments and its room's; None where there is none worth
    removing beside speech of this level in dB. A recording with few pauses is believed only where it is the
    quieter one: its quietest moments may be speech.
    """
    if quiet is None or room is None:
        return None
    louder = quiet.windows >= ENOUGH and _level(ABOVE * room) < _level(quiet.power) < level - DROWNED
    padded = np.pad(quiet.power, NEIGHBOURS // 2, "edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS).mean(1)
    noise = quiet.power if louder else np.minimum(room, ABOVE * around)
    return noise if level - _level(noise) < WORTH else None


def denoised(audio: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Samples `[T]` at `RATE` without a noise: float32 `[T]`."""
    out = np.empty(len(audio), np.float32)
    for start in range(0, len(audio), AT_ONCE):
        first = max(0, start - AROUND)
        piece = audio[first : start + AT_ONCE + AROUND]
        spectra = _spectra(piece)
        ratios = np.square(np.abs(spectra)) / np.maximum(noise, NOTHING)
        kept = _audio(spectra * _gains(ratios), len(piece))
        out[start : start + AT_ONCE] = kept[start - first :][:AT_ONCE]
    return out


def _gains(ratios: np.ndarray) -> np.ndarray:
    """Of powers beside the noise's [windows, bins]. The mean in dB of both directions: one is late where a
    sound begins, the other where it ends.
    """
    gains = np.sqrt(_carried(ratios) * _carried(ratios[::-1])[::-1])
    return np.where(AUDIBLE, np.maximum(gains, LEAST), 1.0)


def _carried(ratios: np.ndarray) -> np.ndarray:
    gains, before = np.empty_like(ratios), np.zeros(ratios.shape[1])
    for gain, ratio in zip(gains, ratios, strict=True):
        prior = CARRIED * before + (1 - CARRIED) * np.maximum(ratio - 1, 0)
        prior = np.square(_wiener(prior)) * ratio
        gain[:] = _wiener(prior)
        before = np.square(gain) * ratio
    return gains


def _wiener(ratio: np.ndarray) -> np.ndarray:
    ratio = np.maximum(ratio, LOWEST)
    return ratio / (1 + ratio)


def _spectra(audio: np.ndarray) -> np.ndarray:
    """complex64 [windows, bins], of which every sample is in as many as any other."""
    padded = np.pad(np.asarray(audio, np.float32), (SIZE - HOP, SIZE))
    windows = np.lib.stride_tricks.sliding_window_view(padded, SIZE)[: len(audio) + SIZE - HOP : HOP]
    return np.fft.rfft(windows * WINDOW).astype(np.complex64)


def _audio(spectra: np.ndarray, samples: int) -> np.ndarray:
    windows = np.fft.irfft(spectra, SIZE) * (WINDOW * 2 * HOP / SIZE)
    out = np.zeros((len(windows) + SIZE // HOP - 1, HOP))
    for part in range(SIZE // HOP):
        out[part : part + len(windows)] += windows[:, part * HOP : (part + 1) * HOP]
    return out.reshape(-1)[SIZE - HOP :][:samples]


def _level(power: np.ndarray) -> np.ndarray:
    """In dB of full scale, of what is heard of powers [..., bins]."""
    return 10 * np.log10(power[..., AUDIBLE].sum(-1) * 4 / SIZE**2 + 1e-12)
