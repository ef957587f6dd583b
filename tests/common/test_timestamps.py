"""When words are spoken, and subtitles of them."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from melforge.common.runner import TextToSpeech
from melforge.common.synthesis import subtitles
from melforge.common.synthesis.subtitles import LONGEST, LONGEST_SECONDS, cues, srt, vtt, words_json
from melforge.common.synthesis.timestamps import Word, pieces_as_written, timestamps, utterance_timestamps

TEXT = (
    "Printing was the first of the arts, that anybody could afford. Well, it's 5 p.m. in the U.S.; nobody "
    "knew, however, for what reason the well-known ladder had been left there!\n\nStop."
)
FIRST = ["Printing", "was", "the", "first", "of", "the", "arts", "that", "anybody", "could", "afford"]
ACOUSTIC = ("fastpitch", "fastspeech", "tacotron2")
CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)[.,](\d{3})")


@pytest.fixture(scope="module")
def shipped():
    """The shipped voice's answer to TEXT by acoustic model; noise and mel are those of speech."""
    return {name: TextToSpeech.load(name, "hifigan", device="cpu") for name in ACOUSTIC}


@pytest.fixture(scope="module")
def spoken(shipped):
    return {name: tts.speak(TEXT) for name, tts in shipped.items()}


def seconds(clock: str) -> float:
    hours, minutes, whole, thousandths = map(int, CLOCK.fullmatch(clock).groups())
    return 3600 * hours + 60 * minutes + whole + thousandths / 1000


def loudness(audio, start: float, end: float) -> float:
    samples = audio.samples[round(start * audio.sampling_rate) : round(end * audio.sampling_rate)]
    return float(np.sqrt(np.mean(np.square(samples)))) if len(samples) else 0.0


@pytest.mark.parametrize("acoustic", ACOUSTIC)
def test_words_are_in_order_apart_and_within_the_audio(spoken, acoustic):
    audio = spoken[acoustic]
    words = timestamps(audio)
    assert [word.text for word in words[: len(FIRST)]] == FIRST
    assert words[-1].text == "Stop"
    edges = [edge for word in words for edge in (word.start, word.end)]
    assert edges == sorted(edges) and edges[0] >= 0 and edges[-1] <= audio.seconds
    for words, utterance in zip(utterance_timestamps(audio), audio.utterances, strict=True):
        phonemes = [phoneme.text for word in words for phoneme in word.phonemes]
        assert phonemes == [s.removeprefix("@") for s in utterance.symbols if s.startswith("@")]
        for word in words:
            assert (word.start, word.end) == (word.phonemes[0].start, word.phonemes[-1].end)
            edges = [edge for phoneme in word.phonemes for edge in (phoneme.start, phoneme.end)]
            assert edges == sorted(edges)


@pytest.mark.parametrize("acoustic", ACOUSTIC)
def test_pauses_between_words_are_silent_and_words_are_not(spoken, acoustic):
    audio = spoken[acoustic]
    words = timestamps(audio)
    speech = np.median([loudness(audio, word.start, word.end) for word in words])
    pauses = [(a.end, b.start) for a, b in pairwise(words) if b.start - a.end > 0.1]
    assert len(pauses) >= 4
    assert max(loudness(audio, *pause) for pause in pauses) < 0.03 * speech
    assert min(loudness(audio, word.start, word.end) for word in words) > 0.1 * speech
    assert loudness(audio, words[-1].end, audio.seconds) < 0.03 * speech


@pytest.mark.parametrize("acoustic", ACOUSTIC)
def test_a_stream_knows_the_words_of_an_utterance_before_its_sound(shipped, spoken, acoustic):
    whole = timestamps(spoken[acoustic])
    stream = shipped[acoustic].stream(TEXT)
    made, known = 0, []
    for chunk in stream:
        made += len(chunk)
        known = timestamps(stream)
        assert known[-1].end >= min(made / stream.sampling_rate - 1.0, whole[-1].end)
    assert [word.text for word in known] == [word.text for word in whole]
    assert max(abs(a.start - b.start) for a, b in zip(known, whole, strict=True)) < 1e-6


def test_words_follow_the_pace(shipped, spoken):
    from melforge.common.speech import Controls

    slow = timestamps(shipped["fastpitch"].speak(TEXT, Controls(pace=0.5)))
    usual = timestamps(spoken["fastpitch"])
    ratios = [(a.end - a.start) / (b.end - b.start) for a, b in zip(slow, usual, strict=True)]
    assert np.median(ratios) == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("acoustic", ACOUSTIC)
def test_cues_hold_the_text_as_written_and_can_be_read(spoken, acoustic):
    audio = spoken[acoustic]
    found = cues(audio)
    assert " ".join(cue.text for cue in found) == " ".join(TEXT.split())
    assert all(len(cue.text) <= LONGEST and cue.end - cue.start <= LONGEST_SECONDS for cue in found)
    edges = [edge for cue in found for edge in (cue.start, cue.end)]
    assert edges == sorted(edges) and edges[-1] <= audio.seconds
    assert len(found) == 4 and found[1].text.endswith(",")


def test_srt(spoken):
    blocks = srt(spoken["fastpitch"]).rstrip("\n").split("\n\n")
    assert [block.split("\n")[0] for block in blocks] == ["1", "2", "3", "4"]
    for block, cue in zip(blocks, cues(spoken["fastpitch"]), strict=True):
        start, arrow, end = block.split("\n")[1].split(" ")
        assert arrow == "-->" and "," in start
        assert (seconds(start), seconds(end)) == pytest.approx((cue.start, cue.end), abs=6e-4)
        lines = block.split("\n")[2:]
        assert " ".join(lines) == cue.text and len(lines) <= 2 and max(map(len, lines)) <= 42


def test_vtt_escapes_what_would_be_markup(shipped):
    audio = shipped["fastpitch"].speak("Is a < b & c --> d here?")
    head, block = vtt(audio).rstrip("\n").split("\n\n")
    assert head == "WEBVTT"
    assert block.split("\n")[1:] == ["Is a &lt; b &amp; c --&gt; d here?"]
    assert "-->" not in srt(audio).split("\n")[2]
    start, _, end = block.split("\n")[0].split(" ")
    assert "." in start and seconds(start) < seconds(end)


def test_json_has_words_and_phonemes(spoken):
    content = json.loads(words_json(spoken["fastpitch"]))
    assert content["seconds"] == pytest.approx(spoken["fastpitch"].seconds, abs=1e-3)
    assert [u["text"] for u in content["utterances"]] == [u.text for u in spoken["fastpitch"].utterances]
    word = content["utterances"][0]["words"][1]
    assert word["text"] == "was" and [p["text"] for p in word["phonemes"]] == ["W", "AH0", "Z"]
    assert word["start"] == word["phonemes"][0]["start"] and word["end"] == word["phonemes"][-1]["end"]


def test_an_utterance_longer_than_the_model_takes_keeps_its_words(tts):
    text = "Behind the well-known mill stood 25 tall ladders, and nobody knew for what reason they were left."
    expected = [word.text for word in timestamps(tts.speak(text))]
    longest = tts.acoustic.longest_text
    try:
        tts.acoustic.longest_text = 40
        audio = tts.speak(text)
    finally:
        tts.acoustic.longest_text = longest
    assert len(audio.utterances) > 1
    assert [word.text for word in timestamps(audio)] == expected
    assert " ".join(cue.text for cue in cues(audio)) == text


def test_an_utterance_without_sound_has_words_without_length(spoken):
    audio = spoken["fastpitch"]
    silent = replace(audio, durations=tuple(np.zeros_like(d) for d in audio.durations))
    assert all(word.start == word.end for word in timestamps(silent))


def test_two_lines_of_a_cue_are_about_equally_long():
    block = subtitles.srt_of([subtitles.Cue("one two three four five six seven eight nine ten", 0.0, 1.5)])
    assert block.splitlines()[2:] == ["one two three four five", "six seven eight nine ten"]


@pytest.mark.parametrize(
    "written, spoken, pieces",
    [
        ("She paid $5.50 – “fine”!", "she paid five dollars and fifty cents fine", "1 1 5 1"),
        ("In C++!", "in C plus plus", "1 3"),
        ("Go.", "well go", "2"),
    ],
)
def test_a_text_as_written_is_told_in_pieces(written, spoken, pieces):
    found = pieces_as_written(written, [Word(text, 0, 0, ()) for text in spoken.split()])
    assert [str(piece["words"]) for piece in found] == pieces.split()
    assert " ".join(piece["text"] for piece in found) == written
