"""Volume, fades, pauses and soft clipping: what is done to an utterance's samples at the end."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from melforge.common.errors import InputError
from melforge.common.text.style import Style

FADE = 0.004  # seconds at both ends of an utterance, so that joining it to silence makes no click
RAMP = 0.02  # seconds in which the volume changes
KNEE = 0.8  # soft clipping begins here, for peaks beyond 1


def finish(
    samples: np.ndarray,
    rate: int,
    volume: float | np.ndarray = 1.0,
    starts: bool = True,
    pause: float | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Volume, a short fade where an utterance starts or ends, and the pause behind it.

    The volume is a number, or float32 [S]. `pause` None: the utterance goes on behind these samples. `out`
    float32 takes all of it.
    """
    size = len(samples)
    if out is None:
        out = np.empty(size + (0 if pause is None else round(pause * rate)), np.float32)
    np.multiply(samples, np.float32(volume), out=out[:size])
    out[size:] = 0
    fade = _fade(min(round(FADE * rate), size))
    if starts:
        out[: len(fade)] *= fade
    if pause is not None:
        out[size - len(fade) : size] *= fade[::-1]
    return out


@functools.lru_cache(16)
def _fade(size: int) -> np.ndarray:
    return np.linspace(0, 1, size, dtype=np.float32)


def join_utterances(
    audio: list[np.ndarray],
    pauses: Sequence[float],
    rate: int,
    volumes: Sequence[float | np.ndarray],
    lead: float = 0.0,
) -> tuple[np.ndarray, list[int]]:
    """A text's utterances, float32 [S] each, finished and in order, and the sample at which each begins.

    `lead`: seconds of silence before them. The list is emptied on the way: a book's samples are gigabytes.
    """
    sizes = [len(samples) + round(pause * rate) for samples, pause in zip(audio, pauses, strict=True)]
    starts = np.cumsum([round(lead * rate), *sizes]).tolist()
    joined = np.empty(starts.pop(), np.float32)
    joined[: starts[0] if starts else None] = 0
    audio.reverse()
    for start, size, pause, volume in zip(starts, sizes, pauses, volumes, strict=True):
        place = joined[start : start + size]
        clipped = soft_clip(finish(audio.pop(), rate, volume, pause=pause, out=place))
        if clipped is not place:
            place[:] = clipped
    return joined, starts


def volumes_of(styles: Sequence[Style], durations: np.ndarray, hop: int, rate: int) -> np.ndarray | float:
    """Of the samples of an utterance whose symbols last so many frames, int64 [T_text]: float32 [S]."""
    if all(style.volume == 1 for style in styles):
        return 1.0
    levels = np.array([style.volume for style in styles], np.float64)
    samples = np.repeat(levels, durations * hop)
    half = round(RAMP * rate / 2)
    summed = np.cumsum(np.pad(samples, (half + 1, half), "edge"))
    return ((summed[2 * half + 1 :] - summed[: -2 * half - 1]) / (2 * half + 1)).astype(np.float32)


def soft_clip(samples: np.ndarray) -> np.ndarray:
    """Samples in [-1, 1]: each peak beyond 1 is compressed to 1, from KNEE on; else unchanged.

    A peak is a run of samples above KNEE: a few milliseconds, so that a stream can wait for its end. (A rule
    for single samples that leaves those within 1 as they are can only clip.) The curve begins with a slope
    of 1 and tends to identity as the peak tends to 1, so that rounding between chunks decides nothing.
    An InputError where the models gave NaN or infinity.
    """
    if samples.max(initial=0.0) <= 1 and samples.min(initial=0.0) >= -1:  # neither is so where there is NaN
        return samples
    require_finite(samples)
    size = np.abs(samples)
    above = size > KNEE
    edges = np.flatnonzero(np.diff(above, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    # A slice of reduceat goes up to the next start; nothing after a run's end is higher than the run.
    peaks = np.repeat(np.maximum.reduceat(size, starts), ends - starts)
    compressed = np.flatnonzero(above)[peaks > 1]
    over, highest = size[compressed] - KNEE, peaks[peaks > 1] - KNEE
    shaped = KNEE + over / (1 + over * (1 / (1 - KNEE) - 1 / highest))
    samples = samples.copy()
    samples[compressed] = np.copysign(np.minimum(shaped, 1), samples[compressed])
    return samples


def complete_peaks(samples: np.ndarray) -> int:
    """How many samples come before a peak that may go on in the next chunk."""
    if len(samples) and abs(samples[-1]) <= KNEE:
        return len(samples)
    quiet = np.flatnonzero(np.abs(samples) <= KNEE)
    return int(quiet[-1]) + 1 if len(quiet) else 0


def require_finite(samples: np.ndarray) -> np.ndarray:
    """The samples; an InputError where the models gave NaN or infinity."""
    # Both are NaN where any sample is; a sum would take three times as long.
    if not (np.isfinite(samples.max(initial=0.0)) and np.isfinite(samples.min(initial=0.0))):
        raise InputError("the models gave NaN instead of audio: their weights or their precision do not hold")
    return samples
