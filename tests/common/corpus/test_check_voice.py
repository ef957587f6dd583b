"""`melforge voice check`: of a voice that is whole or damaged, and of a corpus beside it or by itself."""

from functools import partial

import numpy as np
import pytest
import soundfile

from melforge.common.cli import voice_check
from melforge.common.training.corpus.dataset import Labels, save_labels

RATE, HOP = 22_050, 256


@pytest.fixture
def check(melforge):
    """Runs the command; its status, stdout and stderr."""
    return partial(melforge, "voice", "check")


@pytest.fixture
def corpus(tmp_path):
    """Two lines of a voice of 200 Hz, with 10 phones in a second; labels as of "english"."""
    folder = tmp_path / "corpus"
    (folder / "wavs").mkdir(parents=True)
    phones = voice_check.phone_ids()[:10]
    ids = np.concatenate([[11], phones, [7]])
    durations = np.array([8, *[round(RATE / HOP / 10)] * 10, 8])
    pitch = np.where(durations > 0, 200.0, 0.0).astype(np.float32)
    labels = Labels(["a", "b"], ["A.", "B."], [ids] * 2, [durations] * 2, [pitch] * 2)
    save_labels(folder, labels)
    for name in labels.names:
        soundfile.write(folder / "wavs" / f"{name}.wav", np.full(durations.sum() * HOP, 0.1), RATE)
    return folder


def test_a_corpus_without_a_report_is_told_from_its_labels(check, corpus):
    status, out, _ = check(corpus)
    assert status == 0 and out.splitlines()[-1] == "ok"
    assert out.splitlines()[1].split() == ["(one)", "2", "0.0", "9.6", "200", "Hz"]


def test_sound_files_that_are_not_those_of_the_labels(check, corpus):
    soundfile.write(corpus / "wavs" / "a.wav", np.zeros(100), RATE)
    (corpus / "wavs" / "b.wav").unlink()
    status, out, _ = check(corpus)
    assert status == 1 and "a.wav is shorter than its labels: prepare the corpus again" in out
    assert "b.wav is missing or cannot be read" in out and out.endswith("something is wrong\n")
    soundfile.write(corpus / "wavs" / "a.wav", np.zeros(10 * RATE), 16_000)
    assert "a.wav has 16000 Hz, not 22050" in check(corpus)[1]


def test_a_voice_speaks_and_is_compared_with_a_corpus(check, tiny_voice, corpus, monkeypatch):
    monkeypatch.setattr(voice_check, "SENTENCES", voice_check.SENTENCES[:2])
    monkeypatch.setattr(voice_check, "is_pitch_measured", lambda: False)
    status, out, _ = check(tiny_voice, "--ear", "none")
    assert status == 0, out
    for part in ("fastpitch", "hifigan", "encoder, decoder", "no model card", "no ear hears it", "phones/s"):
        assert part in out
    status, out, _ = check(tiny_voice, "--ear", "none", "--corpus", corpus)
    assert status == 1 and "wrong: its pace is " in out and "phones a second, and 9.6 in the corpus" in out


def test_a_voice_is_compared_with_as_many_speakers(check, tiny_voice, corpus, monkeypatch):
    monkeypatch.setattr(voice_check, "SENTENCES", voice_check.SENTENCES[:1])
    monkeypatch.setattr(voice_check, "is_pitch_measured", lambda: False)
    labels = voice_check.load_labels(corpus)
    labels.speakers, labels.speaker = ["Ann", "Bob"], np.array([0, 1])
    save_labels(corpus, labels)
    status, out, _ = check(tiny_voice, "--ear", "none", "--corpus", corpus)
    assert status == 1 and "wrong: speakers: 2 in the corpus, 1 in the voice" in out
    assert [line.split()[0] for line in check(corpus)[1].splitlines()[1:3]] == ["Ann", "Bob"]


def test_speakers_are_the_same_by_name():
    assert voice_check.speakers_of_corpus((), []) == {0: 0}
    assert voice_check.speakers_of_corpus(("Cid", "Ann", "Bob"), ["Ann", "Bob"]) == {1: 0, 2: 1}
    with pytest.raises(ValueError, match="the voice lacks speakers of the corpus: Zoe"):
        voice_check.speakers_of_corpus(("Ann", "Bob"), ["Ann", "Zoe"])


def test_missing_and_damaged_files_of_a_voice(check, voice_copy):
    (voice_copy / "fastpitch" / "decoder.onnx").unlink()
    weights = voice_copy / "hifigan" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    status, out, _ = check(voice_copy)
    assert status == 1 and "decoder.onnx is missing" in out
    assert "no whole safetensors file (1000 bytes)" in out
    weights.unlink()
    assert f"wrong: {weights} is missing\n" in check(voice_copy)[1]


def test_a_voice_that_is_silent_or_not_finite_is_wrong(check, voice_copy, monkeypatch):
    from safetensors.numpy import load_file, save_file

    weights = voice_copy / "hifigan" / "weights.safetensors"
    state = load_file(weights)
    save_file({name: np.zeros_like(value) for name, value in state.items()}, weights)
    monkeypatch.setattr(voice_check, "SENTENCES", voice_check.SENTENCES[:1])
    status, out, _ = check(voice_copy, "--ear", "none")
    assert status == 1 and "nothing is heard" in out


def test_an_ear_counts_the_words_that_it_hears_as_others(check, tiny_voice, small_ear, monkeypatch):
    class Heard:
        def describe(self):
            return "1 of 9 words heard as others"

    def listen(self, audio):
        self.pairs.append((["a", "b"], ["a", "c"]))
        return Heard()

    monkeypatch.setattr(voice_check, "SENTENCES", voice_check.SENTENCES[:2])
    monkeypatch.setenv("MELFORGE_EARS", str(small_ear.parent))
    for words in (("--ear", small_ear), ("--ear", "small")):  # whose weights are random
        status, out, _ = check(tiny_voice, *words)
        assert status == 1 and "words misheard" in out and "the limit of 15 %" in out
    status, out, _ = check(tiny_voice)  # which may be unknown to the first ear there is
    assert status == 0 and "words misheard" in out and "wrong" not in out
    monkeypatch.setattr(voice_check.Listener, "listen", listen)
    status, out, _ = check(tiny_voice, "--ear", "small")
    assert status == 1 and "50.0 %" in out and "above the limit of 15 %" in out
    assert check(tiny_voice, "--ear", "small", "--listen-limit", "0.6")[0] == 0
    assert "no ear hears it" in check(tiny_voice, "--ear", "none")[1]
    status, _, errors = check(tiny_voice, "--ear", "none", "--listen-limit", "0.6")
    assert status == 2 and errors == (
        "error: --listen-limit is for an ear: leave out --ear none, or the limit\n"
    )


def test_what_is_neither_voice_nor_corpus(check, tiny_voice, tmp_path):
    for words, message in (
        (("--corpus", "nowhere"), "nowhere"),
        (("--ear", "nobody"), "unknown ear 'nobody'"),
    ):
        status, out, errors = check(tiny_voice, *words)
        assert (status, out) == (2, "") and message in errors  # before the work
    status, _, errors = check(tmp_path)
    assert status == 2 and errors == (
        f"error: {tmp_path} is neither a voice (voice.yaml) nor a prepared corpus (labels.npz)\n"
    )
    assert check("hazzel")[0] == 2
