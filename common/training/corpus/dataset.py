"""A labelled corpus in memory: what `scripts/prepare_corpus.py` wrote, as arrays ready for a GPU."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.errors import InputError

LABELS = "labels.npz"


@dataclass
class Labels:
    """One entry an utterance; ids, durations (frames) and pitch (Hz, 0 unvoiced) hold one value a symbol."""

    names: list[str]
    texts: list[str]
    ids: list[np.ndarray]
    durations: list[np.ndarray]
    pitch: list[np.ndarray]

    @property
    def frames(self) -> np.ndarray:
        """Mel frames of every utterance, int64 `[utterances]`."""
        return np.array([d.sum() for d in self.durations])


def save_labels(folder: Path, labels: Labels) -> None:
    temporary = folder / "labels.tmp.npz"
    np.savez_compressed(
        temporary,
        names=np.array(labels.names),
        texts=np.array(labels.texts),
        lengths=np.array(list(map(len, labels.ids))),
        ids=np.concatenate(labels.ids).astype(np.int16),
        durations=np.concatenate(labels.durations).astype(np.int16),
        pitch=np.concatenate(labels.pitch).astype(np.float16),
    )
    temporary.replace(folder / LABELS)


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes a .npy file; it appears only when it is whole."""
    temporary = path.with_suffix(".tmp.npy")
    np.save(temporary, array)
    temporary.replace(path)


def load_labels(folder: Path) -> Labels:
    """FileNotFoundError with the command to run where the corpus has not been prepared."""
    path = folder / LABELS
    if not path.is_file():
        raise FileNotFoundError(f"{path} not found: run scripts/prepare_corpus.py --corpus {folder} first")
    with np.load(path) as data:
        cuts = np.cumsum(data["lengths"])[:-1]
        ids, durations = (np.split(data[name].astype(np.int64), cuts) for name in ("ids", "durations"))
        pitch = np.split(data["pitch"].astype(np.float32), cuts)
        return Labels(data["names"].tolist(), data["texts"].tolist(), ids, durations, pitch)


def load_audio(folder: Path, labels: Labels, hop: int, workers: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """All wavs end to end, int16 `[samples]`, cut to their frames; where each begins, int64 `[n + 1]`."""
    import soundfile

    samples = labels.frames * hop
    offsets = np.concatenate([[0], np.cumsum(samples)])
    audio = np.zeros(offsets[-1], dtype=np.int16)

    def read(i: int) -> None:
        data, _ = soundfile.read(folder / "wavs" / f"{labels.names[i]}.wav", dtype="int16")
        if len(data) < samples[i]:
            raise InputError(f"{labels.names[i]}.wav is shorter than its labels: prepare the corpus again")
        audio[offsets[i] : offsets[i + 1]] = data[: samples[i]]

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(read, range(len(labels.names))))
    return audio, offsets
