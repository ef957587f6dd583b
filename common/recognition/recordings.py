"""Recordings to transcribe: sound files, folders and lists of them, with their references."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from melforge.common.errors import InputError
from melforge.common.files import is_file, read_text
from melforge.common.recognition.lists import read_list

if TYPE_CHECKING:
    import numpy as np

    from melforge.common.recognition.recogniser import Recogniser
    from melforge.common.recognition.transcript import Transcript

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".w64")
LISTS = (".json", ".jsonl", ".csv", ".tsv", ".list", ".txt")
SECONDS_AT_ONCE = 300.0  # of audio that is held
Unreadable = InputError | OSError


@dataclass(frozen=True)
class Recording:
    """A sound file or a piece of one, and what is said in it where that is known."""

    path: Path
    reference: str | None
    offset: float | None = None  # seconds, of a piece
    duration: float = 0.0  # seconds, at most; 0: to the file's end, as in NeMo

    @property
    def name(self) -> str:
        return str(self.path) if self.offset is None else f"{self.path} from {self.offset:g} s"

    def about(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"file": str(self.path)} | ({} if self.offset is None else {"offset": self.offset})

    def read(self) -> tuple[np.ndarray, int]:
        """Its samples and their rate."""
        from melforge.common.audio.sound_files import read_audio

        return read_audio(self.path, self.offset or 0.0, self.duration or math.inf)


def find_recordings(inputs: Sequence[Path], manifest: Path | None = None) -> list[Recording]:
    """The recordings of sound files, folders and lists (by their suffixes, or `manifest`). An InputError if
    there are none, a FileNotFoundError for a given one that is missing.
    """
    found: list[Recording] = []
    for given in inputs:
        if given.suffix.lower() in LISTS and given.is_file():
            found += read_manifest(given)
        else:
            found += (Recording(path, reference_beside(path)) for path in sound_files(given))
    if manifest is not None:
        found += read_manifest(manifest)
    if not found:
        raise InputError("nothing to transcribe: give sound files, a folder or --manifest FILE")
    folders = {given for given in inputs if given.is_dir()}
    for recording in found:
        if not recording.path.is_file() and folders.isdisjoint(recording.path.parents):
            what = "sound file" if recording.path.suffix else "sound file or folder"
            raise FileNotFoundError(f"{what} {recording.path} not found")
    return found


def sound_files(path: Path) -> list[Path]:
    """The file itself, or the sound files of a folder at any depth, sorted by name."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and not file.is_dir())
    if not files:
        next(path.iterdir(), None)  # where the folder may not be read, rglob finds nothing
        raise InputError(f"{path} holds no sound files ({', '.join(SUFFIXES)})")
    return files


def reference_beside(path: Path) -> str | None:
    """The text of NAME.txt beside a sound file NAME.wav, where there is one."""
    beside = path.with_suffix(".txt")
    return read_text(beside) if beside.is_file() and beside != path else None


def read_manifest(path: Path) -> list[Recording]:
    """The recordings of a list; their files are seen from its folder, with or without wavs/ and a suffix.

    What is wrong names file and line.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a manifest's file, or the folder without --manifest")
    if not path.exists():
        raise FileNotFoundError(f"manifest {path} not found")

    def found(name: str) -> Path:
        names = (name, name.replace("\\", "/"))
        folders = (path.parent, path.parent / "wavs")
        ways = (way / f"{one}{end}" for end in ("", *SUFFIXES) for one in names for way in folders)
        return next((way for way in ways if is_file(str(way))), path.parent / names[1])

    listed = read_list(path, lambda name: is_file(str(found(name))))
    return [Recording(found(one.file), one.text, one.offset, one.duration) for one in listed]


def transcribe_files(
    recogniser: Recogniser, recordings: Sequence[Recording], batch: int
) -> Iterator[tuple[Recording, Transcript | Unreadable]]:
    """Each recording with its transcript, in order; SECONDS_AT_ONCE of audio are held at a time.

    A recording that cannot be read has the error in place of a transcript; the others go on.
    """
    from melforge.common.recognition.long_recordings import transcribe

    group: list[tuple[Recording, tuple[np.ndarray, int] | Unreadable]] = []
    seconds = 0.0

    def finished() -> Iterator[tuple[Recording, Transcript | Unreadable]]:
        made = iter(transcribe(recogniser, [audio for _, audio in group if isinstance(audio, tuple)], batch))
        for recording, audio in group:
            yield recording, next(made) if isinstance(audio, tuple) else audio

    for recording in recordings:
        try:
            samples, rate = recording.read()
        except (InputError, OSError) as error:
            group.append((recording, error))
            continue
        group.append((recording, (samples, rate)))
        seconds += len(samples) / rate
        if seconds >= SECONDS_AT_ONCE:
            yield from finished()
            group, seconds = [], 0.0
    if group:
        yield from finished()
