"""Recordings to transcribe: sound files, folders and NVIDIA's manifests, with their references."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from melforge.common.errors import InputError
from melforge.common.files import read_text

if TYPE_CHECKING:
    import numpy as np

    from melforge.common.recognition.recogniser import Recogniser
    from melforge.common.recognition.transcript import Transcript

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".w64")
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


def find_recordings(inputs: Sequence[Path], manifest: Path | None) -> list[Recording]:
    """The sound files of paths, folders and a manifest. An InputError if there are none, a FileNotFoundError
    for a given one that is missing.
    """
    found = [Recording(path, reference_beside(path)) for given in inputs for path in sound_files(given)]
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
        raise InputError(f"{path} holds no sound files ({', '.join(SUFFIXES)})")
    return files


def reference_beside(path: Path) -> str | None:
    """The text of NAME.txt beside a sound file NAME.wav, where there is one."""
    beside = path.with_suffix(".txt")
    return read_text(beside) if beside.is_file() and beside != path else None


def read_manifest(path: Path) -> list[Recording]:
    """NVIDIA's manifests: a JSON object a line, or a list of objects. What is wrong names file and line."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a manifest's file, or the folder without --manifest")
    if not path.exists():
        raise FileNotFoundError(f"manifest {path} not found")
    text = read_text(path)
    if text.lstrip().startswith("["):
        entries = [(f"{path}, entry {n}", one) for n, one in enumerate(_json(text, str(path)), 1)]
    else:
        places = ((f"{path}, line {n}", line) for n, line in enumerate(text.splitlines(), 1))
        entries = [(where, _json(line, where)) for where, line in places if line.strip()]
    if not entries:
        raise InputError(f"manifest {path} is empty: write an entry for each recording")
    return [_recording(entry, path.parent, where) for where, entry in entries]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error})") from None


def _recording(entry: Any, folder: Path, where: str) -> Recording:
    """An entry in NeMo's form, or in that of NVIDIA's Jasper, whose `files` are copies at several speeds."""
    entry = entry if isinstance(entry, dict) else {}
    name, reference = entry.get("audio_filepath"), entry.get("text", entry.get("transcript"))
    files = entry.get("files")
    if name is None and isinstance(files, list) and all(isinstance(file, dict) for file in files):
        unchanged = [file for file in files if file.get("speed", 1) == 1]
        name = (unchanged or [{}])[0].get("fname")
    if not isinstance(name, str) or not isinstance(reference, str | None):
        need = "audio_filepath, or files with an fname at speed 1, and text or transcript as a string if any"
        raise InputError(f"{where}: an entry needs {need}")
    piece = {key: entry[key] for key in ("offset", "duration") if entry.get(key) is not None}
    for key, value in piece.items():
        if not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max or value is True:
            raise InputError(f"{where}: {key} must be a number of seconds from 0 on, not {value!r:.40}")
    return Recording(folder / name, reference, **piece)


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
