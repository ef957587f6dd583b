"""What a recording is like before anything is trained on it: levels, clipping, noise, and how its text fits.

Levels are in dB of full scale. The limits for a warning, and for leaving a line out, stand in `defects.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from melforge.common.training.corpus.alignment import LEAD, TAIL, PhoneTimes

SILENT = -60.0  # dB: a recording whose loudest 10 ms are below holds nothing
LEVEL = -22.0  # dB: of speech in a prepared corpus, as in the one of the shipped voice
PEAK = 0.95  # that a prepared recording has at most
CLIP = 0.999  # of the highest sample: what lies above for CLIP_RUN samples in a row is cut off
CLIP_RUN = 3
FLOOR_DB = -120.0
WORST_FRAMES = 50  # of 10 ms: a wrong word lasts as long
UNREAD_DB = -20.0  # below the level of speech: as loud as this outside all words is speech without a text


@dataclass(frozen=True)
class Measures:
    """Of one recording; `level` is that of its speech, `noise` that of its quietest tenth of a second."""

    rate: int  # Hz
    seconds: float
    peak: float  # 1 is full scale
    clipped: float  # share of samples
    offset: float  # mean of all samples (direct current)
    level: float  # dB
    noise: float  # dB
    start: float  # seconds: where speech begins
    end: float

    @property
    def silent(self) -> bool:
        return self.end <= self.start

    @property
    def speech(self) -> float:
        """Seconds from the first sound to the last."""
        return self.end - self.start


def frame_levels(audio: np.ndarray, rate: int) -> np.ndarray:
    """The level of every 10 ms in dB, float64 `[frames]`."""
    frame = max(1, rate // 100)
    count = len(audio) // frame
    power = np.square(audio[: count * frame].reshape(count, frame), dtype=np.float64).mean(axis=1)
    return 10 * np.log10(np.maximum(power, 10 ** (FLOOR_DB / 10)))


def measure(audio: np.ndarray, rate: int) -> Measures:
    """Of float32 samples `[T]`, as read."""
    offset = float(audio.mean(dtype=np.float64)) if len(audio) else 0.0
    levels = frame_levels(audio - np.float32(offset), rate)
    seconds, peak = len(audio) / rate, float(np.abs(audio).max(initial=0.0))
    about = {"rate": rate, "seconds": seconds, "peak": peak, "offset": offset}
    if not len(levels) or levels.max() < SILENT:
        level = float(levels.max(initial=FLOOR_DB))
        return Measures(**about, clipped=0.0, level=level, noise=level, start=0.0, end=0.0)
    noise = _quietest(levels)
    top = float(np.percentile(levels, 95))
    # Between the noise and the speech, and never so high that a soft consonant would be noise.
    threshold = min(max(noise + 9.0, top - 45.0), top - 20.0)
    loud = np.flatnonzero(levels > threshold)
    spoken = levels[levels > max(threshold, top - 25.0)]
    return Measures(
        **about,
        clipped=clipped_share(audio),
        level=float(10 * np.log10(np.mean(10 ** (spoken / 10)))),
        noise=noise,
        start=float(loud[0]) / 100,
        end=min(seconds, float(loud[-1] + 1) / 100),
    )


def _quietest(levels: np.ndarray) -> float:
    """The mean level of the quietest 100 ms in a row, digital silence aside where there is other."""
    heard = levels[levels > FLOOR_DB + 20]
    levels = heard if len(heard) >= 10 else levels
    if len(levels) < 10:
        return float(levels.min())
    return float(np.convolve(levels, np.full(10, 0.1), "valid").min())


def clipped_share(audio: np.ndarray) -> float:
    """The share of samples `[T]` in runs at the highest level, as overload leaves them."""
    total = 0
    for side in (audio, -audio):
        top = side >= CLIP * max(float(side.max(initial=0.0)), 1e-6)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], top, [False]])))
        runs = edges[1::2] - edges[::2]
        total += int(runs[runs >= CLIP_RUN].sum()) if len(runs) > 1 else 0
    return total / max(1, len(audio))


def prepared(audio: np.ndarray, rate: int, found: Measures) -> np.ndarray:
    """A recording `[T]` without direct current, trimmed to its speech, at `LEVEL`: float32 `[T']`."""
    first, last = int((found.start - LEAD) * rate), int((found.end + TAIL) * rate)
    speech = audio[max(0, first) : max(0, last)] - np.float32(found.offset)
    gain = 10 ** ((LEVEL - found.level) / 20)
    return speech * np.float32(min(gain, PEAK / max(1e-6, float(np.abs(speech).max(initial=0.0)))))


@dataclass(frozen=True)
class Fit:
    """How a text fits its recording, by forced alignment; scores as in `PhoneTimes`."""

    score: float  # of all phones
    worst: float  # of the half second of words that fits least
    worst_at: float  # seconds: where that begins
    worst_words: str  # their phones
    unread: float  # seconds that are as loud as speech, outside all words


def fit_of(audio: np.ndarray, rate: int, words: Sequence[Sequence[str]], found: PhoneTimes) -> Fit:
    """Of a recording `[T]` and the phones of its words, which were aligned."""
    frames = np.maximum(1, np.rint(100 * (found.times[:, 1] - found.times[:, 0])).astype(int))  # of 10 ms
    scores = np.repeat(found.scores, frames)
    window = min(WORST_FRAMES, len(scores))
    means = np.convolve(scores, np.full(window, 1 / window), "valid")
    worst = int(means.argmin())
    owner = np.repeat(np.repeat(np.arange(len(words)), [len(word) for word in words]), frames)
    first, last = owner[worst], owner[worst + window - 1]
    begin = found.times[np.repeat(np.arange(len(frames)), frames)[worst], 0]
    said = " / ".join(" ".join(p.removeprefix("@") for p in word) for word in words[first : last + 1])
    levels = frame_levels(audio, rate)
    outside = np.ones(len(levels), bool)
    for start, end in found.times:
        outside[max(0, round(start * 100) - 2) : round(end * 100) + 2] = False
    loud = outside & (levels > np.percentile(levels, 90) + UNREAD_DB)
    return Fit(float(scores.mean()), float(means[worst]), float(begin), said, float(loud.sum()) / 100)
