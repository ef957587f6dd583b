"""A recording that comes while it is made: what is said in it, each part as soon as its speaker pauses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from melforge.common.recognition.long_recordings import LONGEST_PIECE, cut

FRAME = 0.02  # seconds whose loudness is compared
LEAST, FIRST = 1e-8, 1e-5  # power of a room, where samples are 1 at most, and the most it has at first
ABOVE = 10.0  # times that power is speech
RISE = 1.02  # of the room's power in a frame, so that it follows one that becomes louder by 4 dB a second
LEAD = 0.3  # seconds that are kept before and behind what is said
SHORTEST = 0.1  # seconds of speech
PAUSE = 0.8  # seconds


class GrowingRecording:
    """Collects samples, float32 [S] at `rate` Hz, and cuts them behind pauses of `pause` seconds."""

    def __init__(self, rate: int, pause: float = PAUSE) -> None:
        self._frame = max(1, round(FRAME * rate))
        self._lead, self._pause = round(LEAD / FRAME), max(1, round(pause / FRAME))  # frames
        self._longest, self._rate = int(LONGEST_PIECE * rate), rate
        self._audio = np.zeros(0, np.float32)
        self._start = 0  # samples before these
        self._looked = 0  # frames of these
        self._room = FIRST
        self._spoken = self._quiet = 0  # frames of speech, and since then

    def add(self, samples: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
        """What is complete now, each with the seconds at which it begins."""
        self._audio = np.concatenate((self._audio, samples)) if len(self._audio) else samples
        count = len(self._audio) // self._frame
        frames = self._audio[: count * self._frame].reshape(count, self._frame)[self._looked :]
        for power in np.square(frames, dtype=np.float64).mean(axis=1).tolist():
            self._looked += 1
            self._room = max(LEAST, min(power, self._room * RISE))
            if power > ABOVE * self._room:
                self._spoken, self._quiet = self._spoken + 1, 0
            else:
                self._quiet += 1
            heard = self._spoken * FRAME >= SHORTEST
            if heard and self._quiet >= self._pause:
                yield self._cut(max(0, self._quiet - self._lead))
            elif not heard and self._quiet > self._lead:
                self._cut(self._lead)
            elif self._looked * self._frame > self._longest:
                yield self._take(len(next(cut([self._audio], self._rate, self._longest))))

    def rest(self) -> Iterator[tuple[float, np.ndarray]]:
        """What is left at the end, unless nobody was heard in it."""
        if self._spoken or (len(self._audio) and not self._start):
            yield self._take(len(self._audio))

    def _cut(self, kept: int) -> tuple[float, np.ndarray]:
        """Takes all frames but the last `kept`."""
        return self._take((self._looked - kept) * self._frame)

    def _take(self, length: int) -> tuple[float, np.ndarray]:
        taken, begin = self._audio[:length], self._start / self._rate
        self._audio, self._start = self._audio[length:], self._start + length
        self._looked = max(0, self._looked - -(-length // self._frame))
        self._spoken = 0
        return begin, taken
