"""A voice's own FastPitch and vocoder read a corpus's texts, for its other models to learn from.

Durations are what FastPitch gave the symbols, so that nothing needs to be aligned, and all that is heard
follows from the text: a model without a pitch input learns such speech best (FastSpeech paper, section 3.3).
"""

from pathlib import Path

import numpy as np

from common.audio.contract import require_same_contract
from common.errors import InputError
from common.speech import Controls
from common.stages.choose import KINDS
from common.synthesis.loading import choose_sources, make_driver
from common.training.corpus.dataset import HOP, RATE
from common.weights.voices import ModelSource


def require_reader(voice: str | Path) -> tuple[ModelSource, ModelSource]:
    """The FastPitch and the vocoder of a voice that can read a corpus; InputError for another one."""
    sources = choose_sources({"acoustic": "fastpitch", "vocoder": None}, voice)
    acoustic, vocoder = (sources[kind] for kind in KINDS)
    require_same_contract(acoustic.mel, vocoder.mel, (acoustic.model, vocoder.model))
    found = acoustic.mel.sampling_rate, acoustic.mel.hop_length
    if found != (RATE, HOP):
        raise InputError(f"{voice}: {found[0]} Hz in hops of {found[1]}, a corpus has {RATE} and {HOP}")
    return acoustic, vocoder


class Reader:
    """Speaks symbols by ONNX Runtime, on one thread."""

    def __init__(self, voice: str | Path):
        acoustic, vocoder = require_reader(voice)
        assert acoustic.frontend is not None  # every acoustic model has one
        self.frontend = acoustic.frontend.build()
        self.acoustic = make_driver(acoustic, "onnx", "cpu", threads=1)
        self.vocoder = make_driver(vocoder, "onnx", "cpu", threads=1)

    def read(self, ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Symbols int64 `[N]` -> audio float32 `[T * HOP]`, durations in frames int64 `[N]`, T in all."""
        controls = Controls(seed=seed)
        spoken = self.acoustic.synthesise([ids], controls)
        assert spoken.durations is not None  # FastPitch has them
        audio = self.vocoder.vocode(np.asarray(spoken.mel), spoken.mel_lengths, controls)[0]
        return np.asarray(audio), np.asarray(spoken.durations)[0]
