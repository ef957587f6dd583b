"""The teacher's harmonic source, kept beside its audio: what a vocoder with a source learns from.

hibari-tts filters pulses at a pitch that its network says, and adds the rest. So the harmonic part of its
audio and the pulses' phases are known exactly, and can be regressed before discriminators judge anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from melforge.common.audio.contract import MelContract
from melforge.common.errors import InputError
from melforge.common.files import written_whole
from melforge.common.training.corpus.batches import Segments
from melforge.common.training.corpus.dataset import HOP, RATE, load_labels

SOURCES = "sources"  # the folder of a corpus, NAME.npz in it
UNVOICED = 40.0  # Hz: the teacher's pulses begin above


@dataclass(frozen=True, eq=False)
class Source:
    """Of an utterance's audio `[S]`, and of its whole frames at their centres `[T]`."""

    harmonic: np.ndarray  # int16 [S]: what the pulses make of it
    phase: np.ndarray  # float32 [T]: cycles, less whole ones
    pitch: np.ndarray  # float32 [T]: Hz
    voiced: np.ndarray  # bool [T]: whether there are pulses

    def save(self, folder: Path, name: str) -> None:
        with written_whole(folder / SOURCES / f"{name}.npz") as path, path.open("wb") as file:
            np.savez(file, **vars(self))


def load_source(corpus: Path, name: str, frames: int) -> Source:
    """What `Source.save` wrote; an InputError where it is not there, or of a reading of other length."""
    path = corpus / SOURCES / f"{name}.npz"
    if not path.is_file():
        raise InputError(
            f"{path} is missing: prepare the corpus with --sources (the teacher's speech alone has them)"
        )
    with np.load(path) as kept:
        source = Source(**kept)
    if len(source.phase) != frames:
        raise InputError(
            f"{path} has {len(source.phase)} frames, the corpus's labels {frames}: "
            "prepare the corpus with --sources again"
        )
    return source


def teacher_source(
    spectra: Sequence[np.ndarray], first: int, count: int, rate: int, gain: float, theirs: int
) -> Source:
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
    return Source(
        harmonic=np.round(kept * 32767).astype(np.int16),  # as soundfile writes the audio
        phase=(np.interp(at, samples, pulsed.cumsum() / theirs) % 1.0).astype(np.float32),
        pitch=np.interp(at, samples, pulsed).astype(np.float32),
        voiced=np.interp(at, samples, each > UNVOICED) > 0.5,
    )


class SourcedSegments(Segments):
    """Segments of a corpus with sources. Batches have `source`, phase in cycles and pitch in cycles a sample
    (B, 2, T), `voiced`, 1 or 0 (B, T), and `harmonic`, the audio's harmonic part (B, 1, S) too.

    The first `edges` items of a batch begin with an utterance, and as many more end with one: there a network
    meets the padding that it meets in use.
    """

    def __init__(
        self, corpus: Path, contract: MelContract, mels: Sequence[Path], device: torch.device, edges: int
    ):
        super().__init__(corpus, contract, mels, device)
        labels, self.edges = load_labels(corpus), edges
        ends = labels.frames.cumsum()
        firsts = ends - labels.frames
        harmonic = np.empty(self.frames * self.hop, np.int16)
        phase, pitch = np.empty((2, self.frames), np.float32)
        voiced = np.empty(self.frames, bool)
        # One by one: threads of numpy's loader fail now and then, in Python's own parser of literals.
        for name, first, end in zip(labels.names, firsts, ends, strict=True):
            kept = load_source(corpus, name, end - first)
            harmonic[first * self.hop : end * self.hop] = kept.harmonic[: (end - first) * self.hop]
            phase[first:end], pitch[first:end], voiced[first:end] = kept.phase, kept.pitch, kept.voiced
        pitch /= RATE  # cycles a sample
        self.harmonic, self.phase, self.pitch, self.voiced, self.firsts, self.ends = (
            torch.from_numpy(one).to(device) for one in (harmonic, phase, pitch, voiced, firsts, ends)
        )

    def draw_starts(self, count: int, frames: int, limit: int, random: torch.Generator) -> Tensor:
        starts = super().draw_starts(count, frames, limit, random)
        if not self.edges:
            return starts
        fitting = ((self.ends - self.firsts >= frames) & (self.ends <= limit + frames)).nonzero()[:, 0]
        if not len(fitting):
            raise InputError(
                f"no utterance that is trained on has the {frames} frames of a segment: "
                "give fewer segment_frames, or edge_segments=0"
            )
        drawn = torch.randint(0, len(fitting), (2 * self.edges,), device=self.device, generator=random)
        begun, ended = fitting[drawn].split(self.edges)
        starts[: 2 * self.edges] = torch.cat((self.firsts[begun], self.ends[ended] - frames))
        return starts

    def beside(self, starts: Tensor, frames: int) -> dict[str, Tensor]:
        at = starts[:, None] + torch.arange(frames, device=starts.device)
        samples = starts[:, None] * self.hop + torch.arange(frames * self.hop, device=starts.device)
        return {
            "source": torch.stack((self.phase[at], self.pitch[at]), dim=1),
            "voiced": self.voiced[at].float(),
            "harmonic": self.harmonic[samples].float()[:, None] / 32768,
        }
