"""What is made of Kokoro's speech: other rates, phases of frames, questions that rise, corpora."""

import numpy as np
import pytest
import torch

from melforge.common.training.corpus.dataset import HOP, RATE, load_labels
from recipes.corpus import NamedText
from recipes.kokoro import corpus, texts, voicing
from recipes.kokoro import network as kokoro
from recipes.kokoro.network import Kokoro, phase_of
from recipes.kokoro.resampling import resample
from recipes.kokoro.teacher import KokoroTeacher, Line, even, make_line, raised
from tests.kokoro import SMALL, write_corpus

VOCABULARY = {character: number for number, character in enumerate(" ˈˌhəlOɪztɹu.?", 1)}


@pytest.mark.parametrize(("source", "target"), [(24_000, 22_050), (28_800, 22_050), (20_400, 22_050)])
def test_a_tone_keeps_its_pitch_and_phase_at_another_rate(source, target):
    seconds = torch.arange(source // 2).double() / source
    tone = torch.sin(2 * torch.pi * 1234.0 * seconds)[None].float()
    made = resample(tone, source, target)[0]
    wanted = torch.sin(2 * torch.pi * 1234.0 * torch.arange(len(made)).double() / target)
    middle = slice(500, -500)
    assert (made[middle] - wanted[middle]).abs().max() < 2e-3


def test_what_no_lower_rate_can_hold_is_taken_out():
    high = torch.sin(2 * torch.pi * 11_600.0 * torch.arange(24_000).double() / 24_000)[None].float()
    assert resample(high, 24_000, 22_050)[0, 500:-500].abs().max() < 1e-3


@pytest.mark.parametrize("higher", [1.0, 1.2])
def test_phases_of_frames_are_kokoros_own(higher):
    pitch = np.concatenate(
        [np.full(4, 5.0), np.linspace(90, 160, 40), np.full(6, 8.0), np.linspace(150, 100, 40)]
    )
    first, frames = 700, 60
    phase, contour, voiced = voicing.frame_source(pitch.astype(np.float32), first, frames, RATE, HOP, higher)
    turns = phase_of(torch.from_numpy(pitch)[None].float())[0].numpy()
    centres = (first + HOP // 2 + HOP * np.arange(frames)) * (kokoro.RATE * higher / RATE)
    surely = voiced & (pitch[np.clip(np.rint(centres / kokoro.HALF).astype(int), 1, 88)] > 60)
    surely &= np.roll(surely, 1) & np.roll(surely, -1)
    off = (phase - np.interp(centres, np.arange(len(turns)), turns) + 0.5) % 1 - 0.5
    assert surely.sum() > 20 and np.abs(off[surely]).max() < 0.02
    assert 90 * higher < contour[surely].min() and contour[surely].max() < 165 * higher
    assert contour[~voiced].min() > 80  # a pause has the pitch of what is around it


def test_only_a_tone_is_periodic():
    rng = np.random.default_rng(0)
    tone = np.sin(2 * np.pi * 150 * np.arange(HOP * 40) / RATE)
    contour = np.full(40, 150.0)
    assert voicing.periodicity(tone, contour, RATE, HOP)[4:-4].min() > 0.95
    assert np.abs(voicing.periodicity(rng.normal(size=HOP * 40), contour, RATE, HOP)[4:-4]).max() < 0.4
    np.testing.assert_allclose(voicing.power(tone, 40, HOP)[2:-2], 0.5, rtol=0.1)


def test_pitch_of_symbols_is_of_what_is_heard():
    pitch = np.array([100, 100, 200, 300, 300, 0], np.float32)
    heard = np.array([True, True, False, True, True, False])
    found = voicing.pitch_per_symbol(pitch, heard, np.array([2, 1, 2, 1]))
    np.testing.assert_array_equal(found, [100, 0, 300, 0])


def test_batches_are_filled_to_a_limit():
    assert list(even("abcde", [1, 2, 2, 4, 9], 8)) == [["a", "b", "c"], ["d"], ["e"]]


def test_a_line_knows_where_it_rises():
    symbols = [" ", "@IH1", "@Z", " ", "@IH0", "@T", " ", "@T", "@R", "@UW1", "?"]
    line = make_line(symbols, "ann", VOCABULARY, rises=True)
    assert line.ids[0] == line.ids[-1] == 0 and len(line.ids) == len("ˈɪz ɪt tɹˈu?") + 2
    assert line.rising == (9, 10)
    with pytest.raises(ValueError, match="0 phonemes"):
        make_line([" "], "ann", VOCABULARY)


def test_a_question_that_falls_rises_then_and_one_that_rises_stays():
    durations = torch.tensor([2, 4, 4, 4, 2])
    falling = torch.linspace(150, 100, 32)
    risen = raised(falling, durations, 2, 2)
    torch.testing.assert_close(risen[:15], falling[:15])
    assert risen[26] > 130
    rising = torch.linspace(100, 200, 32)
    assert raised(rising, durations, 2, 2) is rising


@pytest.fixture
def teacher() -> KokoroTeacher:
    torch.manual_seed(0)
    styles = {
        name: np.random.default_rng(1).normal(size=(510, 2 * SMALL.style)).astype(np.float32) for name in "ab"
    }
    return KokoroTeacher(Kokoro(SMALL), styles, torch.device("cpu"))


def test_every_line_is_spoken_once_with_its_own_length(teacher, monkeypatch):
    monkeypatch.setattr("recipes.kokoro.teacher.CHUNK", 3)
    rng = np.random.default_rng(2)
    lines = [Line(np.array([0, *rng.integers(1, 20, n), 0]), "ab"[n % 2]) for n in (3, 9, 5, 4, 7)]
    spoken = {}
    for batch in teacher.speak(lines):
        for row, number in enumerate(batch.lines):
            spoken[number] = int(batch.samples[row])
            assert batch.samples[row] == batch.prosody.durations[row].sum() * kokoro.FRAME
    assert sorted(spoken) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="no voice 'c': there are a, b"):
        list(teacher.speak([Line(np.array([0, 1, 0]), "c")]))


def test_lines_are_drawn_for_each_speaker(tmp_path):
    lines = [NamedText(str(i), f"line {i}") for i in range(30)]
    told = {"ann": {"acoustic": 5, "vocoder": 2}, "ben": {"vocoder": 4, "higher": [1.2]}}
    chosen = texts.drawn(lines, told, seed=3)
    assert chosen == texts.drawn(lines, told, seed=3)
    counts = [(speaker, purpose, higher) for _, speaker, purpose, higher in chosen]
    assert counts.count(("ann", "acoustic", 1.0)) == 5 and counts.count(("ben", "vocoder", 1.2)) == 4
    row = ("ann-000001", "a", "ann", "acoustic", 1.0, np.array([1, 2]), np.array([0, 7, 0]), (-1, -1))
    other = ("ben-000002", "b", "ben", "vocoder", 1.2, np.array([3]), np.array([0, 8, 9, 0]), (1, 2))
    texts.save(tmp_path / "lines.npz", [row, other])
    kept = corpus.read_lines(tmp_path / "lines.npz", "vocoder")
    assert kept["names"] == ["ben-000002"] and kept["phonemes"][0].tolist() == [0, 8, 9, 0]
    assert len(corpus.read_lines(tmp_path / "lines.npz", limit=1)["names"]) == 1


def test_a_corpus_is_labelled_and_written(tmp_path):
    write_corpus(tmp_path, "vocoder", "ab", 4)
    labels = load_labels(tmp_path / "vocoder")
    assert labels.speakers == ["a", "b"] and labels.speaker.tolist() == [0, 1, 0, 1]
    with np.load(tmp_path / "vocoder" / "sources.npz") as sources:
        assert len(sources["phase"]) == len(sources["weight"]) == labels.frames.sum()
        first = sources["contour"][: labels.frames[0]][sources["weight"][: labels.frames[0]] > 0.5]
    assert len(first) > 0.8 * labels.frames[0] * 0.7 and abs(np.median(first) - 110) < 1


def test_a_line_without_speech_is_reported(tmp_path):
    corpus.start_worker(tmp_path, ["_"])
    silent = corpus.Job(
        "x", "vocoder", np.ones(1, int), np.zeros(10, np.int16), np.zeros(4, np.float32), 1.0, 1.0
    )
    assert "too short" in corpus.label(silent)
