"""Batches of a labelled corpus: random segments for vocoders, padded whole utterances for acoustic models.

A corpus that fits the memory of the training device is there as a whole, with its mel spectrogram. Of a
larger one only what a batch needs is read, a few batches ahead (`loop.Run.steps`), and its mel is computed on
the device. What is drawn, and what is learnt from, is the same.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from melforge.common.training.corpus.dataset import CorpusAudio, load_labels

BLOCK, CONTEXT = 32_768, 4  # frames computed at once, and frames on each side that settle its edges
# The corpus's last frames and utterances are never trained on: so many, or of a small corpus this share.
VALIDATION_FRAMES = 6_000  # 70 seconds
VALIDATION_UTTERANCES = 64
VALIDATION_SHARE = 0.05
MEAN_OF = 256  # utterances
MEMORY_SHARE = 0.5  # of the device's free memory that audio and mels may take
Drawn = Mapping[str, Tensor]  # of a batch, by name


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


def open_mels(path: Path, frames: int) -> Tensor:
    """Mels of the whole corpus in its order, float16 `[n_mels, frames]` in the file; InputError for another
    corpus's.
    """
    mels = np.load(path, mmap_mode="c")
    if mels.shape[1] != frames:
        raise InputError(f"{path} holds {mels.shape[1]} frames, the corpus has {frames}: predict them again")
    return torch.from_numpy(mels)


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a GPU, or that this machine has."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def fits_memory(device: torch.device, samples: int, contract: MelContract, mels: int) -> bool:
    """Whether a corpus of so many samples may be on the device as a whole, with so many mels of it."""
    size = 2 * samples * (1 + mels * contract.n_mel_channels / contract.hop_length)
    free = MEMORY_SHARE * free_memory(device)
    if size > free and ranks.is_first():
        print(f"the corpus takes {size / 1e9:.1f} GB, over {free / 1e9:.1f} GB: it is read as it is needed")
    return size <= free


class MelReader:
    """Mels of a corpus's pieces, computed from its files: what `corpus_mel` gives there."""

    def __init__(self, audio: CorpusAudio, contract: MelContract, device: torch.device):
        self.audio, self.hop, self.device = audio, contract.hop_length, device
        self.transform = MelSpectrogram(contract).to(device)

    def read(self, starts: Sequence[int] | np.ndarray, lengths: Iterable[int], frames: int) -> Tensor:
        """int16 samples (B, (CONTEXT + frames + CONTEXT) * hop) on the host: of so many frames, `lengths`,
        from these on, and of those around them.
        """
        size, pinned = (frames + 2 * CONTEXT) * self.hop, self.device.type == "cuda"  # see `on_way_to`
        pieces = torch.zeros(len(starts), size, dtype=torch.int16, pin_memory=pinned)
        for row, start, length in zip(pieces, starts, lengths, strict=True):
            first, last = (start - CONTEXT) * self.hop, (start + length + CONTEXT) * self.hop
            row[: last - first] = torch.from_numpy(self.audio.read(first, last))
        return pieces

    @torch.no_grad()
    def mel(self, pieces: Tensor) -> Tensor:
        """float16 mels (B, n_mels, frames) of what `read` gave, on the device."""
        return self.transform(pieces.float() / 32768)[:, :, CONTEXT:-CONTEXT].half()


def on_way_to(device: torch.device, tensor: Tensor) -> Tensor:
    """The tensor on the host, where a copy of it to the device need not be waited for."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


class Segments:
    """The corpus's audio, its true mel, and mels that acoustic models predicted for it."""

    in_memory = True

    def __init__(self, corpus: Path, contract: MelContract, mels: Sequence[Path], device: torch.device):
        files = CorpusAudio(corpus, load_labels(corpus), contract.hop_length)
        self.device, self.hop = device, contract.hop_length
        self.frames = len(files) // self.hop
        self.validation_frames = validation_count(VALIDATION_FRAMES, self.frames)
        self.predicted = [open_mels(path, self.frames) for path in mels]
        self.in_memory = fits_memory(device, len(files), contract, 1 + len(mels))
        if self.in_memory:
            self.audio = torch.from_numpy(files.read_all()).to(device)
            self.mel = corpus_mel(self.audio, contract)
            self.predicted = [mel.to(device) for mel in self.predicted]
        else:
            self.reader = MelReader(files, contract, device)

    def fetch(self, drawn: Drawn, frames: int) -> Drawn:
        """What `place` needs beside the first frames `starts` (B,) and which mel each takes, `which` (B,)."""
        if self.in_memory:
            return drawn
        starts = drawn["starts"].tolist()
        fetched = {**drawn, "pieces": self.reader.read(starts, [frames] * len(starts), frames)}
        if self.predicted:
            which = drawn["which"].tolist()
            cuts = zip(starts, which, strict=True)
            rows = [self.predicted[max(0, kind - 1)][:, first : first + frames] for first, kind in cuts]
            fetched["predicted"] = on_way_to(self.device, torch.stack(rows))
        return fetched

    def place(self, fetched: Drawn, frames: int) -> dict[str, Tensor]:
        """mel (B, n_mels, frames) and audio (B, 1, S) of what `fetch` gave, and what is `beside` them."""
        given = {name: value.to(self.device, non_blocking=True) for name, value in fetched.items()}
        starts, which = given["starts"], given["which"]
        samples = frames * self.hop
        if self.in_memory:
            at = starts[:, None] + torch.arange(frames, device=self.device)
            mel = self.mel[:, at].transpose(0, 1)
            for index, other in enumerate(self.predicted, 1):
                mel = torch.where((which == index)[:, None, None], other[:, at].transpose(0, 1), mel)
            audio = self.audio[starts[:, None] * self.hop + torch.arange(samples, device=self.device)]
        else:
            mel, audio = (
                self.reader.mel(given["pieces"]),
                given["pieces"][:, CONTEXT * self.hop :][:, :samples],
            )
            if self.predicted:
                mel = torch.where((which > 0)[:, None, None], given["predicted"], mel)
        placed = {"mel": mel.float(), "audio": audio[:, None].float() / 32768}
        return placed | self.beside(starts, frames)

    def cut(self, starts: Tensor, frames: int, which: Tensor) -> tuple[Tensor, Tensor]:
        """Start frames (B,) and which mel each takes (B,) -> mel (B, n_mels, frames), audio (B, 1, S)."""
        placed = self.place(self.fetch({"starts": starts, "which": which}, frames), frames)
        return placed["mel"], placed["audio"]

    def held_out(self) -> tuple[Tensor, Tensor]:
        """The corpus's last frames, which no batch holds: mel (1, n_mels, T), audio (1, 1, T * hop)."""
        start = torch.tensor([self.frames - self.validation_frames])
        return self.cut(start, self.validation_frames, torch.zeros_like(start))

    def batches(
        self, batch_size: int, frames: int, predicted_share: float, seed: int
    ) -> Iterator[tuple[str, Drawn]]:
        """Endless batches of random segments, for `fetch`: a share of predicted mels where there are any."""
        random = torch.Generator().manual_seed(seed)
        limit = self.frames - self.validation_frames - frames
        if limit < 1:
            raise InputError(
                f"the corpus is too small: its {self.frames} frames hold no segment of {frames} and "
                f"{self.validation_frames} more that validate"
            )
        while True:
            starts = self.draw_starts(batch_size, frames, limit, random)
            predicted = torch.randint(1, max(2, 1 + len(self.predicted)), (batch_size,), generator=random)
            true = torch.rand(batch_size, generator=random) >= predicted_share
            yield "segment", {"starts": starts, "which": torch.where(true, 0, predicted)}

    def draw_starts(self, count: int, frames: int, limit: int, random: torch.Generator) -> Tensor:
        """The first frames (count,) of a batch's segments: `limit` at most, or they meet what validates."""
        return torch.randint(0, limit, (count,), generator=random)

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
    """The labelled corpus on the device; methods gather padded tensors from utterance numbers (B,).

    `mels` are mels of the corpus (`open_mels`) in place of those of its audio.
    """

    def __init__(self, folder: Path, contract: MelContract, device: torch.device, mels: Path | None = None):
        labels = load_labels(folder)
        files = CorpusAudio(folder, labels, contract.hop_length)
        self.device, self.n_mels = device, contract.n_mel_channels
        self.starts = files.offsets // contract.hop_length  # frames, int64 [utterances + 1], on the host
        self.mel: Tensor | None = None
        self.reader: MelReader | None = None
        self.in_memory = fits_memory(device, len(files), contract, 1)
        if mels:
            self.mel = open_mels(mels, int(self.starts[-1]))
            self.mel = self.mel.to(device) if self.in_memory else self.mel
        elif self.in_memory:
            self.mel = corpus_mel(torch.from_numpy(files.read_all()).to(device), contract)
        else:
            self.reader = MelReader(files, contract, device)
        self.first = torch.from_numpy(self.starts[:-1]).to(device)
        self.frames = torch.from_numpy(labels.frames).to(device)
        self.lengths = torch.tensor([len(ids) for ids in labels.ids], device=device)
        self.names, self.texts, self.frontend = labels.names, labels.texts, labels.frontend
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

    def inside(self, members: Tensor, frames: int) -> Tensor:
        """(B, frames) bool: true where a frame is inside its utterance."""
        return length_mask(self.frames[members], frames)

    def longest(self, members: Tensor) -> tuple[int, int]:
        """The most symbols and the most frames of these utterances (B,)."""
        return int(self.lengths[members].max()), int(self.frames[members].max())

    def fetch(self, members: Tensor, frames: int) -> Drawn:
        """What `place` needs beside `members` (B,), which are on the host, of up to so many frames."""
        numbers = members.numpy()
        starts, ends = self.starts[numbers], self.starts[numbers + 1]
        if self.reader:
            return {"members": members, "pieces": self.reader.read(starts, ends - starts, frames)}
        if self.in_memory:
            return {"members": members}
        assert self.mel is not None
        mel = torch.zeros(len(numbers), self.n_mels, frames, dtype=torch.float16)
        for row, start, end in zip(mel, starts, ends, strict=True):
            row[:, : end - start] = self.mel[:, start:end]
        return {"members": members, "mel": on_way_to(self.device, mel)}

    def place(self, fetched: Drawn, frames: int, padding: float = 0.0) -> dict[str, Tensor]:
        """`members` (B,) and `mel` (B, n_mels, frames) float32 on the device, of what `fetch` gave."""
        given = {name: value.to(self.device, non_blocking=True) for name, value in fetched.items()}
        members = given["members"]
        if self.reader:
            mel = self.reader.mel(given["pieces"])
        elif "mel" in given:
            mel = given["mel"]
        else:
            assert self.mel is not None
            at = self.first[members][:, None] + torch.arange(frames, device=self.device)
            mel = self.mel[:, at.clamp(max=self.mel.size(1) - 1)].transpose(0, 1)
        mel = mel.float().masked_fill(~self.inside(members, frames)[:, None], padding)
        return {"members": members, "mel": mel}

    def padded_mel(self, members: Tensor, frames: int, padding: float = 0.0) -> Tensor:
        """mel (B, n_mels, frames) float32, read at once."""
        return self.place(self.fetch(members.cpu(), frames), frames, padding)["mel"]

    def mean_frame(self) -> Tensor:
        """(n_mels,) float32: of all, or where not all are at hand of a sample."""
        if self.in_memory and self.mel is not None:
            return self.mel.float().mean(1)
        some = torch.linspace(0, len(self) - 1, min(len(self), MEAN_OF)).long()
        return torch.cat([self.padded_mel(one, self.longest(one)[1])[0] for one in some.split(1)], 1).mean(1)

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
) -> Iterator[tuple[LengthGroup, Drawn]]:
    """Endless batches of utterances up to these lengths, for `fetch`. Longer ones are left out.

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
        yield group, {"members": torch.tensor(members)}


def batches_of_like_length(lengths: np.ndarray, size: int, seed: int) -> Iterator[np.ndarray]:
    """Numbers of texts of these lengths (N,), each once, in batches of like lengths, whose order is drawn."""
    ordered = np.argsort(lengths, kind="stable")
    whole = np.split(ordered, range(size, len(ordered), size))
    return (whole[i] for i in np.random.default_rng(seed).permutation(len(whole)))
