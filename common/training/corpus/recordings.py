"""A corpus for recognisers: recordings with their texts, as int16 samples in a row at one rate.

A folder holds recordings.npz and audio.npy, as `save_recordings` writes them, or metadata.csv ("name|text",
or LJSpeech's three columns) and wavs/NAME.wav; or further such folders. Those in a folder "val" are held out.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from melforge.common.audio.pcm import to_pcm16
from melforge.common.audio.sound_files import read_audio, resample
from melforge.common.errors import InputError
from melforge.common.recognition.lists import ListedRecording, read_list
from melforge.common.training.corpus.dataset import METADATA, READERS, save_array, save_arrays

INDEX, AUDIO = "recordings.npz", "audio.npy"
HELD_OUT = "val"


@dataclass(frozen=True, eq=False)
class Recordings:
    """`audio` int16 [samples] of all; recording i is audio[offsets[i] : offsets[i + 1]], with texts[i]."""

    audio: np.ndarray
    offsets: np.ndarray  # int64 [recordings + 1]
    texts: list[str]
    held_out: np.ndarray  # bool [recordings]
    folder: Path

    @property
    def lengths(self) -> np.ndarray:
        """Samples of each, int64 [recordings]."""
        return np.diff(self.offsets)


def save_recordings(
    folder: Path, audio: np.ndarray, offsets: np.ndarray, texts: Sequence[str], rate: int
) -> None:
    """Writes int16 samples in a row [samples], where recordings begin and end [recordings + 1], and texts."""
    if len(offsets) != len(texts) + 1 or offsets[-1] != len(audio):
        raise ValueError(
            f"{len(texts)} texts do not fit {len(offsets) - 1} recordings of {len(audio)} samples"
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_array(folder / AUDIO, np.asarray(audio, np.int16))
    index = {"offsets": np.asarray(offsets), "texts": np.array(list(texts)), "rate": np.array(rate)}
    save_arrays(folder / INDEX, index)


def load_recordings(folder: Path, rate: int) -> Recordings:
    """All recordings in and below a folder, at this rate in Hz."""
    if not folder.is_dir():
        raise FileNotFoundError(f"corpus {folder} not found")
    found = [(path.parent, _load_packed) for path in sorted(folder.rglob(INDEX))]
    found += [(path.parent, _load_wavs) for path in sorted(folder.rglob(METADATA))]
    if not found:
        raise InputError(f"{folder} holds no corpus: neither {INDEX} nor {METADATA} is in it or below it")
    load: Callable[[Path, int], Iterator[tuple[np.ndarray, str]]]
    parts: list[np.ndarray] = []
    texts: list[str] = []
    held_out: list[bool] = []
    for part, load in found:
        for audio, text in load(part, rate):
            parts.append(audio)
            texts.append(text)
            held_out.append(HELD_OUT in part.relative_to(folder.parent).parts)
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    return Recordings(np.concatenate(parts), offsets, texts, np.array(held_out), folder)


def _load_packed(folder: Path, rate: int) -> Iterator[tuple[np.ndarray, str]]:
    with np.load(folder / INDEX) as index:
        offsets, texts, given = index["offsets"], index["texts"].tolist(), int(index["rate"])
    if given != rate:
        raise InputError(f"{folder / INDEX} is of {given} Hz, not {rate}: pack its recordings again")
    audio = np.load(folder / AUDIO, mmap_mode="r")
    for start, end, text in zip(offsets[:-1], offsets[1:], texts, strict=True):
        yield np.asarray(audio[start:end]), text


def _load_wavs(folder: Path, rate: int) -> Iterator[tuple[np.ndarray, str]]:
    def read(row: ListedRecording) -> tuple[np.ndarray, str]:
        audio, given = read_audio(folder / "wavs" / f"{row.file}.wav")
        return to_pcm16(resample(audio, given, rate)), row.text or ""

    with ThreadPoolExecutor(READERS) as pool:
        yield from pool.map(read, read_list(folder / METADATA))
