"""The teacher voice: hibari-tts (Apache-2.0) reads our own phonemes, so that audio and labels agree.

The shipped voice is trained on its speech; docs/voices.md tells the lineage. The teacher reads the misaki
alphabet: one character a phone, diphthongs as capitals, and a stress mark directly before its vowel.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from melforge.common.errors import InputError
from melforge.common.training.corpus.alignment import speech_bounds
from melforge.common.training.corpus.intonation import with_rise
from melforge.common.training.corpus.sources import Source, teacher_source

LEAD, TAIL = 0.10, 0.14  # seconds of silence kept before and after the speech
GAIN = 1.4  # the teacher speaks at -26.7 dBFS with peaks below 0.65
# Of hibari-tts 0.2.1's network: the pitch in Hz of each frame, each character's duration in pairs of frames.
PITCH, DURATIONS, FRAMES = "f0", "/Clip_output_0", 2

_SHARED_VOWELS = {
    **{"A": "EY", "I": "AY", "O": "OW", "W": "AW", "Y": "OY", "ɑ": "AA", "æ": "AE", "ɔ": "AO", "ɛ": "EH"},
    **{"ɪ": "IH", "i": "IY", "u": "UW", "ʊ": "UH"},
}
_SHARED_CONSONANTS = {
    **{"b": "B", "d": "D", "f": "F", "h": "HH", "j": "Y", "k": "K", "l": "L", "m": "M", "n": "N", "p": "P"},
    **{"s": "S", "t": "T", "v": "V", "w": "W", "z": "Z", "ð": "DH", "ŋ": "NG", "ɡ": "G", "ɹ": "R", "ʃ": "SH"},
    **{"ʒ": "ZH", "ʤ": "JH", "ʧ": "CH", "θ": "TH"},
}
# misaki tells apart what ARPAbet does not: reduced vowels, the tap, a few foreign sounds.
_VOWELS = _SHARED_VOWELS | {
    **{"ʌ": "AH", "ə": "AH", "ᵊ": "AH", "ɐ": "AH", "ɜ": "ER", "ɚ": "ER", "ᵻ": "IH", "a": "AA", "ɒ": "AA"},
    **{"e": "EH", "o": "OW", "y": "UW"},
}
_CONSONANTS = _SHARED_CONSONANTS | {"T": "T", "ɾ": "T", "ʔ": "T", "x": "K", "r": "R", "g": "G"}
_STRESS_MARKS = {"1": "ˈ", "2": "ˌ"}
_PLAIN = {v: k for k, v in (_SHARED_VOWELS | _SHARED_CONSONANTS).items()} | {"AH": "ə", "ER": "əɹ"}
_STRESSED = _PLAIN | {"AH": "ʌ", "ER": "ɜɹ"}
_SONORANTS = frozenset("lmnŋɹjwvðzʒ")
_PUNCTUATION = {"-": "—", "'": "", "_": ""} | {mark: mark for mark in " !(),.:;?"}


def to_misaki(symbols: Sequence[str]) -> str:
    """`[" ", "@HH", "@AH0", "@L", "@OW1", "."]` -> `" həlˈO."`. A dash becomes misaki's long one."""
    out = []
    for symbol in symbols:
        phone, stress = symbol[1:].rstrip("012"), symbol[-1]
        if symbol in _PUNCTUATION:
            out.append(_PUNCTUATION[symbol])
        elif symbol[:1] != "@":
            raise InputError(f"no misaki form for {symbol!r}: letters must be phones")
        elif phone not in _PLAIN:
            raise InputError(f"no misaki form for {symbol!r}: it is no ARPAbet phone")
        else:
            out.append(_STRESS_MARKS.get(stress, "") + (_STRESSED if stress in "12" else _PLAIN)[phone])
    return "".join(out)


def from_misaki(phonemes: str) -> list[str]:
    """`"həlˈO."` -> `["HH", "AH0", "L", "OW1"]`: ARPAbet without "@"; all that is no phone is left out."""
    out: list[str] = []
    stress, previous = "0", ""
    for character in phonemes:
        if character in "ˈˌ":
            stress = "1" if character == "ˈ" else "2"
        elif character == "ɹ" and previous in ("ɜ", "ə"):
            out[-1] = "ER" + out[-1][-1]
        elif character in _VOWELS:
            out.append(_VOWELS[character] + stress)
            stress = "0"
        elif character in _CONSONANTS:
            out.append(_CONSONANTS[character])
        previous = character
    return out


class Teacher:
    """Speaks sequences of our symbols; the same seed gives the same samples on the same CPU type."""

    def __init__(self, threads: int = 1):
        from hibari import Hibari

        self.voice = Hibari(threads=threads)
        self.threads = threads

    def speak(self, symbols: Sequence[str], rate: int, seed: int, rises: bool = False) -> np.ndarray:
        """One utterance as float32 `[T]` at `rate`, trimmed and a little louder than the teacher's own.

        `rises`: its pitch rises from the last stressed vowel on, as a yes/no question's does.
        """
        return self._speak(symbols, rate, seed, rises)[0]

    def speak_with_source(
        self, symbols: Sequence[str], rate: int, seed: int, rises: bool = False
    ) -> tuple[np.ndarray, Source]:
        """The same, and its harmonic source."""
        audio, spectra, first = self._speak(symbols, rate, seed, rises)
        return audio, teacher_source(spectra, first, len(audio), rate, GAIN, self.voice.sample_rate)

    def _speak(
        self, symbols: Sequence[str], rate: int, seed: int, rises: bool
    ) -> tuple[np.ndarray, list[np.ndarray], int]:
        """The audio, what the network said of all of it, and the sample that was left of it first."""
        import soxr
        from hibari import dsp

        phonemes = to_misaki(symbols).strip()
        spectra = self._rising(phonemes) if rises else self._plain(phonemes)
        audio = dsp.synth(*spectra, np.random.default_rng(seed))
        audio = soxr.resample(audio, self.voice.sample_rate, rate).astype(np.float32)
        begin, end = speech_bounds(audio, rate)
        first = max(0, int((begin - LEAD) * rate))
        return np.clip(audio[first : int((end + TAIL) * rate)] * GAIN, -0.99, 0.99), spectra, first

    def _inputs(self, phonemes: str) -> dict[str, np.ndarray]:
        return {"ids": np.array([self.voice.ids(phonemes)], np.int64), "speed": np.ones(1, np.float32)}

    def _plain(self, phonemes: str) -> list[np.ndarray]:
        return [np.asarray(one)[0] for one in self.voice.sess.run(None, self._inputs(phonemes))]

    def _rising(self, phonemes: str) -> list[np.ndarray]:
        spoken = [c for c in phonemes if c in self.voice.vocab]
        first, last = rising_part(spoken)
        inputs = self._inputs(phonemes)
        predict, decode = self._stages
        pitch, durations = map(np.asarray, predict.run([PITCH, DURATIONS], inputs))
        ends = FRAMES * durations.reshape(-1).round().astype(int).cumsum()  # [0] is that of a pad
        pitch = with_rise(pitch[0], ends[first], ends[last + 1])
        spectra = decode.run(None, inputs | {PITCH: pitch[None]})
        return [*(np.asarray(one)[0] for one in spectra), pitch]

    @cached_property
    def _stages(self):
        """The teacher's network twice: with the durations as an output, and with the pitch as an input."""
        import onnx
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = self.threads
        options.log_severity_level = 3
        with_durations = onnx.load(self.voice.model_path)
        with_durations.graph.output.append(onnx.helper.make_empty_tensor_value_info(DURATIONS))
        from_pitch = onnx.load(self.voice.model_path)
        graph = from_pitch.graph
        graph.node.remove(next(node for node in graph.node if PITCH in node.output))
        graph.output.remove(next(value for value in graph.output if value.name == PITCH))
        graph.input.append(onnx.helper.make_tensor_value_info(PITCH, onnx.TensorProto.FLOAT, ["B", "F"]))
        models = (with_durations, from_pitch)
        return [onnxruntime.InferenceSession(model.SerializeToString(), options) for model in models]


def rising_part(phonemes: Sequence[str]) -> tuple[int, int]:
    """The first and the last character of misaki's in which a question rises.

    From the last main stress, whose mark takes the beginning of its vowel's time, or without one from the
    last vowel, to the last voiced phone.
    """
    stresses = [i for i, character in enumerate(phonemes) if character == "ˈ"]
    vowels = [i for i, character in enumerate(phonemes) if character in _VOWELS]
    voiced = [i for i, character in enumerate(phonemes) if character in _VOWELS or character in _SONORANTS]
    first = (stresses or vowels or [0])[-1]
    return first, max([first, *voiced])
