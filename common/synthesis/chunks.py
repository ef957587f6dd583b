"""A mel's audio in chunks that join to the whole: their lengths, and the frames that each one depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from melforge.common.arrays import Array

# A stream's chunks in mel frames: the first is small, to leave at once; they double up to the largest.
FIRST_CHUNK, LARGEST_CHUNK = 24, 192

# (first frame, last frame + 1) of a mel -> the generator's further inputs for these.
Excerpts = Callable[[int, int], dict[str, Array]]


@dataclass(frozen=True)
class ChunkSizes:
    """Mel frames of chunks: those of the first, each further one `growth` times as many, up to the largest.

    `even`: the last two are alike, or one, of up to a third more: every seam costs those around it again.
    """

    first: int = FIRST_CHUNK
    largest: int = LARGEST_CHUNK
    growth: int = 2
    even: bool = False

    @property
    def longest(self) -> int:
        """Frames that no chunk has more than."""
        return max(self.first, self.largest) * (4 if self.even else 3) // 3


@dataclass(frozen=True)
class Window:
    """Frames of a mel, each range without its end: a chunk's own, those that are denoised with it, and those
    that the generator takes.
    """

    start: int
    end: int
    first: int
    last: int
    before: int
    after: int

    @property
    def frames(self) -> int:
        """That the generator takes."""
        return self.after - self.before


class Chunks:
    """The audio of one mel [1, n_mels, T_mel], an iterator of float32 chunks (S,).

    `window` is the next chunk's, None behind the last. `compute` has that chunk `put` here.
    """

    def __init__(
        self,
        mel: Array,
        excerpts: Excerpts,
        strength: float,
        windows: Iterator[Window],
        compute: Callable[[Sequence[tuple[Chunks, Window]]], None],
    ):
        self.mel, self.excerpts, self.strength = mel, excerpts, strength
        self._windows, self._compute = windows, compute
        self.window = next(windows, None)
        self._ahead: Callable[[], np.ndarray] | None = None

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> np.ndarray:
        if self.window is None:
            raise StopIteration
        if self._ahead is None:
            self._compute([(self, self.window)])
        read, self._ahead = self._ahead, None
        assert read
        samples = read()
        self.window = next(self._windows, None)
        return samples

    @property
    def needs_run(self) -> bool:
        """Whether the next chunk is still to be computed."""
        return self.window is not None and self._ahead is None

    def put(self, read: Callable[[], np.ndarray]) -> None:
        """The next chunk is what `read` gives, which may wait for a GPU."""
        self._ahead = read


def even_share(left: int, size: int, longest: int) -> int:
    """Of the frames that are left, those of a chunk of about `size`, so that none is short at the end."""
    if left <= min(size + size // 3, longest):
        return left
    return -(-left // 2) if left < 2 * size else size
