"""The shipped voice's teacher in the benchmark's tables, from the same symbols (pip install -e '.[train]'):

    export TEACHER_THREADS=2
    python scripts/benchmark.py --backend onnx --threads 2 --peer recipes.hazel.benchmark_teacher:speak

Its audio has 24 kHz, and silence at both ends. The tables count seconds at our rate, so that it is cut to as
many samples as it would have there.
"""

import os

import numpy as np
from hibari import Hibari

from melforge.common.errors import InputError
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus.dataset import RATE
from recipes.misaki import to_misaki

THREADS = os.environ.get("TEACHER_THREADS") or str(os.cpu_count() or 1)
if not THREADS.isdecimal():
    raise InputError(f"TEACHER_THREADS must be a whole number, not {THREADS!r}")
VOICE = Hibari(threads=int(THREADS))
SYMBOLS = get_frontend("english").symbols


def speak(ids: list[np.ndarray]) -> list[np.ndarray]:
    """Symbol ids, int64 [T_text] each -> audio, float32 [T_audio] each, one after the other."""
    spoken = (VOICE.from_phonemes(to_misaki([SYMBOLS[number] for number in row]).strip()) for row in ids)
    return [audio[: len(audio) * RATE // VOICE.sample_rate] for audio in spoken]
