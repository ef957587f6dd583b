"""Draws what was spoken: mel, attention, pitch and durations over time."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from melforge.common.speech import Audio

PANEL_HEIGHT = 3.0  # inches


def draw(audio: Audio) -> bytes:
    """A PNG of panels one above the other, with one axis of time.

    The mel; the attention where the model has one, from the first symbol up; each symbol's pitch and extent,
    where it has pitches.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    width = float(np.clip(audio.seconds * 2.5, 6, 60))
    panels: list[Callable[[Any], None]] = [partial(_mel, audio)]
    if audio.alignments:
        panels.append(partial(_attention, audio, audio.alignments))
    if audio.pitches:
        panels.append(partial(_pitch, audio, audio.pitches))
    size = (width, PANEL_HEIGHT * len(panels))
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=size, sharex=True, layout="constrained", squeeze=False
    )
    for panel, axis in zip(panels, axes[:, 0], strict=True):
        panel(axis)
    axes[0, 0].set_xlim(0, max(audio.seconds, audio.frame_seconds))
    axes[-1, 0].set_xlabel("seconds")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    pyplot.close(figure)
    return buffer.getvalue()


def _mel(audio: Audio, axis: Any) -> None:
    for start, mel in zip(audio.starts, audio.mels, strict=True):
        _image(axis, mel, start, mel.shape[1] * audio.frame_seconds, vmin=-11.5, vmax=1.0)
    axis.set(ylabel="mel band", ylim=(0, audio.mels[0].shape[0]))


def _attention(audio: Audio, alignments: Sequence[np.ndarray], axis: Any) -> None:
    for number, alignment in enumerate(alignments):
        seconds = audio.mels[number].shape[1] * audio.frame_seconds
        _image(axis, alignment.T, audio.starts[number], seconds, vmin=0.0, vmax=1.0)
        for i, (left, right, symbol) in enumerate(_extents(audio, number)):
            if right > left:  # a symbol without a label has no frames
                middle = (left + right) / 2
                axis.text(middle, i + 0.5, symbol, fontsize=6, ha="center", va="center", color="tab:red")
    axis.set(ylabel="symbol", ylim=(0, max(alignment.shape[1] for alignment in alignments)))


def _pitch(audio: Audio, pitches: Sequence[np.ndarray], axis: Any) -> None:
    low, high = limits(pitches)
    for number, (pitch, durations) in enumerate(zip(pitches, audio.durations, strict=True)):
        edges = _edges(audio.starts[number], durations, audio.frame_seconds)
        axis.stairs(pitch, edges, baseline=None, color="tab:blue")
        axis.vlines(edges, low, high, color="0.85", linewidth=0.5)
        for left, right, symbol in _extents(audio, number):
            if right > left:
                axis.text((left + right) / 2, low, symbol, fontsize=6, ha="center")
    axis.set(ylim=(low, high), ylabel="pitch in Hz")


def _image(axis: Any, values: np.ndarray, start: float, seconds: float, vmin: float, vmax: float) -> None:
    if values.size:
        extent = (start, start + seconds, 0, values.shape[0])
        axis.imshow(values, origin="lower", aspect="auto", extent=extent, vmin=vmin, vmax=vmax)


def _edges(start: float, durations: np.ndarray, frame_seconds: float) -> np.ndarray:
    return start + np.concatenate([[0], np.cumsum(durations)]) * frame_seconds


def _extents(audio: Audio, number: int) -> list[tuple[float, float, str]]:
    """Each symbol of an utterance as it is shown, with the seconds from and to which it is heard."""
    edges = _edges(audio.starts[number], audio.durations[number], audio.frame_seconds)
    symbols = (symbol.strip().removeprefix("@") for symbol in audio.utterances[number].symbols)
    return list(zip(edges, edges[1:], symbols, strict=False))


def limits(pitches: Sequence[np.ndarray]) -> tuple[float, float]:
    pitch = np.concatenate(pitches)
    margin = 0.15 * max(float(np.ptp(pitch)), 20.0)
    return float(pitch.min()) - margin, float(pitch.max()) + margin
