"""The teacher voice: hibari-tts (Apache-2.0) reads our own phonemes, so that audio and labels agree.

The shipped voice is trained on its speech; docs/voices.md tells the lineage.
"""

from collections.abc import Sequence

import numpy as np

from common.training.corpus.alignment import speech_bounds
from common.training.corpus.misaki import to_misaki

LEAD, TAIL = 0.10, 0.14  # seconds of silence kept before and after the speech
GAIN = 1.4  # the teacher speaks at -26.7 dBFS with peaks below 0.65


class Teacher:
    """Speaks sequences of our symbols; the same seed gives the same samples on the same CPU type."""

    def __init__(self, threads: int = 1):
        from hibari import Hibari

        self.voice = Hibari(threads=threads)

    def speak(self, symbols: Sequence[str], rate: int, seed: int) -> np.ndarray:
        """One utterance as float32 `[T]` at `rate`, trimmed and a little louder than the teacher's own."""
        import soxr

        audio = self.voice.from_phonemes(to_misaki(symbols).strip(), seed=seed)
        audio = soxr.resample(audio, self.voice.sample_rate, rate).astype(np.float32)
        begin, end = speech_bounds(audio, rate)
        spoken = audio[max(0, int((begin - LEAD) * rate)) : int((end + TAIL) * rate)]
        return np.clip(spoken * GAIN, -0.99, 0.99)
