"""Speech that is heard again: error rates, limits, and the options of speaking and verifying."""

import json

import pytest
import soundfile

from melforge.common.recognition.alignment import Alignment, WordLeftOut
from melforge.common.recognition.listener import HeardAgain, Listener, as_spelt
from melforge.common.recognition.loading import load_recogniser
from tests.common.test_recognition import run  # noqa: F401 (a fixture)


def test_what_differs_is_described():
    same = HeardAgain(("it", "is"), ("it", "is"), Alignment((), ()))
    assert same.rate == 0 and same.describe() == ""
    other = HeardAgain(("it", "is"), ("it", "was", "it"), Alignment((), ()))
    assert (other.errors, other.rate) == (2, 1.0)
    assert other.describe() == '2 of 2 words heard as others: "it was it"'


@pytest.mark.parametrize(
    ("heard", "words", "spelt"),
    [
        ("be sea gee why high for", "b c g y hi four", "b c g y hi four"),
        ("double you", "w", "w"),
        ("the sea", "the sea", "the sea"),
        ("a bee see", "a be see", "a be see"),
        ("in to it today", "into it today", "into it today"),
        ("xyzzy there", "their plugh", "xyzzy their"),
        ("", "b", ""),
    ],
)
def test_what_sounds_the_same_is_no_error(heard, words, spelt):
    assert as_spelt(heard.split(), words.split()) == spelt.split()


def test_rates_are_of_all_that_was_heard(small_ear, tts):
    listener = Listener(load_recogniser(small_ear, device="cpu"), 0.5)
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
    status, _, errors = run(*words, "--listen", "small", "--listen-limit", "1")
    assert status == 0 and "words heard as others" in errors and "above" not in errors
    (tmp_path / "it.wav").unlink()
    status, _, errors = run(*words, "--listen", "smal")
    assert status == 2 and "unknown ear" in errors and not (tmp_path / "it.wav").exists()


def test_without_an_ear_listening_says_how_to_give_one(run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("MELFORGE_EARS", str(tmp_path / "none"))
    status, _, errors = run("speak", "Hello there.", "-o", tmp_path / "it.wav", "--listen")
    assert status == 2 and "there is no ear in" in errors and "give one with --listen FOLDER" in errors
    assert "--ear" not in errors and not (tmp_path / "it.wav").exists()


@pytest.mark.parametrize("limit", ["15", "1.01", "-0.1", "nan", "all"])
def test_a_limit_is_a_share(run, tmp_path, limit):  # noqa: F811
    words = ("speak", "Hello there.", "-o", tmp_path / "it.wav", "--listen", f"--listen-limit={limit}")
    status, _, errors = run(*words)
    assert status == 2 and f"must be a share from 0 to 1, such as 0.3 for 30 %, not '{limit}'" in errors


@pytest.mark.parametrize("command", [("speak", "Hello there."), ("verify", "--text", "Hello.")])
def test_a_limit_without_an_ear_is_refused(run, tiny_voice, tmp_path, command):  # noqa: F811
    words = (*command, "--voice", tiny_voice, "-o", tmp_path / "it.wav", "--listen-limit", "0.2")
    status, _, errors = run(*words)
    assert status == 2 and "error: --listen-limit is for --listen: give that too" in errors
    assert not list(tmp_path.iterdir())


class Scripted(Listener):
    """Hears so many words left out in one text after the other, in the order of its calls."""

    def __init__(self, *slips: int):
        super().__init__(None, 1.0)  # type: ignore[arg-type]
        self.slips, self.heard = list(slips), []

    def hear(self, audio):
        self.heard.append(audio)
        left_out = tuple(WordLeftOut("word", 1, 0.5) for _ in range(self.slips.pop(0)))
        return HeardAgain(("a", "word"), ("a",), Alignment((), left_out))


def speak_heard_by(command, monkeypatch, listener, *words):
    monkeypatch.setattr("melforge.common.cli.options.listener_from", lambda args: listener)
    status, out, errors = command("speak", *words, "--acoustic", "tacotron2", "--json")
    assert status == 0, errors
    return json.loads(out)["phrases"], errors


def samples_of(path):
    return soundfile.read(path, dtype="int16")[0].tolist()


def test_what_an_ear_misses_is_spoken_again_with_the_next_seed(run, tmp_path, monkeypatch):  # noqa: F811
    it, other = tmp_path / "it.wav", tmp_path / "other.wav"
    words = ("Hello there.", "-o", it, "--seed", "7")
    listener = Scripted(2, 1, 0)
    (record,), errors = speak_heard_by(run, monkeypatch, listener, *words, "--retry", "3")
    assert record["listened"]["seed"] == 9 and "heard: spoken again with seed 9" in errors
    assert len(listener.heard) == 3 and len(listener.pairs) == 1  # a text counts once
    speak_heard_by(run, monkeypatch, Scripted(0), "Hello there.", "-o", other, "--seed", "9")
    assert samples_of(it) == samples_of(other)
    best, _ = speak_heard_by(run, monkeypatch, Scripted(2, 1, 3, 1), *words, "--retry", "3")
    assert best[0]["listened"]["seed"] == 8  # the first of the best
    same, _ = speak_heard_by(run, monkeypatch, Scripted(2, 2), *words, "--retry", "1")
    assert same[0]["listened"]["seed"] == 7


def test_only_what_has_noise_and_words_amiss_is_spoken_again(run, tmp_path, monkeypatch):  # noqa: F811
    words = ("Hello there.", "-o", tmp_path / "it.wav")
    for slips, more in ((0, ("--retry", "3")), (2, ()), (2, ("--retry", "3", "--no-dropout"))):
        listener = Scripted(slips)
        speak_heard_by(run, monkeypatch, listener, *words, *more)
        assert len(listener.heard) == 1
    listener = Scripted(2)
    monkeypatch.setattr("melforge.common.cli.options.listener_from", lambda args: listener)
    assert run("speak", *words, "--retry", "3")[0] == 0 and len(listener.heard) == 1  # FastPitch


def test_each_of_several_phrases_is_spoken_again_by_itself(run, tmp_path, monkeypatch):  # noqa: F811
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("One.\nAnother one.\nA third one.\n")
    words = ("-i", phrases, "-o", tmp_path / "out")
    listener = Scripted(0, 1, 0, 1, 1, 0)
    records, _ = speak_heard_by(run, monkeypatch, listener, *words, "--retry", "2")
    assert sorted(record["listened"]["seed"] for record in records) == [0, 1, 2]
    assert len(listener.pairs) == 3


@pytest.mark.slow
def test_verifying_listens_to_both_sides(run, tiny_voice, tmp_path):  # noqa: F811
    words = ("verify", "--voice", tiny_voice, "--text", "Hello.", "--layers", "proj")
    status, out, errors = run(*words, "--listen", "--listen-limit", "1")
    assert status == 0, errors
    assert "PyTorch: heard again: word error rate" in out and "the other: heard again:" in out
    status, out, _ = run(*words, "--listen", "--json", "-")
    assert status == 1 and set(json.loads(out)["heard"]) == {"PyTorch", "the other"}
