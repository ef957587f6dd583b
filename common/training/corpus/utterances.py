"""Whole utterances of a labelled corpus on the device, in padded batches of similar length: what an acoustic
model is trained on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from common.arrays import length_mask
from common.audio.contract import MelContract
from common.errors import InputError
from common.training.corpus.dataset import load_audio, load_labels
from common.training.corpus.mels import corpus_mel

VALIDATION_UTTERANCES = 64  # the corpus's last ones are never trained on


@dataclass(frozen=True, eq=False)  # compared by identity: a bucket is the key of its CUDA graph
class Bucket:
    """Utterances of similar length, padded to one shape."""

    symbols: int
    frames: int
    batch_size: int
    members: tuple[int, ...]


class Utterances:
    """The labelled corpus on the device; methods gather padded tensors from utterance numbers (B,)."""

    def __init__(self, folder: Path, contract: MelContract, device: torch.device):
        labels = load_labels(folder)
        samples, offsets = load_audio(folder, labels, contract.hop_length)
        self.mel = corpus_mel(torch.from_numpy(samples).to(device), contract)
        self.first = torch.from_numpy(offsets[:-1] // contract.hop_length).to(device)
        self.frames = torch.from_numpy(labels.frames).to(device)
        self.lengths = torch.tensor([len(ids) for ids in labels.ids], device=device)
        voiced = np.concatenate(labels.pitch)
        voiced = voiced[voiced > 0]
        self.pitch_mean, self.pitch_std = float(voiced.mean()), float(voiced.std())  # Hz
        self.ids = _table(labels.ids, device)
        self.durations = _table(labels.durations, device)
        pitch = _table(labels.pitch, device)
        self.pitch = torch.where(pitch > 0, (pitch - self.pitch_mean) / self.pitch_std, 0.0)

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def device(self) -> torch.device:
        return self.mel.device

    def inside(self, members: Tensor, frames: int) -> Tensor:
        """(B, frames) bool: true where a frame is inside its utterance."""
        return length_mask(self.frames[members], frames)

    def longest(self, members: Tensor) -> tuple[int, int]:
        """The most symbols and the most frames of these utterances (B,)."""
        return int(self.lengths[members].max()), int(self.frames[members].max())

    def padded_mel(self, members: Tensor, frames: int, padding: float = 0.0) -> Tensor:
        """mel (B, n_mels, frames) float32."""
        at = self.first[members][:, None] + torch.arange(frames, device=members.device)
        mel = self.mel[:, at.clamp(max=self.mel.size(1) - 1)].transpose(0, 1).float()
        return mel.masked_fill(~self.inside(members, frames)[:, None], padding)

    def validation(self) -> Bucket:
        """The held-out utterances as one batch; its members are `Bucket.members`."""
        members = torch.arange(len(self) - VALIDATION_UTTERANCES, len(self), device=self.device)
        symbols, frames = self.longest(members)
        return Bucket(symbols, -(-frames // 8) * 8, len(members), tuple(members.tolist()))

    def replace_durations(self, path: Path) -> None:
        """Takes the durations of a .npy file (`[symbols of all utterances]`, frames) for the corpus's own.

        An InputError where they are another corpus's.
        """
        durations, cuts = np.load(path), self.lengths.cumsum(0).cpu().numpy()
        if durations.dtype.kind in "iu" and durations.shape == (cuts[-1],):
            rows = np.split(durations, cuts[:-1])
            if [int(row.sum()) for row in rows] == self.frames.tolist():
                self.durations = _table(rows, self.device).long()
                return
        raise InputError(f"{path} does not hold this corpus's durations: align it again")


def _table(rows: list[np.ndarray], device: torch.device) -> Tensor:
    return pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True).to(device)


def batches(
    corpus: Utterances, bucket_frames: Sequence[int], frames_per_batch: int, max_batch_size: int, seed: int
) -> Iterator[tuple[Bucket, dict[str, Tensor]]]:
    """Endless batches from length buckets with these upper ends.

    All utterances but those that validate come equally often, in a new order each time. Those longer than the
    last bucket are left out.
    """
    frames, lengths = corpus.frames.cpu().numpy(), corpus.lengths.cpu().numpy()
    usable = np.arange(len(frames)) < len(frames) - VALIDATION_UTTERANCES
    buckets, low = [], 0
    for high in bucket_frames:
        members = np.flatnonzero(usable & (frames > low) & (frames <= high))
        low = high
        if len(members):
            size = min(max_batch_size, frames_per_batch // high, len(members))
            symbols = -(-int(lengths[members].max()) // 8) * 8
            buckets.append(Bucket(symbols, high, size, tuple(members.tolist())))
    if not buckets:
        raise InputError("the corpus is too small: no utterance is left for training")
    used = sum(len(bucket.members) for bucket in buckets)
    print(f"{used} utterances train, {usable.sum() - used} are longer than {low} frames and left out")
    random = np.random.default_rng(seed)
    weights = np.array([len(b.members) / b.batch_size for b in buckets])
    queues: list[list[int]] = [[] for _ in buckets]
    while True:
        index = random.choice(len(buckets), p=weights / weights.sum())
        bucket, queue = buckets[index], queues[index]
        if len(queue) < bucket.batch_size:
            queue.extend(random.permutation(bucket.members).tolist())
        members, queue[: bucket.batch_size] = queue[: bucket.batch_size], []
        yield bucket, {"members": torch.tensor(members, device=corpus.device)}
