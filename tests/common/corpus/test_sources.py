"""The teacher's sources: what is kept beside the audio makes its harmonic part, and segments hold it."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.errors import InputError
from melforge.common.training.corpus import batches, prepare
from melforge.common.training.corpus.dataset import HOP, RATE, load_labels
from melforge.common.training.corpus.sources import (
    SOURCES,
    UNVOICED,
    SourcedSegments,
    load_source,
    teacher_source,
)
from melforge.hifigan.source_filter import pulses
from tests.sourced_corpus import FRAMES, write_sourced_corpus

TEXTS = "a|She sells old books in a small shop.\nb|Is it late?\nc|The weather was fine all day long.\n"
CPU = torch.device("cpu")


def speak(folder: Path, *words: str) -> None:
    prepare.main(["--corpus", str(folder), "--workers", "1", *words])


def band(audio: np.ndarray, low: float, high: float) -> np.ndarray:
    """What of audio [S] lies between two frequencies in Hz."""
    spectrum, frequency = np.fft.rfft(audio), np.fft.rfftfreq(len(audio), 1 / RATE)
    return np.fft.irfft(np.where((frequency > low) & (frequency < high), spectrum, 0), len(audio))


# The teacher's speech


@pytest.fixture(scope="module")
def spoken(tmp_path_factory) -> Path:
    """A corpus that the teacher read, with its sources."""
    folder = tmp_path_factory.mktemp("spoken")
    (folder / "texts.txt").write_text(TEXTS)
    speak(folder / "corpus", "--transcripts", str(folder / "texts.txt"), "--sources")
    return folder / "corpus"


@pytest.mark.teacher
def test_every_utterance_has_its_source(spoken):
    labels = load_labels(spoken)
    assert sorted(path.name for path in (spoken / SOURCES).iterdir()) == ["a.npz", "b.npz", "c.npz"]
    for name, frames in zip(labels.names, labels.frames, strict=True):
        audio, _ = soundfile.read(spoken / "wavs" / f"{name}.wav", dtype="int16")
        source = load_source(spoken, name, frames)
        assert len(source.harmonic) == len(audio)
        assert len(source.phase) == len(source.pitch) == len(source.voiced) == len(audio) // HOP
        assert source.phase.min() >= 0 and source.phase.max() <= 1
        assert 0.4 < source.voiced.mean() < 0.95
        assert (source.pitch[~source.voiced] == UNVOICED).all()
        assert 100 < np.median(source.pitch[source.voiced]) < 300


@pytest.mark.teacher
def test_the_harmonic_part_is_most_of_what_is_voiced_and_nothing_else(spoken):
    labels = load_labels(spoken)
    for name, frames in zip(labels.names, labels.frames, strict=True):
        audio, _ = soundfile.read(spoken / "wavs" / f"{name}.wav")
        source = load_source(spoken, name, frames)
        whole, tone = (x[: frames * HOP].reshape(frames, HOP) for x in (audio, source.harmonic / 32768))
        assert np.corrcoef(whole[source.voiced].ravel(), tone[source.voiced].ravel())[0, 1] > 0.85
        # A window's length from anything voiced there are no pulses.
        far = np.convolve(source.voiced, np.ones(9), "same") == 0
        assert far.any() and np.abs(tone[far]).max() < 1e-3 * np.abs(tone).max()


@pytest.mark.teacher
def test_the_phase_goes_on_by_the_pitch(spoken):
    for name, frames in zip(load_labels(spoken).names, load_labels(spoken).frames, strict=True):
        source = load_source(spoken, name, frames)
        off = np.diff(source.phase) - HOP / RATE * (source.pitch[1:] + source.pitch[:-1]) / 2
        off -= np.round(off)
        inside = source.voiced[1:] & source.voiced[:-1]
        # The pitch goes on between the teacher's frames, which are of another length.
        assert np.median(np.abs(off[inside])) < 0.005 and np.quantile(np.abs(off[inside]), 0.9) < 0.03


@pytest.mark.teacher
@pytest.mark.parametrize("first", [0, 1501])
def test_the_sources_pulses_are_what_the_teacher_filters(first):
    """A filter that changes nothing gives the teacher's pulses: ours are in step with them."""
    from hibari import dsp

    from melforge.common.training.corpus.teacher import Teacher

    teacher, gain, frames = Teacher(), 0.01, 100
    *spectra, pitch = teacher._plain("ʃi sˈɛlz ˈOld bˈʊks ɪn ə smˈɔl ʃˈɑp.")
    whole = np.full_like(spectra[0], np.log(dsp.N_FFT / 4))
    source = teacher_source(
        (whole, 0 * whole, pitch), first, frames * HOP + 9, RATE, gain, teacher.voice.sample_rate
    )
    assert len(source.harmonic) == frames * HOP + 9 and len(source.phase) == frames
    given = torch.from_numpy(np.stack((source.phase, source.pitch / RATE)))[None]
    made = gain * pulses(given, HOP)[0].numpy()
    inside = np.repeat(np.convolve(source.voiced, np.ones(7), "same") == 7, HOP)
    for high in (400, 1000, 4000):
        ours, theirs = (band(x, 60, high) for x in (made, source.harmonic[: frames * HOP] / 32768))
        near = [np.corrcoef(np.roll(ours, lag)[inside], theirs[inside])[0, 1] for lag in range(-9, 10)]
        assert np.argmax(near) == 9 and near[9] > 0.98
    assert ours[inside] @ theirs[inside] / np.square(ours[inside]).sum() == pytest.approx(1, abs=0.02)


@pytest.mark.teacher
def test_sources_change_nothing_of_a_corpus_and_may_be_kept_later(spoken, tmp_path):
    texts, other = spoken.parent / "texts.txt", tmp_path / "corpus"
    speak(other, "--transcripts", str(texts), "--limit", "2")
    assert not (other / SOURCES).exists()
    wavs = sorted(path.name for path in (other / "wavs").iterdir())
    wanted = [(spoken / "wavs" / name).read_bytes() for name in wavs]
    assert len(wavs) == 2 and [(other / "wavs" / name).read_bytes() for name in wavs] == wanted
    speak(other, "--respeak", "--sources")
    assert [(other / "wavs" / name).read_bytes() for name in wavs] == wanted
    for name, frames in zip(load_labels(other).names, load_labels(other).frames, strict=True):
        ours, theirs = (vars(load_source(corpus, name, frames)) for corpus in (other, spoken))
        assert all(np.array_equal(ours[part], theirs[part]) for part in theirs)


def test_sources_of_recordings_are_refused(tmp_path):
    with pytest.raises(InputError, match="--sources are the teacher's: give --transcripts or --respeak too"):
        speak(tmp_path / "corpus", "--sources")
    assert not (tmp_path / "corpus").exists()


# Segments


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_sourced_corpus(tmp_path_factory.mktemp("sources") / "corpus")


@pytest.fixture
def few_validate(monkeypatch) -> None:
    monkeypatch.setattr(batches, "VALIDATION_FRAMES", 30)


def load(corpus: Path, edges: int = 0) -> SourcedSegments:
    return SourcedSegments(corpus, MelContract(), [], CPU, edges)


def test_what_stands_beside_a_segment_is_what_the_files_hold(corpus):
    segments, labels = load(corpus), load_labels(corpus)
    firsts = np.cumsum(labels.frames) - labels.frames
    for number in (0, 3, 7):
        source = load_source(corpus, labels.names[number], FRAMES[number])
        beside = segments.beside(torch.tensor([firsts[number], firsts[number] + 4]), 12)
        _, audio = segments.cut(torch.tensor([firsts[number] + 4]), 12, torch.tensor([0]))
        for row, first in enumerate((0, 4)):
            at, samples = slice(first, first + 12), slice(first * HOP, (first + 12) * HOP)
            given = {name: value[row].numpy() for name, value in beside.items()}
            np.testing.assert_array_equal(given["source"][0], source.phase[at])
            np.testing.assert_allclose(given["source"][1], source.pitch[at] / RATE, rtol=1e-6)
            np.testing.assert_array_equal(given["voiced"], source.voiced[at])
            np.testing.assert_array_equal(given["harmonic"][0] * 32768, source.harmonic[samples])
        noise = (audio - beside["harmonic"][1:]).std()
        assert noise == pytest.approx(0.01, rel=0.05)  # all that is left: audio and harmonic part are in step


def test_a_segments_pulses_are_those_of_the_whole_utterance(corpus):
    segments = load(corpus)
    (whole,), (part,) = (
        pulses(segments.beside(torch.tensor([first]), frames)["source"], HOP)
        for first, frames in ((0, FRAMES[0]), (6, 20))
    )
    # Before the first centre and behind the last one the pitch goes on evenly.
    between = slice(HOP // 2, 20 * HOP - HOP // 2)
    assert (part[between] - whole[6 * HOP : 26 * HOP][between]).abs().max() < 1e-3 * whole.abs().max()


def test_segments_at_the_edges_begin_and_end_with_utterances(corpus, few_validate):
    frames, edges, segments = 25, 2, load(corpus, edges=2)
    ends = np.cumsum(FRAMES)
    firsts = ends - FRAMES
    limit = sum(FRAMES) - segments.validation_frames - frames
    random = torch.Generator().manual_seed(0)
    drawn = np.array([segments.draw_starts(8, frames, limit, random).tolist() for _ in range(200)])
    fit = (np.array(FRAMES) >= frames) & (ends <= limit + frames)
    assert set(drawn[:, :edges].ravel()) == set(firsts[fit])
    assert set(drawn[:, edges : 2 * edges].ravel() + frames) == set(ends[fit])
    assert len(set(drawn[:, 2 * edges :].ravel())) > 100  # anywhere
    assert drawn.min() >= 0 and drawn.max() <= limit
    _, batch = next(segments.batches(8, frames, 0.0, seed=1))
    shapes = {"mel": (8, 80, frames), "audio": (8, 1, frames * HOP), "source": (8, 2, frames)}
    shapes |= {"voiced": (8, frames), "harmonic": (8, 1, frames * HOP)}
    assert {name: tuple(value.shape) for name, value in batch.items()} == shapes


def test_segments_that_are_longer_than_all_utterances_have_no_edges(corpus, few_validate):
    with pytest.raises(InputError, match=r"no utterance .* has the 50 frames of a segment: give fewer segm"):
        next(load(corpus, edges=1).batches(4, 50, 0.0, seed=0))
    assert next(load(corpus).batches(4, 50, 0.0, seed=0))


def test_a_source_that_is_missing_or_of_another_reading_is_named(tmp_path):
    corpus = write_sourced_corpus(tmp_path / "corpus")
    shorter, longer = (load_source(corpus, name, FRAMES[int(name[1])]) for name in ("u1", "u2"))
    for other in (shorter, longer):
        other.save(corpus, "u4")
        with pytest.raises(
            InputError, match=r"u4\.npz has \d+ frames, the corpus's labels 28: prepare .* again"
        ):
            load(corpus)
    (corpus / SOURCES / "u4.npz").unlink()
    with pytest.raises(InputError, match=r"sources/u4\.npz is missing: prepare the corpus with --sources"):
        load(corpus)
