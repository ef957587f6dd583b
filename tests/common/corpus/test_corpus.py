"""Labels add up, failures are named, and what is written is what is read."""

from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.errors import InputError
from melforge.common.training.corpus import batches
from melforge.common.training.corpus.alignment import Aligner, line_symbols, speech_bounds, spread
from melforge.common.training.corpus.batches import VALIDATION_UTTERANCES, validation_count
from melforge.common.training.corpus.dataset import (
    LABELS,
    CorpusAudio,
    Labels,
    load_labels,
    read_samples,
    save_labels,
)
from melforge.common.training.corpus.processes import in_processes

RATE, HOP = 22_050, 256
SYMBOLS = [" ", "@S", "@IY1", ",", " ", "@M", "@IY1", "."]


def test_gaps_go_to_the_punctuation_and_everything_adds_up():
    times = np.array([[1.0, 2.0], [2.0, 4.0], [7.0, 9.0], [9.0, 12.0]])
    assert spread(times, SYMBOLS, 15, 1.0).tolist() == [1, 1, 2, 3, 0, 2, 3, 3]


def test_a_phone_that_was_given_no_time_still_gets_a_frame():
    times = np.array([[0.0, 3.0], [3.0, 3.0], [3.0, 3.0], [3.0, 4.0]])
    durations = spread(times, SYMBOLS, 4, 1.0)
    assert durations.sum() == 4
    assert all(durations[i] >= 1 for i in (1, 2, 5, 6))


def test_more_phones_than_frames_are_refused():
    with pytest.raises(ValueError, match="do not fit into 3 frames"):
        spread(np.zeros((4, 2)), SYMBOLS, 3, 1.0)


def test_speech_is_found_between_silences():
    audio = np.concatenate([np.zeros(RATE), 0.1 * np.sin(np.arange(RATE) * 0.1), np.zeros(RATE)])
    begin, end = speech_bounds(audio, RATE)
    assert begin == pytest.approx(1.0, abs=0.02)
    assert end == pytest.approx(2.0, abs=0.02)


def test_labels_and_audio_come_back_as_they_were_written(tmp_path):
    (tmp_path / "wavs").mkdir()
    labels = Labels(
        names=["a", "b"],
        texts=["See me.", "Me."],
        ids=[np.array([11, 5, 7]), np.array([11, 9])],
        durations=[np.array([2, 3, 4]), np.array([1, 6])],
        pitch=[np.array([0, 200.5, 180], np.float32), np.array([0, 220], np.float32)],
    )
    rng = np.random.default_rng(0)
    wavs = [rng.integers(-9, 9, frames * HOP + 100).astype(np.int16) for frames in labels.frames]
    for name, wav in zip(labels.names, wavs, strict=True):
        soundfile.write(tmp_path / "wavs" / f"{name}.wav", wav, RATE)
    save_labels(tmp_path, labels)
    back = load_labels(tmp_path)
    assert back.names == labels.names and back.texts == labels.texts
    for column in ("ids", "durations", "pitch"):
        for got, wanted in zip(getattr(back, column), getattr(labels, column), strict=True):
            np.testing.assert_array_equal(got, wanted)
    sound = CorpusAudio(tmp_path, back, HOP)
    audio = sound.read_all()
    assert sound.offsets.tolist() == [0, 9 * HOP, 16 * HOP]
    np.testing.assert_array_equal(audio[9 * HOP :], wavs[1][: 7 * HOP])
    for start, end in ((5, 40), (8 * HOP, 12 * HOP), (9 * HOP, 10 * HOP), (0, 16 * HOP)):
        np.testing.assert_array_equal(sound.read(start, end), audio[start:end])
    mirrored = np.pad(audio, 4 * HOP, mode="reflect")
    np.testing.assert_array_equal(sound.read(-4 * HOP, 20 * HOP), mirrored)


@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "FLAC"])
def test_samples_are_read_from_any_kind_of_sound_file(tmp_path, kind):
    samples = np.arange(-500, 500, dtype=np.int16)
    soundfile.write(tmp_path / "a.wav", samples, RATE, subtype="PCM_16", format=kind)
    for first, count in ((0, 1000), (30, 50), (990, 50)):
        wanted = samples[first : first + count]
        np.testing.assert_array_equal(read_samples(tmp_path / "a.wav", first, count), wanted)


def test_speakers_come_back_with_their_lines(tmp_path):
    ones = [np.array([1]), np.array([2]), np.array([3])]
    columns = (["a", "b", "c"], ["A.", "B.", "C."], ones, ones, ones)
    save_labels(tmp_path, Labels(*columns))
    assert (load_labels(tmp_path).speakers, load_labels(tmp_path).speaker.tolist()) == ([], [0, 0, 0])
    with np.load(tmp_path / LABELS) as stored:
        assert not {"speakers", "speaker"} & set(stored)
    save_labels(tmp_path, Labels(*columns, speakers=["Ann", "Zoë"], speaker=np.array([1, 0, 1])))
    back = load_labels(tmp_path)
    assert back.speakers == ["Ann", "Zoë"] and back.speaker.tolist() == [1, 0, 1]
    with np.load(tmp_path / LABELS) as stored:
        assert stored["speaker"].dtype == np.int16


@pytest.mark.parametrize(("utterances", "held_out"), [(2, 1), (100, 5), (13_100, 64)])
def test_a_small_corpus_keeps_a_small_share_for_validation(utterances, held_out):
    assert validation_count(VALIDATION_UTTERANCES, utterances) == held_out


def test_audio_shorter_than_its_labels_is_refused(tmp_path):
    (tmp_path / "wavs").mkdir()
    soundfile.write(tmp_path / "wavs" / "a.wav", np.zeros(HOP, np.int16), RATE)
    labels = Labels(["a"], ["x"], [np.array([1])], [np.array([2])], [np.array([0.0])])
    with pytest.raises(ValueError, match=r"a\.wav is shorter than its labels"):
        CorpusAudio(tmp_path, labels, HOP).read_all()


def test_a_corpus_that_is_not_prepared_says_what_to_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="melforge voice prepare makes it"):
        load_labels(tmp_path)


def test_a_text_that_cannot_be_in_a_recording_is_refused_before_it_is_aligned():
    aligner = Aligner.__new__(Aligner)  # without pocketsphinx, which would take minutes
    with pytest.raises(InputError, match=r"40000 phones do not fit into 2\.0 s"):
        aligner.phone_times(np.zeros(44100, np.float32), 22050, [["@HH", "@AH0", "@L", "@OW1"]] * 10_000)


def test_a_line_of_several_sentences_is_one_sequence():
    utterances = [
        SimpleNamespace(symbols=(" ", "@AA1", "."), ids=np.array([11, 2, 3])),
        SimpleNamespace(symbols=(" ", "@B", "."), ids=np.array([11, 4, 3])),
    ]
    symbols, ids = line_symbols(utterances)
    assert len(symbols) == len(ids) == 6
    with pytest.raises(ValueError, match="nothing to speak"):
        line_symbols(())


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_process_cannot_begin_with_is_said_as_it_is(workers, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no_list\.txt"):
        list(in_processes(len, ["a", "bb"], workers, "counting", np.load, tmp_path / "no_list.txt"))


def test_a_corpus_is_heard_in_blocks_as_in_one(monkeypatch):
    audio = torch.randint(-9999, 9999, (20 * HOP,), dtype=torch.int16)
    whole = batches.corpus_mel(audio, MelContract())
    monkeypatch.setattr(batches, "BLOCK", 7)
    torch.testing.assert_close(batches.corpus_mel(audio, MelContract()), whole)
