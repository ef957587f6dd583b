"""The pitch of mels, for vocoders with a harmonic source."""

from __future__ import annotations

import numpy as np

from melforge.common.arrays import Array, concatenate, to_device
from melforge.common.audio.pitch import PITCH_REACH
from melforge.common.engines import Engine
from melforge.common.synthesis.stage_engines import StageEngines


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
        frames, step = mel.shape[2], self._longest - 2 * PITCH_REACH
        parts = []
        for start in range(0, frames, step):
            before, after = max(0, start - PITCH_REACH), min(frames, start + step + PITCH_REACH)
            lengths = to_device(np.full(1, after - before, np.int64), self._engine.device)
            pitch = self.of_batch(mel[:, :, before:after], lengths)
            parts.append(pitch[:, start - before : min(start + step, frames) - before])
        return concatenate(parts, 1)
