"""How a stretch of a text is spoken otherwise than the rest: what prosody and emphasis come down to."""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """Beside the controls, with which it is multiplied or to which it is added."""

    rate: float = 1.0  # times the pace
    semitones: float = 0.0
    shift: float = 0.0  # Hz
    level: float = 0.0  # Hz, in place of the speaker's mean pitch; 0: that
    range: float = 1.0  # times the distance of the pitch from its mean
    volume: float = 1.0  # times the amplitude


PLAIN = Style()
PITCH = ("semitones", "shift", "level", "range")
