"""Speech that is heard again: error rates, limits, and the options of speaking and verifying."""

import json

import pytest

from common.recognition.alignment import Alignment
from common.recognition.listener import HeardAgain, Listener
from common.recognition.loading import load_recogniser
from tests.common.test_recognition import ear, run  # noqa: F401 (fixtures)


def test_what_differs_is_described():
    same = HeardAgain(("it", "is"), ("it", "is"), Alignment((), ()))
    assert same.rate == 0 and same.describe() == ""
    other = HeardAgain(("it", "is"), ("it", "was", "it"), Alignment((), ()))
    assert (other.errors, other.rate) == (2, 1.0)
    assert other.describe() == '2 of 2 words heard as others: "it was it"'


def test_rates_are_of_all_that_was_heard(ear, tts):  # noqa: F811
    listener = Listener(load_recogniser(ear, device="cpu"), 0.5)
    assert listener.ok and listener.rate == 0
    audio = tts.speak("Hello there, it is 5 o'clock.")
    found = listener.listen(audio)
    assert found.words == ("hello", "there", "it", "is", "five", "o'clock") and found.heard
    assert listener.rate == found.rate >= 0.8 and not listener.ok
    assert "of 6 words - above the limit of 50 %" in listener.summary()
    assert json.loads(json.dumps(found.as_json()))["wer"] == pytest.approx(found.rate, abs=1e-4)


def test_speaking_listens_where_asked(run, tiny_voice, tmp_path):  # noqa: F811
    words = ("speak", "Hello there.", "--voice", tiny_voice, "-o", tmp_path / "it.wav")
    status, out, errors = run(*words, "--listen", "--json")
    assert status == 1 and "heard again: word error rate" in errors and "above the limit of 15 %" in errors
    (record,) = json.loads(out)["phrases"]
    assert record["listened"]["wer"] > 0.15 and record["listened"]["heard"]
    status, _, errors = run(*words, "--listen", "small", "--listen-limit", "100")
    assert status == 0 and "words heard as others" in errors and "above" not in errors
    (tmp_path / "it.wav").unlink()
    status, _, errors = run(*words, "--listen", "smal")
    assert status == 2 and "unknown ear" in errors and not (tmp_path / "it.wav").exists()


@pytest.mark.slow
def test_verifying_listens_to_both_sides(run, tiny_voice, tmp_path):  # noqa: F811
    words = ("verify", "--voice", tiny_voice, "--text", "Hello.", "--layers", "proj")
    status, out, errors = run(*words, "--listen", "--listen-limit", "100")
    assert status == 0, errors
    assert "PyTorch: heard again: word error rate" in out and "the other: heard again:" in out
    status, out, _ = run(*words, "--listen", "--json", "-")
    assert status == 1 and set(json.loads(out)["heard"]) == {"PyTorch", "the other"}
