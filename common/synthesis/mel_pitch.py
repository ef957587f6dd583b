"""The pitch of mels, for vocoders with a harmonic source."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from melforge.common.arrays import Array, concatenate
from melforge.common.audio.pitch import PITCH_REACH
from melforge.common.engines import Engine
from melforge.common.synthesis.stage_engines import StageEngines

MARGIN = 4 * PITCH_REACH  # frames on each side: processors take 16 at a time
FIRST_PIECE = 96  # frames, for which a stream's first chunk waits


class MelPitch:
    """The stage "pitch", or "masked_pitch" in its place, of mels of up to `longest` frames at a time."""

    def __init__(self, engines: StageEngines, longest: int):
        self._engines, self._longest = engines, longest
        self._masked = "masked_pitch" in engines

    @property
    def _engine(self) -> Engine:
        return self._engines["masked_pitch" if self._masked else "pitch"]

    def of_batch(self, mel: Array, lengths: Array) -> Array:
        """Of a padded batch [B, n_mels, T_mel] that fits the stage [B, T_mel]; `lengths` are [B]."""
        return self._engine(mel=mel, **({"lengths": lengths} if self._masked else {}))["pitch"]

    def of_whole(self, mel: Array) -> Array:
        """Of a mel [1, n_mels, T_mel] of any length [1, T_mel]."""
        return concatenate(list(self.pieces(mel)), 1)

    def pieces(self, mel: Array) -> Iterator[Array]:
        """The same, one behind the other, the first one short where engines prefer pieces. They are those of
        the whole: what is rounded off depends on the lengths that an engine is given.
        """
        frames, longest = mel.shape[2], self._longest - 2 * MARGIN
        start, end = 0, min(FIRST_PIECE if self._engine.prefers_pieces else longest, longest)
        while start < frames:
            before, after = max(0, start - MARGIN), min(frames, end + MARGIN)
            lengths = _one_length(after - before, self._engine.device)
            yield self.of_batch(mel[:, :, before:after], lengths)[:, start - before : end - before]
            start, end = end, end + longest


@functools.cache  # a copy to a GPU takes as long as a launch
def _one_length(frames: int, device: str) -> Array:
    """int64 [1], for any stream to read."""
    if device == "cpu":
        return np.array([frames])
    import torch

    return torch.tensor([frames], device=device)
