"""Long recordings with a text each become lines that begin and end in pauses."""

import json

import numpy as np
import pytest
import soundfile

from melforge.common.cli.voice_check import SENTENCES
from melforge.common.training.corpus import cutting, from_recordings
from melforge.common.training.corpus.cutting import Cut, cut_long, phrases_of
from melforge.common.training.corpus.quality import measure
from melforge.common.training.corpus.takes import find_takes

TEXTS = (*SENTENCES, "He was sitting on a wall, and she, who knew him, went on.")


def test_phrases_end_at_marks_and_say_which_end_a_sentence():
    text = "Dr. Smith paid $1,000, and left; she stayed. Why?"
    assert list(phrases_of(text)) == [
        ("Dr. Smith paid $1,000,", False),
        ("and left;", False),
        ("she stayed.", True),
        ("Why?", True),
    ]


@pytest.fixture
def chapter(tmp_path):
    """A recording of 25 s with its text."""
    (tmp_path / "in").mkdir()
    noise = np.random.default_rng(0).standard_normal(25 * 8000)
    soundfile.write(tmp_path / "in" / "chapter.wav", 0.1 * noise, 8000)
    (tmp_path / "in" / "chapter.txt").write_text("One is said. Two is said.")
    return tmp_path / "in"


def test_lines_of_a_long_recording_are_pieces_that_are_found_once(chapter, tmp_path, monkeypatch):
    heard = []

    def cut(recogniser, take):
        heard.append(take.name)
        return [Cut(1.5, 4.0, "One is said."), Cut(4.0, 6.25, "Two is said.")]

    monkeypatch.setattr(cutting, "cut_recording", cut)
    for _ in range(2):
        lines = cut_long(find_takes(chapter), 20.0, tmp_path / "cuts", from_recordings.key_of, "rowan")
    assert heard == ["chapter"]
    assert [(line.name, line.piece, line.text) for line in lines] == [
        ("chapter-1", (1.5, 4.0), "One is said."),
        ("chapter-2", (4.0, 6.25), "Two is said."),
    ]
    assert [line.source for line in lines] == ["chapter.wav from 1.5 s", "chapter.wav from 4.0 s"]
    (chapter / "chapter.txt").write_text("Three is said.")
    cut_long(find_takes(chapter), 20.0, tmp_path / "cuts", from_recordings.key_of, "rowan")
    assert heard == ["chapter", "chapter"]
    takes = find_takes(chapter)
    assert cut_long(takes, 20.0, tmp_path / "cuts", from_recordings.key_of, "none") == takes
    assert cut_long(takes, 30.0, tmp_path / "cuts", from_recordings.key_of, "rowan") == takes


def test_a_list_of_pieces_of_a_file_is_read(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(80_000), 8000)
    rows = [
        {"audio_filepath": "a.wav", "offset": at, "duration": 1.5, "text": f"At {at}."} for at in (0, 2.5)
    ]
    (tmp_path / "list.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = [(take.name, take.piece) for take in find_takes(tmp_path)]
    assert found == [("a", (0, 1.5)), ("a-2", (2.5, 4.0))]


def test_pieces_of_an_mp3_are_read_in_silence(tmp_path, capfd):
    soundfile.write(tmp_path / "a.mp3", 0.1 * np.random.default_rng(0).standard_normal(40 * 22050), 22050)
    for start in range(1, 39, 3):
        cutting._quietest(tmp_path / "a.mp3", start, start + 0.4)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_an_ear_finds_the_lines_of_a_long_recording(tmp_path):
    from melforge.common.runner import TextToSpeech

    tts, rng = TextToSpeech.load(threads=1), np.random.default_rng(1)
    spoken = tts.speak_many(TEXTS)
    rate, parts, edges = spoken[0].sampling_rate, [np.zeros(8000)], []
    for audio in spoken:
        before = sum(map(len, parts)) / rate
        found = measure(audio.samples, rate)
        edges.append((before + found.start, before + found.end))
        parts += [audio.samples, np.zeros(int(rng.uniform(0.2, 0.9) * rate))]
    whole = np.concatenate(parts) + 1e-4 * rng.standard_normal(sum(map(len, parts)))
    soundfile.write(tmp_path / "chapter.flac", whole, rate)
    heading = "A heading that nobody reads to the listeners, as it is printed only."
    cues = [f"{'ANN: ' * (n % 3 == 0)}{'BOB: ' * (n % 3 == 2)}{text}" for n, text in enumerate(TEXTS)]
    timed = (f"{n}\n0:00 --> 0:01\n{cue}\n" for n, cue in enumerate((*cues[:4], heading, *cues[4:])))
    (tmp_path / "chapter.srt").write_text("\n".join(timed))
    lines = cut_long(find_takes(tmp_path), 20.0, tmp_path / "cuts", from_recordings.key_of, "rowan")
    assert " ".join(line.text or "" for line in lines) == " ".join(TEXTS)
    for line in lines:
        assert line.piece is not None and line.text is not None
        own = [edge for sentence, edge in zip(TEXTS, edges, strict=True) if sentence in line.text]
        said = {"BOB" if n % 3 == 2 else "ANN" for n, one in enumerate(TEXTS) if one in line.text}
        assert said == {line.speaker}
        assert line.piece[0] == pytest.approx(own[0][0], abs=0.6)
        assert line.piece[1] == pytest.approx(own[-1][1], abs=0.6)
        assert not [
            (begin, end, line) for begin, end in edges for at in line.piece if begin + 0.05 < at < end - 0.05
        ]
