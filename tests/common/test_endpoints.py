"""What is said in a recording that comes, cut where its speaker pauses."""

import numpy as np
import pytest

from melforge.common.recognition.endpoints import GrowingRecording

RATE = 16000


def tone(seconds, level=0.1):
    """A tone as loud and soft as syllables are."""
    time = np.arange(round(seconds * RATE)) / RATE
    return (level * np.sin(2 * np.pi * 200 * time) * (0.5 + 0.5 * np.sin(2 * np.pi * 4 * time))).astype("f4")


def silence(seconds):
    return np.zeros(round(seconds * RATE), np.float32)


def cut(samples, chunk, pause=0.8):
    growing, found = GrowingRecording(RATE, pause), []
    for start in range(0, len(samples), chunk):
        found += growing.add(samples[start : start + chunk])
    return found, list(growing.rest())


@pytest.mark.parametrize("chunk", [100, 1600, 10**6])
@pytest.mark.parametrize("noise", [0.0, 1e-3, 4e-3])
def test_each_part_has_what_is_said_and_little_more(chunk, noise):
    parts = [silence(2), tone(1.5), silence(1), tone(0.7), silence(0.4), tone(0.7), silence(2), tone(1)]
    samples = np.concatenate(parts)
    samples += (noise * np.random.default_rng(1).standard_normal(len(samples))).astype(np.float32)
    found, rest = cut(samples, chunk)
    spans = [(begin, begin + len(audio) / RATE) for begin, audio in (*found, *rest)]
    said = [(2.0, 3.5), (4.5, 6.3), (8.3, 9.3)]  # the short pause is none
    assert len(found) == 2 and len(rest) == 1
    for (begin, end), (first, last) in zip(spans, said, strict=True):
        assert first - 0.5 <= begin <= first and last - 0.15 <= end <= last + 0.4
    for begin, audio in (*found, *rest):
        assert np.array_equal(audio, samples[round(begin * RATE) :][: len(audio)])


def test_a_shorter_pause_may_be_asked_for():
    samples = np.concatenate([tone(0.7), silence(0.4), tone(0.7)])
    assert len(cut(samples, 160, pause=0.3)[0]) == 1 and not cut(samples, 160)[0]


def test_silence_is_nothing_and_who_never_pauses_is_cut_at_the_longest_piece():
    assert cut(silence(5), 1600) == ([], [])
    samples = tone(50)
    found, rest = cut(samples, 1600)
    assert len(found) == 2 and all(14 <= len(audio) / RATE <= 20 for _, audio in found)
    assert np.array_equal(np.concatenate([audio for _, audio in (*found, *rest)]), samples)
