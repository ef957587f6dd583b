"""What Kokoro's pitch says of the frames of its resampled audio: the phase of its source, and where it is
heard."""

import numpy as np

from recipes.kokoro.network import HALF, RATE

LOWEST = 45.0  # Hz: in pauses Kokoro's pitch is between 0 and 40
WINDOW = 512  # samples that are compared with those a period later
PERIODIC = 0.6  # of their correlation: three parts tone and two of noise
FAINT = 1e-5  # power of a frame that hardly says a pitch
UNSURE = 0.03  # the weight of such a frame


def frame_source(
    pitch: np.ndarray, first: int, frames: int, rate: int, hop: int, higher: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Phase in turns, pitch in Hz and whether it is voiced, float32 and bool [frames], at the frames'
    centres.

    `pitch` [T] is Kokoro's, of the whole sentence, `first` the sample at `rate` with which the frames begin,
    and `higher` how much faster the sentence is played. Pauses have a pitch that goes from one voice to the
    next.
    """
    voiced = pitch > LOWEST
    if not voiced.any():
        return np.zeros(frames, np.float32), np.full(frames, LOWEST, np.float32), np.zeros(frames, bool)
    places = np.arange(len(pitch))
    filled = np.exp(np.interp(places, places[voiced], np.log(pitch[voiced]))).astype(np.float64)
    true, smooth = ((values.astype(np.float64) / RATE * HALF).cumsum() for values in (pitch, filled))
    # In a voiced stretch the two differ by a number; a pause has that of the stretch before it.
    known = np.maximum.accumulate(np.where(voiced, places, -1))
    shift = (true - smooth)[np.where(known < 0, places[voiced][0], known)]
    centres = (first + hop // 2 + hop * np.arange(frames)) * (RATE * higher / rate)
    at = (centres + 0.5) / HALF - 0.5
    nearest = np.clip(np.rint(at).astype(int), 0, len(pitch) - 1)
    phase = np.interp(at, places, smooth) + shift[nearest]
    reach = hop / 2 * RATE * higher / rate / HALF
    turns = np.interp(at + reach, places, smooth) - np.interp(at - reach, places, smooth)
    turns = np.where(
        (at - reach < 0) | (at + reach > len(pitch) - 1), filled[nearest] * higher / rate * hop, turns
    )
    return (phase % 1.0).astype(np.float32), (turns / hop * rate).astype(np.float32), voiced[nearest]


def periodicity(audio: np.ndarray, pitch: np.ndarray, rate: int, hop: int) -> np.ndarray:
    """Correlation of each frame's samples with those a period later, float32 [frames]; `pitch` in Hz."""
    frames = len(pitch)
    period = np.rint(rate / np.maximum(pitch, LOWEST)).astype(int)
    padded = np.pad(audio.astype(np.float32), rate // int(LOWEST) + WINDOW)
    begin = rate // int(LOWEST) + WINDOW + hop // 2 + hop * np.arange(frames) - (WINDOW + period) // 2
    index = np.arange(WINDOW)
    now, later = padded[begin[:, None] + index], padded[(begin + period)[:, None] + index]
    power = np.sqrt((now * now).sum(1) * (later * later).sum(1))
    return (now * later).sum(1) / np.maximum(power, 1e-9)


def power(audio: np.ndarray, frames: int, hop: int) -> np.ndarray:
    """Mean square of the two hops around each frame's centre, float32 [frames]."""
    padded = np.pad(np.square(audio[: frames * hop].astype(np.float32)), hop // 2)
    halves = padded.reshape(-1, hop // 2).mean(1)
    sums = np.convolve(halves, np.full(4, 0.25), "valid")
    return np.pad(sums[::2], (0, max(0, frames - len(sums[::2]))))[:frames]


def pitch_per_symbol(pitch: np.ndarray, heard: np.ndarray, durations: np.ndarray) -> np.ndarray:
    """Mean pitch in Hz of each symbol's frames where it is heard, 0 where nowhere, float32 [symbols]."""
    owner = np.repeat(np.arange(len(durations)), durations)
    heard = heard[: len(owner)]
    totals = np.bincount(owner[heard], pitch[: len(owner)][heard], minlength=len(durations))
    counts = np.bincount(owner[heard], minlength=len(durations))
    return (totals / np.maximum(counts, 1)).astype(np.float32)
