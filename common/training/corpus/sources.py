"""The teacher's harmonic source, kept beside its audio: what a vocoder with a source learns from.

hibari-tts filters pulses at a pitch that its network says, and adds the rest. So the harmonic part of its
audio and the pulses' phases are known exactly, and can be regressed before discriminators judge anything.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.audio.contract import MelContract
from common.errors import InputError
from common.training.corpus.batches import Segments
from common.training.corpus.dataset import HOP, RATE, READERS, load_labels

FOLDER = "sources"  # of a corpus, NAME.npz in it
UNVOICED = 40.0  # Hz: the teacher's pulses begin above


@dataclass(frozen=True, eq=False)
class Source:
    """Of an utterance's audio `[S]`, and of its frames at their centres `[T]`."""

    harmonic: np.ndarray  # int16 [S]: what the pulses make of it
    phase: np.ndarray  # float32 [T]: cycles, less whole ones
    pitch: np.ndarray  # float32 [T]: Hz
    voiced: np.ndarray  # bool [T]: whether there are pulses

    def save(self, folder: Path, name: str) -> None:
        np.savez(folder / FOLDER / f"{name}.npz", **vars(self))


def teacher_source(
    spectra: Sequence[np.ndarray], first: int, count: int, rate: int, gain: float, theirs: int
) -> Source:
    """Of what the teacher's network said, the samples from `first` on at our rate, times `gain`.

    `spectra` are log magnitudes and phases [bins, frames] of the harmonic filter, more that make the rest,
    and the pitch in Hz [frames]; `theirs` is the teacher's sampling rate.
    """
    import soxr
    from hibari import dsp

    size, angle, pitch = spectra[0], spectra[1], np.asarray(spectra[-1], np.float64)
    turned = (np.exp(1j * np.pi * np.tanh(angle)) * dsp.ex(size)).astype(np.complex64)
    harmonic = soxr.resample(dsp.ola(dsp.stft(dsp.pulses(pitch), size.shape[1]) * turned), theirs, rate)
    kept = np.clip(harmonic[first : first + count] * gain, -0.99, 0.99)
    centres = (np.arange(len(pitch) * dsp.HOP) + 0.5) / dsp.HOP - 0.5
    each = np.interp(centres, np.arange(len(pitch)), pitch)  # of every sample
    pulsed = np.maximum(each, UNVOICED)
    at = (first + HOP // 2 + HOP * np.arange(count // HOP)) * (theirs / rate)
    places = np.arange(len(each))
    return Source(
        np.round(kept * 32767).astype(np.int16),
        (np.interp(at, places, pulsed.cumsum() / theirs) % 1.0).astype(np.float32),
        np.interp(at, places, pulsed).astype(np.float32),
        np.interp(at, places, each > UNVOICED) > 0.5,
    )


class SourcedSegments(Segments):
    """Segments of a corpus with sources: batches have `source` (B, 2, T), `voiced` (B, T), `harmonic` too.

    The first `edges` items of a batch begin with an utterance, and as many more end with one: there a network
    meets the padding that it meets in use.
    """

    def __init__(
        self, corpus: Path, contract: MelContract, mels: Sequence[Path], device: torch.device, edges: int
    ):
        super().__init__(corpus, contract, mels, device)
        labels, self.edges = load_labels(corpus), edges
        ends = labels.frames.cumsum()
        starts = ends - labels.frames
        harmonic = np.zeros(self.frames * self.hop, np.int16)
        phase, pitch = np.zeros(self.frames, np.float32), np.full(self.frames, 1.0, np.float32)
        voiced = np.zeros(self.frames, bool)

        def read(i: int) -> None:
            path = corpus / FOLDER / f"{labels.names[i]}.npz"
            if not path.is_file():
                raise InputError(f"{path} is missing: prepare the corpus with --sources")
            frames = slice(starts[i], ends[i])
            with np.load(path) as kept:
                count = labels.frames[i]
                harmonic[starts[i] * self.hop : ends[i] * self.hop] = kept["harmonic"][: count * self.hop]
                phase[frames], pitch[frames] = kept["phase"][:count], kept["pitch"][:count]
                voiced[frames] = kept["voiced"][:count]

        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(read, range(len(labels.names))))
        given = harmonic, phase, pitch / np.float32(RATE), voiced, starts, ends
        self.harmonic, self.phase, self.pitch, self.voiced, self.firsts, self.ends = (
            torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in given
        )

    def draw_starts(self, count: int, frames: int, limit: int, random: torch.Generator) -> Tensor:
        starts = super().draw_starts(count, frames, limit, random)
        fitting = ((self.ends - self.firsts >= frames) & (self.ends <= limit)).nonzero()[:, 0]
        if self.edges and len(fitting):
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
