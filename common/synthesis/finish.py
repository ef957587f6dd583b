"""Volume, fades, pauses and soft clipping: what is done to an utterance's samples at the end."""

from __future__ import annotations

import numpy as np

FADE = 0.004  # seconds at both ends of an utterance, so that joining it to silence makes no click


KNEE = 0.8  # an excursion beyond 1 is rounded off from here on, so that nothing clips


def finish(
    samples: np.ndarray, rate: int, volume: float = 1.0, starts: bool = True, pause: float | None = None
) -> np.ndarray:
    """Volume, a short fade where an utterance starts or ends, and the pause behind it.

    `pause` None: the utterance goes on behind these samples.
    """
    samples = samples * np.float32(volume)
    fade = np.linspace(0, 1, min(round(FADE * rate), len(samples)), dtype=np.float32)
    if starts:
        samples[: len(fade)] *= fade
    if pause is not None:
        samples[len(samples) - len(fade) :] *= fade[::-1]
        samples = np.concatenate([samples, np.zeros(round(pause * rate), np.float32)])
    return samples


def round_off(samples: np.ndarray) -> np.ndarray:
    """Samples in [-1, 1]: each excursion that goes beyond is bent so that its peak is 1.

    An excursion is a run of samples above KNEE. A rule that sees one sample at a time and leaves what is
    within 1 as it is can only clip, and one that looks at the whole utterance can't stream; an excursion is
    over within milliseconds. The curve begins with a slope of 1 and nears identity as the peak nears 1, so
    that the last digits, which differ from chunk to chunk, decide nothing.
    """
    size = np.abs(samples)
    if size.max(initial=0.0) <= 1:
        return samples
    above = size > KNEE
    edges = np.flatnonzero(np.diff(above, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    # Up to the next one's start, but between them nothing is higher.
    peaks = np.repeat(np.maximum.reduceat(size, starts), ends - starts)
    bent = np.flatnonzero(above)[peaks > 1]
    over, highest = size[bent] - KNEE, peaks[peaks > 1] - KNEE
    rounded = KNEE + over / (1 + over * (1 / (1 - KNEE) - 1 / highest))
    samples = samples.copy()
    samples[bent] = np.copysign(np.minimum(rounded, 1), samples[bent])
    return samples


def settled(samples: np.ndarray) -> int:
    """So many samples come before the excursion that the last one belongs to, if it does to any."""
    quiet = np.flatnonzero(np.abs(samples) <= KNEE)
    return int(quiet[-1]) + 1 if len(quiet) else 0
