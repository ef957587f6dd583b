"""What marks in a text ask for, in the sound: breaks, and how fast, high and loud its parts are."""

import numpy as np
import pytest

from melforge.common.errors import InputError
from melforge.common.recognition.listener import Listener
from melforge.common.recognition.loading import load_recogniser
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.subtitles import words_json
from melforge.common.synthesis.timestamps import bookmarks, timestamps

BREAKS = (
    "Take a deep breath<break time='{}ms'/> and then go on.",
    "Stop! <break time='{}ms'/>What is this?",
    "Yes,<break time='{}ms'/> she sells fish.",
)
PLAIN = "I really think that everybody could afford printing, was the first."
SPAN = (
    "<speak>I really think that <prosody {}>everybody could afford printing</prosody>, was the first.</speak>"
)
FIRST, LAST = 4, 7  # words of the span
MARKED = (
    "<speak><break time='0.2s'/>Printing <mark name='a'/>was <prosody rate='70%' pitch='+3st' volume='-6dB'>"
    "the first</prosody> of <break time='333ms'/> the <emphasis>arts</emphasis>. Nobody knew.<break/></speak>"
)


@pytest.fixture(scope="module")
def shipped():
    return {name: TextToSpeech.load(name, "hifigan", device="cpu") for name in ("fastpitch", "tacotron2")}


@pytest.fixture(scope="module")
def fastpitch(shipped):
    return shipped["fastpitch"]


def silences(samples: np.ndarray, rate: int) -> tuple[float, float, float]:
    """Seconds below -45 dB of the loudest 1.5 ms: at the beginning, the longest inside, at the end."""
    size = 32
    power = np.square(samples[: len(samples) // size * size]).reshape(-1, size).mean(1)
    heard = np.flatnonzero(power > power.max() * 10**-4.5)
    inside = (np.diff(heard) - 1).max(initial=0)
    return tuple(n * size / rate for n in (heard[0], inside, len(power) - 1 - heard[-1]))


def pitch_of(audio, words: slice) -> float:
    """Hz, of the voiced parts of these words: by the highest peak of autocorrelations."""
    rate, chosen = audio.sampling_rate, timestamps(audio)[words]
    samples = audio.samples[round(chosen[0].start * rate) : round(chosen[-1].end * rate)]
    found = []
    for start in range(0, len(samples) - 1024, 256):
        frame = samples[start : start + 1024] * np.hanning(1024)
        autocorrelation = np.fft.irfft(np.abs(np.fft.rfft(frame, 2048)) ** 2)[:400]
        lag = 45 + int(autocorrelation[45:300].argmax())
        if autocorrelation[lag] > 0.5 * autocorrelation[0] > 0:
            found.append(rate / lag)
    return float(np.median(found))


@pytest.mark.parametrize("milliseconds", [100, 300, 1000])
@pytest.mark.parametrize("name", ["fastpitch", "tacotron2"])
def test_a_break_is_as_long_as_asked_for(shipped, name, milliseconds):
    tts = shipped[name]
    for text in BREAKS:
        audio = tts.speak(f"<speak>{text.format(milliseconds)}</speak>")
        _, inside, _ = silences(audio.samples, audio.sampling_rate)
        assert inside == pytest.approx(milliseconds / 1000, abs=0.02), text


def test_breaks_at_the_ends_are_heard(fastpitch):
    audio = fastpitch.speak("<speak><break time='700ms'/>Hello you.<break time='900ms'/></speak>")
    before, _, behind = silences(audio.samples, audio.sampling_rate)
    assert before == pytest.approx(0.7, abs=0.02) and behind == pytest.approx(0.9, abs=0.02)
    assert timestamps(audio)[0].start == pytest.approx(before, abs=0.05)


@pytest.mark.parametrize("rate", [0.5, 0.8, 1.25, 2.0])
def test_the_rate_of_a_span(fastpitch, rate):
    plain, marked = (timestamps(fastpitch.speak(t)) for t in (PLAIN, SPAN.format(f"rate='{rate}'")))
    assert [word.text for word in marked] == [word.text for word in plain]
    spans = [words[LAST].end - words[FIRST].start for words in (plain, marked)]
    assert spans[0] / spans[1] == pytest.approx(rate, rel=0.1)
    assert marked[FIRST - 1].end == plain[FIRST - 1].end


@pytest.mark.parametrize("semitones", [-2, 3, 6])
def test_the_pitch_of_a_span(fastpitch, semitones):
    plain, marked = (fastpitch.speak(t) for t in (PLAIN, SPAN.format(f"pitch='{semitones:+}st'")))
    whole = fastpitch.speak(PLAIN, Controls(pitch_semitones=semitones))
    span, before = slice(FIRST, LAST + 1), slice(0, FIRST)
    assert pitch_of(marked, span) / pitch_of(plain, span) == pytest.approx(2 ** (semitones / 12), rel=0.1)
    assert pitch_of(marked, span) == pytest.approx(pitch_of(whole, span), rel=0.03)
    assert pitch_of(marked, before) == pytest.approx(pitch_of(plain, before), rel=0.1)


def test_the_pitch_of_a_span_in_hertz(fastpitch):
    symbols = fastpitch.speak(PLAIN).utterances[0].symbols
    pitches = {
        value: fastpitch.speak(SPAN.format(f"pitch='{value}'")).pitches[0]
        for value in ("+0Hz", "+20Hz", "+100%", "150Hz")
    }
    inside = pitches["+20Hz"] != pitches["+0Hz"]
    assert 0 < inside.sum() < len(symbols) and not inside[0]
    np.testing.assert_allclose(pitches["+20Hz"] - pitches["+0Hz"], 20 * inside, atol=1e-2)
    np.testing.assert_allclose(pitches["+100%"], pitches["+0Hz"] * (1 + inside), rtol=1e-4)
    moved = (pitches["150Hz"] - pitches["+0Hz"])[inside]
    assert np.ptp(moved) < 1e-2 and abs(pitches["150Hz"][inside].mean() - 150) < 60


def test_the_volume_of_a_span(fastpitch):
    plain, marked = (fastpitch.speak(t) for t in (PLAIN, SPAN.format("volume='-12dB'")))
    words, rate = timestamps(plain), plain.sampling_rate
    begin, end = round(words[FIRST].start * rate), round(words[LAST].end * rate)
    ramp = round(0.02 * rate)
    inside, behind = slice(begin + ramp, end - ramp), slice(end + ramp, None)
    np.testing.assert_allclose(marked.samples[inside], plain.samples[inside] * 10 ** (-12 / 20), atol=1e-6)
    assert np.array_equal(marked.samples[behind], plain.samples[behind])
    steps = np.diff(marked.samples - plain.samples)
    assert np.abs(steps).max() < np.abs(np.diff(plain.samples)).max()  # no click where it changes


@pytest.mark.parametrize("name", ["fastpitch", "tacotron2"])
def test_a_stream_and_a_batch_are_what_is_spoken_alone(shipped, name):
    tts = shipped[name]
    alone = tts.speak(MARKED)
    stream = tts.stream(MARKED, sizes=ChunkSizes(20, 40))
    streamed = np.concatenate(list(stream))
    assert len(streamed) == len(alone.samples) and np.abs(streamed - alone.samples).max() < 1e-4
    assert stream.starts == pytest.approx(alone.starts) and bookmarks(stream) == bookmarks(alone)
    batched = tts.speak_many([MARKED, "Hello.", PLAIN, MARKED])
    for one in (batched[0], batched[3]):
        assert len(one.samples) == len(alone.samples)
        assert all(np.abs(a - b).max() < 1e-3 for a, b in zip(one.mels, alone.mels, strict=True))
    assert [len(d) for d in alone.durations] == [len(u.ids) for u in alone.utterances]
    assert [d.sum() for d in alone.durations] == [mel.shape[1] for mel in alone.mels]


def test_marks_have_their_time(fastpitch):
    audio = fastpitch.speak(MARKED)
    (mark,) = bookmarks(audio)
    words = {word.text: word for word in timestamps(audio)}
    assert (mark.name, mark.time) == ("a", words["was"].start)
    assert f'"name": "a",\n   "time": {round(mark.time, 4)}' in words_json(audio)


def test_without_marks_ssml_is_its_text(fastpitch):
    audio = fastpitch.speak(f"<speak>{PLAIN}</speak>")
    assert np.array_equal(audio.samples, fastpitch.speak(PLAIN).samples) and not audio.warnings


def test_pauses_are_controls(fastpitch):
    text = "Hello there. And you.\n\nGood."

    def seconds(**controls) -> float:
        return fastpitch.speak(text, Controls(**controls)).seconds

    usual = seconds()
    assert seconds(pause_factor=0) == pytest.approx(usual - 0.85, abs=1e-3)
    assert seconds(pause_factor=2) == pytest.approx(usual + 0.85, abs=1e-3)
    audio = fastpitch.speak(text, Controls(sentence_pause=1.0, paragraph_pause=0.05))
    _, inside, _ = silences(audio.samples, audio.sampling_rate)
    assert inside == pytest.approx(1.0, abs=0.02)
    breaks = "<speak>One. <break time='1s'/> Two.</speak>"
    assert fastpitch.speak(breaks, Controls(pause_factor=0)).seconds == fastpitch.speak(breaks).seconds
    with pytest.raises(InputError, match="sentence_pause must be a number from 0 to 20"):
        Controls(sentence_pause=21)


def test_what_a_model_cannot_do_is_said(shipped):
    text = "<speak>One <emphasis>two</emphasis> <voice name='ann'>three</voice>.</speak>"
    audio = shipped["tacotron2"].speak(text)
    assert audio.warnings == (
        "tacotron2 cannot change the pitch of a part of a text",
        "tacotron2 cannot change the rate of a part of a text",
        "speaker 'ann' does not exist: this voice has one speaker; the speaker of the whole text says it",
    )


def test_the_rate_of_a_span_in_fastspeech():
    tts = TextToSpeech.load("fastspeech", "hifigan", device="cpu")
    plain, marked = (timestamps(tts.speak(t)) for t in (PLAIN, SPAN.format("rate='50%'")))
    spans = [words[LAST].end - words[FIRST].start for words in (plain, marked)]
    assert spans[1] / spans[0] == pytest.approx(2, rel=0.1)
    assert tts.speak(SPAN.format("pitch='+2st'")).warnings == (
        "fastspeech cannot change the pitch of a part of a text",
    )


def test_speakers_of_a_text():
    tts = TextToSpeech.load(voice="orchard", device="cpu")
    parts = "I am here. <voice name='daniel'>And so am I.</voice> <voice name='x'>Who?</voice>"
    text = f"<speak>{parts}</speak>"
    audio = tts.speak(text, Controls(speaker="emma"))
    (warning,) = audio.warnings
    assert warning.startswith("speaker 'x' does not exist: this model has 11")
    assert [u.speaker for u in audio.utterances] == ["", "daniel", ""]
    emma, daniel = (tts.speak("And so am I.", Controls(speaker=who)) for who in ("emma", "daniel"))
    assert np.array_equal(audio.durations[1], daniel.durations[0])
    assert not np.array_equal(daniel.durations[0], emma.durations[0])


@pytest.mark.slow
def test_nothing_is_lost_around_marks(fastpitch):
    """Heard again by the shipped ear."""
    listener = Listener(load_recogniser(), limit=0.1)
    texts = [f"<speak>{text.format(300)}</speak>" for text in BREAKS] + [
        "<speak>Printing was the <emphasis>first</emphasis> of the <sub alias='arts'>a</sub> that anybody "
        "<prosody rate='80%' pitch='+1st' volume='-3dB'>could afford</prosody> to learn.</speak>",
        "He took the [rate:85%]long way home[/rate] and [pause:0.4s] never came back to the old house.",
    ]
    for audio in fastpitch.speak_many(texts):
        assert not listener.listen(audio).slips, audio.text
    assert listener.ok, listener.summary()
