"""Tacotron 2 under the runner: what it reports, speaking again, its controls, streams and batches."""

import numpy as np
import pytest

from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.synthesis.plot import draw
from tests.conftest import save_trained, tiny_tacotron2

TEXT = "Hello there, this is a longer sentence, with a comma or two. Second one."
LIMIT = 60
MOODS = {"moody": 0.0, "endless": -20.0}
# With this seed the moody one ends neither sentence, with the next the second, with the one after both.
SEED = 20


@pytest.fixture(scope="session")
def spoken_by(trained, tmp_path_factory):
    """A pair of the tiny Tacotron 2 in that mood and the tiny HiFi-GAN, on PyTorch."""
    folder = tmp_path_factory.mktemp("moods")
    made: dict[tuple, TextToSpeech] = {}

    def spoken_by(mood: str, decoder: str | None = None) -> TextToSpeech:
        if (mood, decoder) not in made:
            weights = folder / f"{mood}.safetensors"
            if not weights.exists():
                save_trained(weights, *tiny_tacotron2(gate_bias=MOODS[mood]))
            files = [str(weights), str(trained["hifigan"])]
            made[mood, decoder] = TextToSpeech.load(
                checkpoints=files, backend="torch", device="cpu", decoder=decoder
            )
        return made[mood, decoder]

    return spoken_by


def test_a_gate_that_never_fires_is_reported_with_text_and_advice(spoken_by):
    audio = spoken_by("endless").speak(TEXT)
    first, second = audio.problems
    assert (first.utterance, second.utterance) == (0, 1) and second.text == "Second one."
    assert first.text.startswith("Hello there") and f"step limit of {LIMIT} was reached" in first.what
    assert "try retries" in first.advice
    assert [mel.shape for mel in audio.mels] == [(80, LIMIT)] * 2
    assert len(audio.samples) > 2 * LIMIT * 256


@pytest.mark.slow
def test_retries_do_not_hide_what_stays_wrong(spoken_by):
    tts = spoken_by("endless")
    plain, audio = tts.speak(TEXT), tts.speak(TEXT, retries=1)
    assert len(audio.problems) == 2 and audio.notes == ("", "")
    assert "retries did not help" in audio.problems[0].advice
    np.testing.assert_array_equal(audio.samples, plain.samples)


@pytest.mark.slow
def test_retries_find_a_seed_that_ends(spoken_by):
    tts = spoken_by("moody")
    plain, next_one, last = (tts.speak(TEXT, Controls(seed=SEED + i)) for i in range(3))
    assert len(plain.problems) == 2
    audio = tts.speak(TEXT, Controls(seed=SEED), retries=2)
    assert audio.problems == ()
    assert audio.notes == ("spoken again with seed 22", "spoken again with seed 21")
    # The answer is that seed's, as if it had been asked for.
    np.testing.assert_array_equal(audio.mels[0], last.mels[0])
    np.testing.assert_array_equal(audio.mels[1], next_one.mels[1])
    np.testing.assert_array_equal(tts.speak(TEXT, Controls(seed=SEED), retries=2).samples, audio.samples)


@pytest.mark.slow
def test_in_a_batch_only_the_troubled_are_spoken_again(spoken_by):
    tts = spoken_by("moody")
    texts = [TEXT, "Hello.", "One more sentence, and it is not short.", "Second one."]
    assert tts.acoustic.batch_safe
    answers = tts.speak_many(texts, Controls(seed=SEED), batch_size=3, retries=2)
    for text, answer in zip(texts, answers, strict=True):
        alone = tts.speak(text, Controls(seed=SEED), retries=2)
        assert (answer.notes, answer.problems) == (alone.notes, alone.problems)
        np.testing.assert_allclose(answer.samples, alone.samples, atol=1e-4)


@pytest.mark.parametrize("retries", [0, 2])
def test_stream_joins_to_what_speak_gives_and_tells_the_same(spoken_by, retries):
    tts = spoken_by("moody")
    audio = tts.speak(TEXT, Controls(seed=SEED), retries=retries)
    stream = tts.stream(TEXT, Controls(seed=SEED), retries=retries)
    assert stream.alignments is None  # kept where a list was set
    stream.alignments = []
    np.testing.assert_allclose(np.concatenate(list(stream)), audio.samples, atol=1e-4)
    assert tuple(stream.problems) == audio.problems and tuple(stream.notes) == audio.notes
    for alignment, wanted in zip(stream.alignments, audio.alignments, strict=True):
        np.testing.assert_array_equal(alignment, wanted)


def test_the_alignment_comes_with_every_utterance(spoken_by):
    audio = spoken_by("moody").speak(TEXT, Controls(seed=2))
    assert audio.pitches is None
    for alignment, mel, durations, utterance in zip(
        audio.alignments, audio.mels, audio.durations, audio.utterances, strict=True
    ):
        assert alignment.shape == (mel.shape[1], len(utterance.ids))
        np.testing.assert_allclose(alignment.sum(1), 1, atol=1e-5)
        assert durations.sum() == mel.shape[1]
    assert draw(audio)[:4] == b"\x89PNG"


def test_without_dropout_the_seed_changes_nothing(spoken_by):
    tts = spoken_by("endless")
    first, second = (tts.speak("Hello.", Controls(seed=seed)) for seed in (1, 2))
    assert np.abs(first.mel - second.mel).max() > 1e-2
    first, second = (tts.speak("Hello.", Controls(seed=seed, dropout=False)) for seed in (1, 2))
    np.testing.assert_array_equal(first.samples, second.samples)


def test_gate_threshold_and_step_limit(spoken_by):
    tts = spoken_by("endless")
    short = tts.speak("Hello.", Controls(step_limit=20))
    assert short.mel.shape[1] == 20 and "step limit of 20" in short.problems[0].what
    at_once = tts.speak("Hello.", Controls(gate_threshold=0.0))
    assert at_once.mel.shape[1] == 1 and "nothing was said" in at_once.problems[0].what
    with pytest.raises(ValueError, match="a step limit of 100000; this model goes up to"):
        tts.speak("Hello.", Controls(step_limit=100_000))


@pytest.mark.parametrize("control", [{"pace": 1.2}, {"pitch_shift": 20.0}, {"speaker": 1}])
def test_controls_of_other_models_are_refused(spoken_by, control):
    message = r"would change nothing: fastpitch .*ha(s|ve) it, not tacotron2 or hifigan"
    with pytest.raises(ValueError, match=message):
        spoken_by("moody").speak("Hello.", Controls(**control))


def test_a_text_longer_than_the_model_takes_is_cut(spoken_by, monkeypatch):
    tts = spoken_by("moody")
    monkeypatch.setattr(tts.acoustic, "longest_text", 24)
    audio = tts.speak(TEXT)
    assert len(audio.utterances) > 2 and max(len(u.ids) for u in audio.utterances) <= 24
    spoken = " ".join(u.normalised for u in audio.utterances)
    assert spoken.replace(",", "") == TEXT.replace(",", "")
