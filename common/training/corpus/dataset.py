"""A labelled corpus, as `melforge voice prepare` or a recipe wrote it: labels in memory, audio in files."""

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from melforge.common.errors import InputError
from melforge.common.files import write_bytes, written_whole

LABELS, METADATA = "labels.npz", "metadata.csv"
RATE, HOP = 22_050, 256  # Hz, and samples of a frame, of a prepared corpus
FRONTEND = "english"  # of a corpus that states none
LEAST_SECONDS = 60.0  # of speech that a training takes
READERS = 16  # threads that read sound files
# One channel of 16 bits, and samples right behind the length of theirs.
WAV_HEAD = 44  # bytes
PLAIN_WAV = re.compile(rb"RIFF.{4}WAVEfmt \x10\0\0\0\x01\0\x01\0.{8}\x02\0\x10\0data.{4}", re.DOTALL)


@dataclass
class Labels:
    """One entry an utterance; ids, durations (frames) and pitch (Hz, 0 unvoiced) hold one value a symbol.

    `speaker` int64 `[utterances]` numbers the names in `speakers`; zeros and no names where there is one.
    """

    names: list[str]
    texts: list[str]
    ids: list[np.ndarray]
    durations: list[np.ndarray]
    pitch: list[np.ndarray]
    speakers: list[str] = field(default_factory=list)
    speaker: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    frontend: str = FRONTEND  # whose symbols the ids are

    def __post_init__(self) -> None:
        if not self.speakers:
            self.speaker = np.zeros(len(self.names), np.int64)

    @property
    def frames(self) -> np.ndarray:
        """Mel frames of every utterance, int64 `[utterances]`."""
        return np.array([d.sum() for d in self.durations])

    @property
    def seconds(self) -> float:
        """Of all utterances."""
        return float(self.frames.sum() * HOP / RATE)


def too_short(seconds: float) -> str:
    """Why nothing is trained on so many seconds of speech, as a sentence ends; "" where they are enough."""
    if seconds >= LEAST_SECONDS:
        return ""
    least = f"training needs {LEAST_SECONDS:.0f} s at least, and ten minutes are better"
    return f"{int(seconds)} s of speech: {least}"


def save_labels(folder: Path, labels: Labels) -> None:
    columns = {
        "names": np.array(labels.names),
        "texts": np.array(labels.texts),
        "lengths": np.array(list(map(len, labels.ids))),
        "ids": np.concatenate(labels.ids).astype(np.int16),
        "durations": np.concatenate(labels.durations).astype(np.int16),
        "pitch": np.concatenate(labels.pitch).astype(np.float16),
    }
    if labels.speakers:
        columns |= {"speakers": np.array(labels.speakers), "speaker": labels.speaker.astype(np.int16)}
    if labels.frontend != FRONTEND:
        columns["frontend"] = np.array(labels.frontend)
    save_arrays(folder / LABELS, columns)


def write_metadata(folder: Path, labels: Labels) -> None:
    """The names and texts as LJSpeech's metadata.csv, whose columns have no bars in them."""
    texts = [text.replace("|", " ") for text in labels.texts]
    lines = [f"{name}|{text}|{text}\n" for name, text in zip(labels.names, texts, strict=True)]
    write_bytes(folder / METADATA, "".join(lines).encode())


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes a .npy file; it appears only when it is whole."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a compressed .npz file; it appears only when it is whole."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        cast(Any, np.savez_compressed)(file, **arrays)


def load_labels(folder: Path) -> Labels:
    """FileNotFoundError with the command to run where the corpus has not been prepared."""
    path = folder / LABELS
    if not path.is_file():
        raise FileNotFoundError(f"{path} not found: melforge voice prepare makes it")
    with np.load(path) as data:
        cuts = np.cumsum(data["lengths"])[:-1]
        ids, durations = (np.split(data[name].astype(np.int64), cuts) for name in ("ids", "durations"))
        pitch = np.split(data["pitch"].astype(np.float32), cuts)
        labels = Labels(data["names"].tolist(), data["texts"].tolist(), ids, durations, pitch)
        if "speakers" in data:
            labels.speakers, labels.speaker = data["speakers"].tolist(), data["speaker"].astype(np.int64)
        if "frontend" in data:
            labels.frontend = str(data["frontend"])
        return labels


def read_samples(path: Path, first: int, count: int) -> np.ndarray:
    """So many samples of a sound file from this one on, int16; fewer at its end.

    A plain wav is read as it lies there: libsndfile takes four times as long, which a training waits for.
    """
    with path.open("rb", buffering=0) as file:
        head = file.read(WAV_HEAD)
        if PLAIN_WAV.match(head):
            there = int.from_bytes(head[-4:], "little") // 2
            samples = np.empty(max(0, min(count, there - first)), "<i2")
            file.seek(WAV_HEAD + 2 * first)
            return samples[: file.readinto(samples.data) // 2]
    import soundfile

    return soundfile.read(path, count, first, dtype="int16")[0]


class CorpusAudio:
    """All wavs of a corpus end to end, int16, each cut to its frames, read from their files piece by piece.

    `offsets` int64 `[utterances + 1]` says where each begins.
    """

    def __init__(self, folder: Path, labels: Labels, hop: int):
        self.paths = [folder / "wavs" / f"{name}.wav" for name in labels.names]
        self.offsets = np.concatenate([[0], np.cumsum(labels.frames * hop)])

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def read(self, start: int, end: int) -> np.ndarray:
        """Samples `[end - start]`; those outside the corpus are mirrored, as a mel has them."""
        first, last = max(0, start), min(len(self), end)
        parts, place = [], first
        number = int(np.searchsorted(self.offsets, first, "right")) - 1
        while place < last:
            begin, stop = self.offsets[number], min(last, self.offsets[number + 1])
            path = self.paths[number]
            part = read_samples(path, int(place - begin), int(stop - place))
            if len(part) < stop - place:
                raise InputError(f"{path.name} is shorter than its labels: prepare the corpus again")
            parts.append(part)
            place, number = stop, number + 1
        return np.pad(np.concatenate(parts), (first - start, end - last), mode="reflect")

    def read_all(self) -> np.ndarray:
        """Samples `[all]`."""
        audio = np.empty(len(self), np.int16)

        def read(number: int) -> None:
            start, end = self.offsets[number : number + 2]
            audio[start:end] = self.read(int(start), int(end))

        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(read, range(len(self.paths))))
        return audio
