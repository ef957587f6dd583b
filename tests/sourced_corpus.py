"""A corpus with sources as the teacher's, in little: pulses of few harmonics, and noise."""

from pathlib import Path

import numpy as np
import soundfile

from melforge.common.training.corpus.dataset import HOP, RATE, Labels, save_labels
from melforge.common.training.corpus.sources import UNVOICED, HarmonicSource

HARMONICS = 12
FRAMES = (40, 23, 31, 45, 28, 36, 20, 41)  # of its utterances


def write_sourced_corpus(folder: Path) -> Path:
    """Eight utterances of 20 to 45 frames; 110 to 230 Hz, and the last quarter is unvoiced."""
    (folder / "wavs").mkdir(parents=True)
    rng = np.random.default_rng(3)
    labels = Labels([], [], [], [], [])
    for i, frames in enumerate(FRAMES):
        audio, source = utterance(frames, rng)
        labels.names.append(f"u{i}")
        labels.texts.append("text")
        labels.ids.append(rng.integers(1, 148, 2))
        labels.durations.append(np.array([8, frames - 8]))
        labels.pitch.append(np.array([120, 0], np.float32))
        soundfile.write(folder / "wavs" / f"u{i}.wav", audio, RATE, subtype="PCM_16")
        source.save(folder, f"u{i}")
    save_labels(folder, labels)
    return folder


def utterance(frames: int, rng: np.random.Generator) -> tuple[np.ndarray, HarmonicSource]:
    """Audio [S] of some samples more than its frames, as the teacher's, and its source."""
    samples = frames * HOP + 100
    voiced = np.arange(samples) < 0.75 * samples
    pitch = np.where(voiced, np.linspace(110, 230, samples), UNVOICED)
    phase = rng.uniform() + pitch.cumsum() / RATE
    tones = sum(np.cos(2 * np.pi * number * phase) / number for number in range(1, HARMONICS + 1))
    harmonic = 0.1 * voiced * tones
    centres = HOP // 2 + HOP * np.arange(frames)
    source = HarmonicSource(
        harmonic=np.round(harmonic * 32767).astype(np.int16),
        phase=(phase[centres] % 1).astype(np.float32),
        pitch=pitch[centres].astype(np.float32),
        voiced=voiced[centres],
    )
    return harmonic + 0.01 * rng.standard_normal(samples), source
