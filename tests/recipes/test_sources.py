"""The teacher's sources: what is kept beside the audio makes its harmonic part."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.training.corpus.dataset import HOP, RATE, load_labels
from melforge.common.training.corpus.sources import SOURCES, UNVOICED, load_source
from melforge.hifigan.source_filter import pulses
from recipes.hazel import prepare
from recipes.hazel.teacher import Teacher, teacher_source

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
def test_sources_change_nothing_of_a_corpus(spoken, tmp_path):
    texts, other = spoken.parent / "texts.txt", tmp_path / "corpus"
    speak(other, "--transcripts", str(texts), "--limit", "2")
    assert not (other / SOURCES).exists()
    wavs = sorted(path.name for path in (other / "wavs").iterdir())
    wanted = [(spoken / "wavs" / name).read_bytes() for name in wavs]
    assert len(wavs) == 2 and [(other / "wavs" / name).read_bytes() for name in wavs] == wanted
