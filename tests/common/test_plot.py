"""The plot has a panel for everything that the models gave, and none for what they did not."""

import struct

import numpy as np
import pytest

from melforge.common.speech import Audio
from melforge.common.synthesis.plot import draw
from melforge.common.text.frontends import get_frontend
from tests.conftest import spoken_audio

PANEL = 330  # pixels


def audio(attention: bool, pitch: bool, frames=(40, 25)) -> Audio:
    utterances = get_frontend("english")("Hello there. Good day!").utterances
    hop, rate = 256, 22050
    sizes = [len(u.ids) for u in utterances]
    durations = [np.full(size, length // size, np.int64) for size, length in zip(sizes, frames, strict=True)]
    attentions = [np.full((n, size), 1 / size, np.float32) for size, n in zip(sizes, frames, strict=True)]
    return spoken_audio(
        np.zeros(sum(frames) * hop + 5000, np.float32),
        text="Hello there. Good day!",
        utterances=utterances,
        starts=(0.0, frames[0] * hop / rate),
        mels=tuple(np.full((80, length), -5.0, np.float32) for length in frames),
        durations=tuple(durations),
        pitches=tuple(np.full(size, 200.0, np.float32) for size in sizes) if pitch else None,
        alignments=tuple(attentions) if attention else None,
        notes=("", ""),
    )


def height(png: bytes) -> int:
    assert png[:4] == b"\x89PNG"
    return struct.unpack(">I", png[20:24])[0]


@pytest.mark.parametrize("attention, pitch, panels", [(0, 1, 2), (1, 0, 2), (1, 1, 3), (0, 0, 1)])
def test_panels(attention, pitch, panels):
    assert height(draw(audio(bool(attention), bool(pitch)))) == panels * PANEL


def test_an_utterance_without_frames_is_drawn_too():
    assert height(draw(audio(True, False, frames=(40, 0)))) == 2 * PANEL
