"""A voice's own FastPitch and vocoder read a corpus's texts, for its other models to learn from.

Durations are what FastPitch gave the symbols, so that nothing needs to be aligned, and all that is heard
follows from the text: a model without a pitch input learns such speech best (FastSpeech paper, section 3.3).
"""

from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.training.corpus.alignment import line_symbols
from melforge.common.training.corpus.dataset import HOP, RATE
from recipes.corpus import NamedText, SpokenLine


class VoiceReader:
    """Speaks lines by ONNX Runtime, on one thread. InputError for a voice that has another rate."""

    def __init__(self, voice: str):
        self.tts = TextToSpeech.load("fastpitch", voice=voice, device="cpu", threads=1)
        mel = self.tts.acoustic.source.mel
        if (mel.sampling_rate, mel.hop_length) != (RATE, HOP):
            has = f"{mel.sampling_rate} Hz and hops of {mel.hop_length}"
            raise InputError(f"voice {voice!r} has {has}, a corpus {RATE} and {HOP}: take another voice")

    def read(self, line: NamedText) -> SpokenLine:
        _, ids = line_symbols(self.tts.frontend(line.text).utterances)
        controls = Controls(seed=line.seed)
        spoken = self.tts.acoustic.synthesise([ids], controls)
        assert spoken.durations is not None  # FastPitch has them
        audio = self.tts.vocoder.vocode(spoken.mel, spoken.mel_lengths, controls)[0]
        return SpokenLine(audio, ids, spoken.durations[0])
