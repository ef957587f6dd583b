"""What the alignments of sound and of broken speech are said to be."""

import numpy as np
import pytest

from melforge.tacotron2.attention import LONGEST_SKIP, attention_problem

STEP = 2 * 256 / 22050  # seconds, of two frames


def alignment_of(path, symbols: int, blur: float = 0.2) -> np.ndarray:
    """Attention that follows the path, with so much of it on either side."""
    weights = np.zeros((len(path), symbols + 2), np.float32)
    rows = np.arange(len(path))
    path = np.asarray(path) + 1
    weights[rows, path] = 1 - 2 * blur
    weights[rows, path - 1] += blur
    weights[rows, path + 1] += blur
    weights = weights[:, 1:-1]
    return weights / weights.sum(axis=1, keepdims=True)


def reading(first: int, last: int, steps: int = 3) -> list[int]:
    """From symbol to symbol, so many steps on each."""
    return [symbol for symbol in range(first, last) for _ in range(steps)]


@pytest.mark.parametrize(
    "path",
    [
        reading(0, 40),
        reading(0, 40, steps=1),
        [*range(0, 40, 3), 39],  # very fast speech, two symbols passed over at a time
        reading(0, 20) + [20] * 55 + reading(20, 40),  # a pause of 1.3 seconds
        reading(0, 20) + [12] * 4 + reading(20, 40),  # a glance back
        reading(0, 20) + [39] * 2 + reading(20, 40),  # and one ahead
        reading(0, 40) + [0] * 5,  # the attention lets go behind the end
        reading(0, 35),  # closing signs that nobody reads
        [0] * 30 + reading(0, 40),  # silence first
        reading(0, 15) + reading(11, 40),  # a stretched sound
    ],
)
@pytest.mark.parametrize("blur", [0.05, 0.3])
def test_sound_speech_is_left_alone(path, blur):
    assert attention_problem(alignment_of(path, 40, blur), True, STEP) == ""


@pytest.mark.parametrize("symbols", [1, 2, 5])
def test_short_texts_are_left_alone(symbols):
    assert attention_problem(alignment_of(reading(0, symbols), symbols), True, STEP) == ""
    assert attention_problem(alignment_of([0], symbols), True, STEP) == ""


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (
            reading(0, 15) + reading(25, 40),
            "the attention skipped 8 of 40 symbols, from symbol 17 on: words are missing",
        ),
        (reading(10, 40), "the attention skipped 9 of 40 symbols, from symbol 1 on: words are missing"),
        (
            reading(0, 25) + reading(12, 40),
            "the attention went back from symbol 25 to symbol 13: words are repeated",
        ),
        (
            reading(0, 20) + [20] * 130 + reading(21, 40),
            "the attention stayed on symbol 21 of 40 for 3.1 seconds",
        ),
        (reading(0, 20) + [20, 21] * 65 + reading(22, 40), "the attention stayed on symbol 21 of 40 for 3."),
        (reading(0, 40) + [39] * 120, "the attention stayed on symbol 40 of 40 for 2.9 seconds"),
        (reading(0, 30), "the speech stopped before the end: the last 9 of 40 symbols were not read"),
    ],
)
def test_what_went_wrong_is_said(path, sentence):
    assert attention_problem(alignment_of(path, 40), True, STEP).startswith(sentence)


def test_the_step_limit_comes_first():
    for path, what in (
        (reading(0, 15) + reading(20, 30), "the end is cut off"),
        (reading(0, 15) + reading(25, 40), "the speech went on behind the text's end"),
    ):
        said = attention_problem(alignment_of(path, 40), False, STEP)
        assert said == f"the step limit of {len(path)} was reached: {what}"


def test_seconds_count_and_not_steps():
    path = reading(0, 20) + [20] * 130 + reading(21, 40)
    assert attention_problem(alignment_of(path, 40), True, STEP)
    assert attention_problem(alignment_of(path, 40), True, STEP / 2) == ""


@pytest.mark.parametrize("gap", [LONGEST_SKIP, LONGEST_SKIP + 1])
def test_a_skip_is_what_is_longer_than_the_longest(gap):
    path = reading(0, 15) + reading(15 + gap, 40)
    said = attention_problem(alignment_of(path, 40, blur=0.0), True, STEP)
    assert said.startswith("" if gap == LONGEST_SKIP else f"the attention skipped {gap} of 40 symbols")
    assert bool(said) == (gap > LONGEST_SKIP)
