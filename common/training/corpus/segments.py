"""Random segments of a corpus that lies end to end in the device's memory: what a vocoder is trained on."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from common.audio.contract import MelContract
from common.training.corpus.dataset import load_audio, load_labels
from common.training.corpus.mels import corpus_mel, load_mels

VALIDATION_FRAMES = 6_000  # the corpus's last 70 seconds are never trained on


class Segments:
    """The corpus's audio, its true mel, and mels that acoustic models predicted for it."""

    def __init__(self, corpus: Path, contract: MelContract, mels: Sequence[Path], device: torch.device):
        samples, _ = load_audio(corpus, load_labels(corpus), contract.hop_length)
        self.device, self.audio = device, torch.from_numpy(samples).to(device)
        self.hop = contract.hop_length
        self.frames = len(self.audio) // self.hop
        self.mels = [corpus_mel(self.audio, contract)]
        self.mels += [load_mels(path, self.frames, device) for path in mels]

    def cut(self, starts: Tensor, frames: int, source: Tensor) -> tuple[Tensor, Tensor]:
        """Start frames (B,) and which mel each takes -> mel (B, n_mels, frames), audio (B, 1, S)."""
        at = starts[:, None] + torch.arange(frames, device=starts.device)
        mel = self.mels[0][:, at]
        for index, other in enumerate(self.mels[1:], 1):
            mel = torch.where((source == index)[None, :, None], other[:, at], mel)
        samples = starts[:, None] * self.hop + torch.arange(frames * self.hop, device=starts.device)
        return mel.transpose(0, 1).float(), self.audio[samples][:, None].float() / 32768

    def held_out(self) -> tuple[Tensor, Tensor]:
        """The corpus's last frames, which no batch holds: mel (1, n_mels, T), audio (1, 1, T * hop)."""
        start = torch.tensor([self.frames - VALIDATION_FRAMES], device=self.device)
        return self.cut(start, VALIDATION_FRAMES, torch.zeros_like(start))

    def batches(
        self, batch_size: int, frames: int, predicted_share: float, seed: int
    ) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Endless batches of random segments, a share of them with a predicted mel where there are any."""
        device, size = self.device, (batch_size,)
        random = torch.Generator(device).manual_seed(seed)
        limit = self.frames - VALIDATION_FRAMES - frames
        while True:
            starts = torch.randint(0, limit, size, device=device, generator=random)
            source = torch.randint(1, max(2, len(self.mels)), size, device=device, generator=random)
            true = torch.rand(size, device=device, generator=random) >= predicted_share
            mel, audio = self.cut(starts, frames, torch.where(true, 0, source))
            yield "segment", {"mel": mel, "audio": audio}
