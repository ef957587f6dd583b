"""The pitch of recordings at a prepared corpus's rate, by WORLD's DIO with StoneMask."""

import importlib.util
import os
from pathlib import Path

import numpy as np

from melforge.common.audio.sound_files import read_audio
from melforge.common.training.corpus.dataset import HOP, RATE, load_labels
from melforge.common.training.corpus.processes import in_processes

FLOOR, CEILING = 65.0, 500.0  # Hz


def can_measure_pitch() -> bool:
    """Whether WORLD is installed, with the extra "train"."""
    return importlib.util.find_spec("pyworld") is not None


def pitch_contour(audio: np.ndarray) -> np.ndarray:
    """Hz in every frame of audio at `RATE`, float64 `[frames]`, 0 where it is unvoiced."""
    import pyworld

    audio = audio.astype(np.float64)
    contour, times = pyworld.dio(audio, RATE, f0_floor=FLOOR, f0_ceil=CEILING, frame_period=HOP / RATE * 1000)
    return pyworld.stonemask(audio, contour, times, RATE)


def pitch_per_symbol(audio: np.ndarray, durations: np.ndarray) -> np.ndarray:
    """Mean pitch in Hz of each symbol's voiced frames, 0 where none is voiced, float32 `[symbols]`."""
    contour = pitch_contour(audio)[: durations.sum()]
    owner = np.repeat(np.arange(len(durations)), durations)[: len(contour)]
    voiced = contour > 0
    totals = np.bincount(owner[voiced], contour[voiced], minlength=len(durations))
    counts = np.bincount(owner[voiced], minlength=len(durations))
    return (totals / np.maximum(counts, 1)).astype(np.float32)


def corpus_pitch(folder: Path) -> np.ndarray:
    """Hz in every frame of a corpus in its order, float32 `[frames]`, 0 where it is unvoiced."""
    labels = load_labels(folder)
    jobs = [
        (folder / "wavs" / f"{name}.wav", int(frames))
        for name, frames in zip(labels.names, labels.frames, strict=True)
    ]
    return np.concatenate([*in_processes(_line_pitch, jobs, (os.cpu_count() or 1) - 1, "pitch", _nothing)])


def _line_pitch(job: tuple[Path, int]) -> np.ndarray:
    path, frames = job
    contour = pitch_contour(read_audio(path)[0])[:frames]
    return np.pad(contour, (0, frames - len(contour))).astype(np.float32)


def _nothing() -> None:
    """A process needs nothing beforehand."""
