"""Draws what was spoken: mel, pitch and durations over time."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from common.speech import Audio


def draw(audio: Audio) -> bytes:
    """A PNG with the mel above, and each symbol's pitch and extent below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    width = float(np.clip(audio.seconds * 2.5, 6, 60))
    low, high = limits(audio.pitches)
    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(width, 6), sharex=True, layout="constrained")
    for start, mel, durations, pitch, utterance in zip(
        audio.starts, audio.mels, audio.durations, audio.pitches, audio.utterances, strict=True
    ):
        top.imshow(
            mel,
            origin="lower",
            aspect="auto",
            extent=(start, start + mel.shape[1] * audio.frame_seconds, 0, mel.shape[0]),
            vmin=-11.5,
            vmax=1.0,
        )
        edges = start + np.concatenate([[0], np.cumsum(durations)]) * audio.frame_seconds
        bottom.stairs(pitch, edges, baseline=None, color="tab:blue")
        bottom.vlines(edges, low, high, color="0.85", linewidth=0.5)
        for left, right, symbol in zip(edges, edges[1:], utterance.symbols, strict=False):
            if right > left and symbol.strip():
                bottom.text((left + right) / 2, low, symbol.removeprefix("@"), fontsize=6, ha="center")
    top.set(xlim=(0, audio.seconds), ylabel="mel band")
    bottom.set(ylim=(low, high), ylabel="pitch in Hz", xlabel="seconds")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    pyplot.close(figure)
    return buffer.getvalue()


def limits(pitches: Sequence[np.ndarray]) -> tuple[float, float]:
    pitch = np.concatenate(pitches)
    margin = 0.15 * max(float(np.ptp(pitch)), 20.0)
    return float(pitch.min()) - margin, float(pitch.max()) + margin
