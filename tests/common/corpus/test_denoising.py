"""Steady noise goes out of recordings; speech, soft sounds and clean recordings stay as they are."""

import numpy as np
import pytest

from melforge.common.training.corpus import denoising
from melforge.common.training.corpus.denoising import denoised, noise_to_remove, quiet_moments, room_noise
from melforge.common.training.corpus.quality import measure

RATE = denoising.RATE


def speech(seconds: float = 2.0, edge: float = 0.3, seed: int = 0) -> np.ndarray:
    """Syllables of a buzz, a pause, a soft hiss as of breath or an f, more syllables: float64 [T]."""
    time = np.arange(int(seconds / 2 * RATE)) / RATE
    buzz = sum(np.sin(2 * np.pi * 120 * k * time + seed) / k for k in range(1, 12))
    syllables = np.maximum(0.0, np.sin(2 * np.pi * 3 * time)) * 0.1 * buzz
    pause, hiss = np.zeros(RATE // 10), 0.004 * np.random.default_rng(seed).standard_normal(RATE // 8)
    edges = np.zeros(int(edge * RATE))
    return np.concatenate([edges, syllables, pause, hiss, pause, syllables, edges])


def noise_of(kind: str, samples: int, seed: int = 1) -> np.ndarray:
    """Of the level 1."""
    random, time = np.random.default_rng(seed), np.arange(samples) / RATE
    if kind == "white":
        return random.standard_normal(samples)
    if kind == "fan":
        frequencies = np.fft.rfftfreq(samples, 1 / RATE)
        brown = np.fft.rfft(random.standard_normal(samples)) / np.maximum(frequencies, 1) * (frequencies > 80)
        brown = np.fft.irfft(brown, samples)
        return brown / brown.std() * 10 ** (np.sin(np.pi * time) / 20)
    hum = sum(np.sin(2 * np.pi * 50 * k * time + k) / k for k in range(2, 12))
    return (hum + 0.1 * random.standard_normal(samples)) / np.std(hum)


def level(audio: np.ndarray) -> float:
    return 10 * np.log10(np.mean(np.square(audio)) + 1e-12)


def cleaned(audio: np.ndarray, others: list[np.ndarray] | None = None) -> np.ndarray | None:
    """As a corpus is made; with `others` of the same room."""
    own = quiet_moments(audio.astype(np.float32))
    found = [own, *(quiet_moments(other.astype(np.float32)) for other in others or ())]
    room = room_noise([one for one in found if one])
    noise = noise_to_remove(own, room, measure(audio.astype(np.float32), RATE).level)
    return None if noise is None else denoised(audio.astype(np.float32), noise)


@pytest.mark.parametrize("kind", ["white", "hum", "fan"])
def test_steady_noise_goes_and_speech_stays(kind):
    clean = speech()
    noisy = clean + 0.001 * noise_of(kind, len(clean))
    made = cleaned(noisy)
    assert made is not None
    edge, middle = slice(2000, 5000), slice(int(0.3 * RATE) + RATE, int(0.3 * RATE) + int(1.325 * RATE))
    assert level(noisy[edge]) > -66 and level(made[edge]) < level(noisy[edge]) - 15
    assert level(made - clean) < level(noisy - clean) - 3
    hiss = slice(middle.start + RATE // 10, middle.stop - RATE // 10)
    assert level(made[hiss]) == pytest.approx(level(clean[hiss]), abs=2)


def test_what_has_no_noise_worth_removing_stays():
    clean = speech()
    assert cleaned(clean) is None and cleaned(clean + 5e-5 * noise_of("white", len(clean))) is None


def test_a_recording_without_pauses_takes_its_rooms_noise_and_a_clean_one_of_the_room_stays():
    def noisy(edge: float, seed: int) -> np.ndarray:
        clean = speech(edge=edge, seed=seed)
        return clean + 0.001 * noise_of("white", len(clean), seed)

    others = [noisy(0.3, seed) for seed in range(2, 6)]
    time = np.arange(2 * RATE) / RATE
    buzz = 0.02 * sum(np.sin(2 * np.pi * 120 * k * time + k) / k for k in range(1, 40))
    made = cleaned(buzz + 0.001 * noise_of("white", len(buzz)), others)
    assert made is not None
    assert level(made - buzz) < -60
    assert level(made) == pytest.approx(level(buzz), abs=0.2)
    clean = speech(seed=9)
    assert cleaned(clean + 5e-5 * noise_of("white", len(clean)), others) is None


def test_silence_that_a_program_left_is_no_noise():
    clean = speech(edge=0)
    noisy = np.pad(clean + 0.001 * noise_of("white", len(clean)), RATE // 2)
    quiet = quiet_moments(noisy.astype(np.float32))
    assert quiet is not None
    expected = 0.001**2 * denoising.SIZE / 2
    assert np.median(quiet.power) == pytest.approx(expected, rel=0.4)
    assert quiet_moments(np.zeros(RATE, np.float32)) is None


def test_long_recordings_are_filtered_in_parts_without_a_seam(monkeypatch):
    audio = np.concatenate([speech(seed=seed) for seed in range(3)])
    noisy = (audio + 0.001 * noise_of("white", len(audio))).astype(np.float32)
    quiet = quiet_moments(noisy)
    assert quiet is not None
    whole = denoised(noisy, quiet.power)
    monkeypatch.setattr(denoising, "AT_ONCE", 2 * RATE)
    assert np.abs(denoised(noisy, quiet.power) - whole).max() < 1e-3
    assert len(whole) == len(noisy)
