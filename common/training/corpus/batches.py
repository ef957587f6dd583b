"""A labelled corpus on the training device: its mel spectrogram, and batches of it.

Vocoders are trained on random segments, acoustic models on padded whole utterances of similar length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from melforge.common.arrays import length_mask
from melforge.common.audio.contract import MelContract
from melforge.common.audio.mel_torch import MelSpectrogram
from melforge.common.errors import InputError
from melforge.common.training import ranks
from melforge.common.training.corpus.dataset import load_audio, load_labels

BLOCK, CONTEXT = 32_768, 4  # frames computed at once, and frames on each side that settle its edges
# The corpus's last frames and utterances are never trained on: so many, or of a small corpus this share.
VALIDATION_FRAMES = 6_000  # 70 seconds
VALIDATION_UTTERANCES = 64
VALIDATION_SHARE = 0.05


def validation_count(most: int, total: int) -> int:
    """How many of all utterances or frames validate."""
    return min(most, max(1, int(total * VALIDATION_SHARE)))


def held_out_utterances(speaker: np.ndarray) -> np.ndarray:
    """Which utterances validate, bool [utterances]: the last ones of each speaker, int64 [utterances]."""
    mask = np.zeros(len(speaker), bool)
    numbers = np.unique(speaker)
    for number in numbers:
        rows = np.flatnonzero(speaker == number)
        mask[rows[-validation_count(max(1, VALIDATION_UTTERANCES // len(numbers)), len(rows)) :]] = True
    return mask


@torch.no_grad()
def corpus_mel(audio: Tensor, contract: MelContract) -> Tensor:
    """int16 samples `[frames * hop]` -> float16 mel `[n_mels, frames]`, HiFi-GAN's framing.

    The utterances stand end to end: the first and last frame of each sees a little of its neighbour's
    silence where the mel of the single file would see its own reflected.
    """
    hop = contract.hop_length
    frames = len(audio) // hop
    transform = MelSpectrogram(contract).to(audio.device)
    out = torch.empty(contract.n_mel_channels, frames, dtype=torch.float16, device=audio.device)
    for start in range(0, frames, BLOCK):
        end = min(frames, start + BLOCK)
        first, last = max(0, start - CONTEXT), min(frames, end + CONTEXT)
        block = audio[first * hop : last * hop].float() / 32768
        out[:, start:end] = transform(block[None])[0, :, start - first : end - first].half()
    return out


def load_mels(path: Path, frames: int, device: torch.device) -> Tensor:
    """Mels of the whole corpus in its order, float16 `[n_mels, frames]`; InputError for another corpus's."""
    mels = np.load(path, mmap_mode="r")
    if mels.shape[1] != frames:
        raise InputError(f"{path} holds {mels.shape[1]} frames, the corpus has {frames}: predict them again")
    return torch.from_numpy(np.array(mels)).to(device)


class Segments:
    """The corpus's audio, its true mel, and mels that acoustic models predicted for it."""

    def __init__(self, corpus: Path, contract: MelContract, mels: Sequence[Path], device: torch.device):
        samples, _ = load_audio(corpus, load_labels(corpus), contract.hop_length)
        self.device, self.audio = device, torch.from_numpy(samples).to(device)
        self.hop = contract.hop_length
        self.frames = len(self.audio) // self.hop
        self.mels = [corpus_mel(self.audio, contract)]
        self.mels += [load_mels(path, self.frames, device) for path in mels]
        self.validation_frames = validation_count(VALIDATION_FRAMES, self.frames)

    def cut(self, starts: Tensor, frames: int, which: Tensor) -> tuple[Tensor, Tensor]:
        """Start frames (B,) and which mel each takes (B,) -> mel (B, n_mels, frames), audio (B, 1, S)."""
        at = starts[:, None] + torch.arange(frames, device=starts.device)
        mel = self.mels[0][:, at]
        for index, other in enumerate(self.mels[1:], 1):
            mel = torch.where((which == index)[None, :, None], other[:, at], mel)
        samples = starts[:, None] * self.hop + torch.arange(frames * self.hop, device=starts.device)
        return mel.transpose(0, 1).float(), self.audio[samples][:, None].float() / 32768

    def held_out(self) -> tuple[Tensor, Tensor]:
        """The corpus's last frames, which no batch holds: mel (1, n_mels, T), audio (1, 1, T * hop)."""
        start = torch.tensor([self.frames - self.validation_frames], device=self.device)
        return self.cut(start, self.validation_frames, torch.zeros_like(start))

    def batches(
        self, batch_size: int, frames: int, predicted_share: float, seed: int
    ) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Endless batches of random segments, a share of them with a predicted mel where there are any."""
        device, size = self.device, (batch_size,)
        random = torch.Generator(device).manual_seed(seed)
        limit = self.frames - self.validation_frames - frames
        if limit < 1:
            raise InputError(
                f"the corpus is too small: its {self.frames} frames hold no segment of {frames} and "
                f"{self.validation_frames} more that validate"
            )
        while True:
            starts = self.draw_starts(batch_size, frames, limit, random)
            predicted = torch.randint(1, max(2, len(self.mels)), size, device=device, generator=random)
            true = torch.rand(size, device=device, generator=random) >= predicted_share
            mel, audio = self.cut(starts, frames, torch.where(true, 0, predicted))
            yield "segment", {"mel": mel, "audio": audio, **self.beside(starts, frames)}

    def draw_starts(self, count: int, frames: int, limit: int, random: torch.Generator) -> Tensor:
        """The first frames (count,) of a batch's segments: `limit` at most, or they meet what validates."""
        return torch.randint(0, limit, (count,), device=self.device, generator=random)

    def beside(self, starts: Tensor, frames: int) -> dict[str, Tensor]:
        """What a batch has beside mel and audio, of segments that begin at the frames `starts` (B,)."""
        return {}


@dataclass(frozen=True, eq=False)  # compared by identity: a group is the key of its CUDA graph
class LengthGroup:
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
        self.names, self.texts = labels.names, labels.texts
        self.speakers = labels.speakers  # names; none where there is one speaker
        self.speaker = torch.from_numpy(labels.speaker).to(device)
        self.held_out = held_out_utterances(labels.speaker)
        self.ids = _table(labels.ids, device)
        self.durations = _table(labels.durations, device)
        pitch = _table(labels.pitch, device)
        # Each speaker's mean and deviation in Hz (2, speakers), in which `pitch` is, 0 where none is voiced.
        spoken = [pitch[self.speaker == number] for number in range(max(1, len(self.speakers)))]
        units = [(own.mean(), own.std(correction=0)) for own in (one[one > 0] for one in spoken)]
        self.pitch_units = torch.tensor(units, device=device).T
        mean, deviation = self.pitch_units[:, self.speaker, None]
        self.pitch = torch.where(pitch > 0, (pitch - mean) / deviation, 0.0)

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

    def validation(self) -> LengthGroup:
        """The held-out utterances as one batch; its members are `LengthGroup.members`."""
        members = torch.from_numpy(np.flatnonzero(self.held_out)).to(self.device)
        symbols, frames = self.longest(members)
        return LengthGroup(symbols, -(-frames // 8) * 8, len(members), tuple(members.tolist()))

    def measure_pitch_by(self, means: Sequence[float], deviations: Sequence[float]) -> None:
        """Takes other units than the corpus's own, in Hz, such as a network's: of all speakers or each."""
        mean, deviation = self.pitch_units[:, self.speaker, None]
        pitch = torch.where(self.pitch == 0, 0.0, self.pitch * deviation + mean)
        units = torch.tensor([means, deviations], device=self.device)
        self.pitch_units = units.expand_as(self.pitch_units)
        mean, deviation = self.pitch_units[:, self.speaker, None]
        self.pitch = torch.where(pitch > 0, (pitch - mean) / deviation, 0.0)

    def number_speakers(self, names: Sequence[str]) -> None:
        """Takes the numbers that a model has for its speakers; InputError for one that it does not have."""
        for name in self.speakers:
            if name not in names:
                raise InputError(f"the corpus's speaker {name!r} is none of the model's: {', '.join(names)}")
        numbers = torch.tensor([names.index(name) for name in self.speakers], device=self.device)
        units = self.pitch_units.new_ones(2, len(names))
        units[:, numbers] = self.pitch_units
        self.speaker, self.speakers, self.pitch_units = numbers[self.speaker], list(names), units

    def replace_durations(self, path: Path) -> None:
        """Takes a .npy file's durations, frames `[all symbols]`; InputError for another corpus's."""
        durations, cuts = np.load(path), self.lengths.cumsum(0).cpu().numpy()
        if durations.dtype.kind in "iu" and durations.shape == (cuts[-1],):
            rows = np.split(durations, cuts[:-1])
            if [int(row.sum()) for row in rows] == self.frames.tolist():
                self.durations = _table(rows, self.device).long()
                return
        raise InputError(f"{path} does not hold this corpus's durations: align it again")


def _table(rows: list[np.ndarray], device: torch.device) -> Tensor:
    return pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True).to(device)


def utterance_batches(
    corpus: Utterances, bucket_frames: Sequence[int], frames_per_batch: int, max_batch_size: int, seed: int
) -> Iterator[tuple[LengthGroup, dict[str, Tensor]]]:
    """Endless batches of utterances up to these lengths; what is longer than the last is left out.

    All utterances but those that validate come equally often, in a new order each time.
    """
    frames, lengths = corpus.frames.cpu().numpy(), corpus.lengths.cpu().numpy()
    usable = ~corpus.held_out
    groups, low = [], 0
    for high in bucket_frames:
        members = np.flatnonzero(usable & (frames > low) & (frames <= high))
        low = high
        if len(members):
            size = min(max_batch_size, frames_per_batch // high, len(members))
            symbols = -(-int(lengths[members].max()) // 8) * 8
            groups.append(LengthGroup(symbols, high, size, tuple(members.tolist())))
    if not groups:
        raise InputError("the corpus is too small: no utterance is left for training")
    used = sum(len(group.members) for group in groups)
    if ranks.is_first():
        print(f"{used} utterances train, {usable.sum() - used} are longer than {low} frames and left out")
    random = np.random.default_rng(seed)
    weights = np.array([len(group.members) / group.batch_size for group in groups])
    queues: list[list[int]] = [[] for _ in groups]
    while True:
        index = random.choice(len(groups), p=weights / weights.sum())
        group, queue = groups[index], queues[index]
        if len(queue) < group.batch_size:
            queue.extend(random.permutation(group.members).tolist())
        members, queue[: group.batch_size] = queue[: group.batch_size], []
        yield group, {"members": torch.tensor(members, device=corpus.device)}


def batches_of_like_length(lengths: np.ndarray, size: int, seed: int) -> Iterator[np.ndarray]:
    """Numbers of texts of these lengths (N,), each once, in batches of like lengths, whose order is drawn."""
    ordered = np.argsort(lengths, kind="stable")
    whole = np.split(ordered, range(size, len(ordered), size))
    return (whole[i] for i in np.random.default_rng(seed).permutation(len(whole)))
