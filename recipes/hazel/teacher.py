"""The teacher voice: hibari-tts (Apache-2.0) reads our own phonemes, so that audio and labels agree.

The shipped voice is trained on its speech; docs/voices.md tells the lineage.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from melforge.common.training.corpus.alignment import LEAD, TAIL, speech_bounds
from melforge.common.training.corpus.dataset import HOP
from melforge.common.training.corpus.sources import UNVOICED, HarmonicSource
from recipes.hazel.intonation import with_rise
from recipes.misaki import SONORANTS, VOWELS, to_misaki

GAIN = 1.4  # the teacher speaks at -26.7 dBFS with peaks below 0.65
# Of hibari-tts 0.2.1's network: the pitch in Hz of each frame, each character's duration in pairs of frames.
PITCH, DURATIONS, FRAMES = "f0", "/Clip_output_0", 2


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
    ) -> tuple[np.ndarray, HarmonicSource]:
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
        synthesise: Any = dsp.synth
        audio = synthesise(*spectra, np.random.default_rng(seed))
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
    vowels = [i for i, character in enumerate(phonemes) if character in VOWELS]
    voiced = [i for i, sign in enumerate(phonemes) if sign in VOWELS or sign in SONORANTS or sign == "ː"]
    first = (stresses or vowels or [0])[-1]
    return first, max([first, *voiced])


def teacher_source(
    spectra: Sequence[np.ndarray], first: int, count: int, rate: int, gain: float, theirs: int
) -> HarmonicSource:
    """Of what the teacher's network said, `count` samples from `first` on at `rate`, times `gain`.

    `spectra` are log magnitudes and phases [bins, frames] of the harmonic filter (half turns, before tanh),
    more that make the rest, and the pitch in Hz [frames]; `theirs` is the teacher's sampling rate. Frames
    are the teacher's own here.
    """
    import soxr
    from hibari import dsp

    magnitude, angle, pitch = spectra[0], spectra[1], np.asarray(spectra[-1], np.float64)
    turned = (np.exp(1j * np.pi * np.tanh(angle)) * dsp.ex(magnitude)).astype(np.complex64)
    harmonic = soxr.resample(dsp.ola(dsp.stft(dsp.pulses(pitch), len(pitch)) * turned), theirs, rate)
    kept = np.clip(harmonic[first : first + count] * gain, -0.99, 0.99)
    # As `dsp.pulses` does: the pitch of every sample, in frames from the first one's centre, and its sum.
    samples = np.arange(len(pitch) * dsp.HOP)
    each = np.interp((samples + 0.5) / dsp.HOP - 0.5, np.arange(len(pitch)), pitch)
    pulsed = np.maximum(each, UNVOICED)
    at = (first + HOP // 2 + HOP * np.arange(count // HOP)) * (theirs / rate)  # our frames' centres
    return HarmonicSource(
        harmonic=np.round(kept * 32767).astype(np.int16),  # as soundfile writes the audio
        phase=(np.interp(at, samples, pulsed.cumsum() / theirs) % 1.0).astype(np.float32),
        pitch=np.interp(at, samples, pulsed).astype(np.float32),
        voiced=np.interp(at, samples, each > UNVOICED) > 0.5,
    )
