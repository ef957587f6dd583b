"""The driver gives the published answers: pace, rounding and pitch transforms between the stages."""

from pathlib import Path

import numpy as np
import pytest

from melforge.common.speech import Controls
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.published import read_checkpoint
from melforge.fastpitch.infer import round_durations

GOLDEN = Path(__file__).parent.parent / "golden" / "fastpitch"
CASES = {
    "A": Controls(),
    "B": Controls(pace=1.35),
    "C": Controls(pace=0.8),
    "F": Controls(pitch_amplify=1.7, pitch_shift=40.0),
    "G": Controls(pitch_flatten=True),
}


@pytest.fixture(scope="module")
def answers():
    return np.load(GOLDEN / "io.npz")


@pytest.fixture(scope="module", params=["torch", pytest.param("onnx", marks=pytest.mark.slow)])
def acoustic(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MELFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return make_driver(read_checkpoint(GOLDEN / "checkpoint.pt"), request.param, "cpu")


@pytest.mark.parametrize("case", CASES)
def test_published_answers(acoustic, answers, case):
    rows = [row[:length] for row, length in zip(answers["ids"], answers["lengths"], strict=True)]
    output = acoustic.synthesise(rows, CASES[case])
    np.testing.assert_array_equal(output.mel_lengths, answers[f"{case}_dec_lens"])
    wanted = answers[f"{case}_mel"]
    tolerance = 1e-4 * max(1, np.abs(wanted).max())
    for mel, reference, frames in zip(output.mel, wanted, output.mel_lengths, strict=True):
        np.testing.assert_allclose(mel[:, :frames], reference[:, :frames], atol=tolerance)


def test_rounding_is_half_up_and_padding_gets_nothing():
    duration = np.array([[0.5, 1.5, 2.49, 3.0]], np.float32)
    assert round_durations(duration, np.array([3]), 1.0).tolist() == [[1, 2, 2, 0]]
    assert round_durations(duration, np.array([4]), 0.5).tolist() == [[1, 3, 5, 6]]


def test_an_item_that_would_vanish_gets_a_frame_for_each_symbol():
    duration = np.array([[0.1, 0.2, 0.0], [4.0, 0.1, 0.1]], np.float32)
    assert round_durations(duration, np.array([2, 3]), 1.0).tolist() == [[1, 1, 0], [4, 0, 0]]


def test_durations_are_limited_as_in_the_published_script():
    assert round_durations(np.array([[1000.0]], np.float32), np.array([1]), 1.0).tolist() == [[75]]
