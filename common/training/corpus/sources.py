"""A corpus with harmonic sources beside its audio: what a vocoder with a source learns from.

Where a teacher's speech is pulses that it filters, the harmonic part of its audio and the pulses' phases are
known exactly, and can be regressed before discriminators judge anything (`recipes/hazel/teacher.py`).
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
from melforge.common.training.corpus.dataset import RATE, load_labels

SOURCES = "sources"  # the folder of a corpus, NAME.npz in it
UNVOICED = 40.0  # Hz: pulses begin above


@dataclass(frozen=True, eq=False)
class HarmonicSource:
    """Of an utterance's audio `[S]`, and of its whole frames at their centres `[T]`."""

    harmonic: np.ndarray  # int16 [S]: what the pulses make of it
    phase: np.ndarray  # float32 [T]: cycles, less whole ones
    pitch: np.ndarray  # float32 [T]: Hz
    voiced: np.ndarray  # bool [T]: whether there are pulses

    def save(self, folder: Path, name: str) -> None:
        (folder / SOURCES).mkdir(exist_ok=True)
        with written_whole(folder / SOURCES / f"{name}.npz") as path, path.open("wb") as file:
            np.savez(file, **vars(self))


def load_source(corpus: Path, name: str, frames: int) -> HarmonicSource:
    """What `HarmonicSource.save` wrote; an InputError where it is missing, or of another length."""
    path = corpus / SOURCES / f"{name}.npz"
    if not path.is_file():
        raise InputError(
            f"{path} is missing: prepare the corpus with --sources (the teacher's speech alone has them)"
        )
    with np.load(path) as kept:
        source = HarmonicSource(**kept)
    if len(source.phase) != frames:
        raise InputError(
            f"{path} has {len(source.phase)} frames, the corpus's labels {frames}: "
            "prepare the corpus with --sources again"
        )
    return source


class SourcedSegments(Segments):
    """Segments of a corpus with sources. Batches have `source`, phase in cycles and pitch in cycles a sample
    (B, 2, T), `voiced`, 1 or 0 (B, T), and `harmonic`, the audio's harmonic part (B, 1, S) too.

    What stands beside the audio is on the device, also where the audio does not fit there.

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
        self.harmonic, self.phase, self.pitch, self.voiced = (
            torch.from_numpy(one).to(device) for one in (harmonic, phase, pitch, voiced)
        )
        self.firsts, self.ends = torch.from_numpy(firsts), torch.from_numpy(ends)

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
        drawn = torch.randint(0, len(fitting), (2 * self.edges,), generator=random)
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
