"""A vocoder's hum: what its generator adds to everything, measured once and taken out by the denoiser."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from melforge.common.arrays import Array, to_device
from melforge.common.audio.denoiser import bias_spectrum
from melforge.common.engines import Engine
from melforge.common.synthesis.stage_engines import StageEngines


class Hum:
    """The stage "denoiser", or "masked_denoiser" in its place, with the bias that it takes.

    `speak_silence`, a method of the vocoder, gives the generator's audio of a silent mel, float32 (S,).
    """

    def __init__(self, engines: StageEngines, hop: int, speak_silence: Callable[[], np.ndarray]):
        self._engines, self._hop = engines, hop
        # Weak: else a vocoder's memory would go only when Python looks for cycles, which it seldom does.
        self._speak_silence = weakref.WeakMethod(speak_silence)
        self._masked = "masked_denoiser" in engines
        self._bias: Array | None = None
        self._measuring = threading.Lock()

    @property
    def bias(self) -> Array:
        """The hum's spectrum, float32 (bins,) on the denoiser's device; measured on first use."""
        with self._measuring:
            if self._bias is None:
                speak_silence = self._speak_silence()
                assert speak_silence is not None  # the vocoder asks
                self._bias = to_device(bias_spectrum(speak_silence(), self._hop), self._denoiser.device)
            return self._bias

    def removed(self, audio: Array, strengths: Sequence[float], lengths: Array) -> Array:
        """audio [B, S], whole frames, without the hum, on the engine's device.

        `lengths` [B] are the items' frames, `strengths` those of the first items: of the others nothing is
        taken out.
        """
        share = np.zeros(len(audio), np.float32)
        share[: len(strengths)] = strengths
        ends = {"lengths": lengths} if self._masked else {}
        denoiser = self._denoiser
        given = {"strength": to_device(share, denoiser.device), "bias": self.bias, **ends}
        return denoiser(audio=audio, **given)["denoised"]

    @property
    def _denoiser(self) -> Engine:
        return self._engines["masked_denoiser" if self._masked else "denoiser"]
