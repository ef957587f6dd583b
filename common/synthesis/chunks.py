"""A mel's audio in chunks that join to the whole: their lengths, and the frames that each one depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from melforge.common.arrays import Array
from melforge.common.speech import Controls

# A stream's chunks in mel frames: the first is small, to leave at once; they double up to the largest.
FIRST_CHUNK, LARGEST_CHUNK = 24, 192

# (first frame, last frame + 1) of a mel -> the generator's further inputs for these.
Excerpts = Callable[[int, int], dict[str, Array]]


@dataclass(frozen=True)
class ChunkSizes:
    """Mel frames of chunks: those of the first, each further one `growth` times as many, up to the largest.

    `even`: the last two are alike, or one, of up to a third more: every seam costs those around it again.
    `stretched`: what a chunk may have where it is asked to be longer than that.
    """

    first: int = FIRST_CHUNK
    largest: int = LARGEST_CHUNK
    growth: int = 2
    even: bool = False
    stretched: int = 0

    @property
    def longest(self) -> int:
        """Frames that no chunk has more than."""
        return max(self.first, self.largest, self.stretched) * (4 if self.even else 3) // 3


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

    `window` is the next chunk's, None behind the last; `window_of` gives it by its first frame and about how
    many it has. `run` has that chunk `put` here, or all of them where the controls of the `whole` mel are
    given.
    """

    def __init__(
        self,
        mel: Array,
        excerpts: Callable[[], Excerpts],
        strength: float,
        sizes: ChunkSizes,
        window_of: Callable[[int, int], Window],
        run: Callable[[Chunks], None],
        whole: Controls | None = None,
    ):
        self.mel, self.strength, self.whole = mel, strength, whole
        self._excerpts = excerpts
        self._sizes, self._size = sizes, sizes.first
        self._window_of, self._run = window_of, run
        self.window = window_of(0, self._size) if mel.shape[2] else None
        self._ahead: Callable[[Window], np.ndarray] | None = None
        self._all_ahead = False

    @cached_property
    def excerpts(self) -> Excerpts:
        """Which nobody needs where all is made at once."""
        return self._excerpts()

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> np.ndarray:
        if self.window is None:
            raise StopIteration
        self.compute()
        assert self._ahead
        samples = self._ahead(self.window)
        if not self._all_ahead:
            self._ahead = None
        self._size = min(self._size * self._sizes.growth, self._sizes.largest)
        end = self.window.end
        self.window = self._window_of(end, self._size) if end < self.mel.shape[2] else None
        return samples

    def stretch(self, frames: int) -> None:
        """Asks for about so many frames in the next chunk, if it has fewer and is not computed yet."""
        frames = min(frames, self._sizes.stretched)
        if self.window and self.needs_run and frames > self._size:
            self._size = frames
            self.window = self._window_of(self.window.start, frames)

    @property
    def needs_run(self) -> bool:
        """Whether the next chunk is still to be computed."""
        return self.window is not None and self._ahead is None

    def compute(self) -> None:
        """Has the next chunk computed, if it is not yet; a GPU may still be at work on it then."""
        if self.needs_run:
            self._run(self)

    def put(self, read: Callable[[Window], np.ndarray], all_ahead: bool = False) -> None:
        """The next chunk, or each that is to come, is what `read` gives, which may wait for a GPU."""
        self._ahead, self._all_ahead = read, all_ahead


def even_share(left: int, size: int, longest: int) -> int:
    """Of the frames that are left, those of a chunk of about `size`, so that none is short at the end."""
    if left <= min(size + size // 3, longest):
        return left
    return -(-left // 2) if left < 2 * size else size
