"""Which recordings are transcribed: sound files, folders, NVIDIA's manifests, and what is said in them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import InputError
from common.files import read_text

if TYPE_CHECKING:
    import numpy as np

    from common.recognition.recogniser import Recogniser
    from common.recognition.transcript import Transcript

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au", ".w64")
SECONDS_AT_ONCE = 300.0  # of audio that is held


@dataclass(frozen=True)
class Recording:
    """A sound file, and what is said in it where that is known."""

    path: Path
    reference: str | None


def find_recordings(inputs: Sequence[Path], manifest: Path | None) -> list[Recording]:
    """The sound files of paths, folders and a manifest. An InputError where there are none, and a
    FileNotFoundError names one that is missing.
    """
    found = [Recording(path, reference_beside(path)) for given in inputs for path in sound_files(given)]
    if manifest is not None:
        found += read_manifest(manifest)
    if not found:
        raise InputError("nothing to transcribe: give sound files, a folder or --manifest FILE")
    for recording in found:
        if not recording.path.is_file():
            raise FileNotFoundError(f"sound file {recording.path} not found")
    return found


def sound_files(path: Path) -> list[Path]:
    """Of a folder those in it at any depth, in the order of their names."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"{path} holds no sound files ({', '.join(SUFFIXES)})")
    return files


def reference_beside(path: Path) -> str | None:
    """The text of NAME.txt beside a sound file NAME.wav, where there is one."""
    beside = path.with_suffix(".txt")
    return read_text(beside) if beside.is_file() and beside != path else None


def read_manifest(path: Path) -> list[Recording]:
    """NVIDIA's manifests: a JSON object a line, or a list of objects. What is wrong names file and line."""
    text = read_text(path)
    whole = text.lstrip().startswith("[")
    found = []
    lines = [(1, text)] if whole else [(n, one) for n, one in enumerate(text.splitlines(), 1) if one.strip()]
    for number, line in lines:
        where = f"{path}, line {number}"
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error})") from None
        for entry in content if isinstance(content, list) else [content]:
            name = entry.get("audio_filepath") if isinstance(entry, dict) else None
            reference = entry.get("text") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not isinstance(reference, str | None):
                raise InputError(f"{where}: an entry needs audio_filepath, and text as a string if any")
            found.append(Recording(path.parent / name, reference))
    return found


def transcribe_files(
    recogniser: Recogniser, recordings: Sequence[Recording], batch: int
) -> Iterator[tuple[Recording, Transcript]]:
    """Each recording with its transcript, in order, so many seconds of audio at a time."""
    from common.audio.sound_files import read_audio
    from common.recognition.long_recordings import transcribe

    group: list[tuple[Recording, tuple[np.ndarray, int]]] = []
    seconds = 0.0

    def finished() -> Iterator[tuple[Recording, Transcript]]:
        made = transcribe(recogniser, [audio for _, audio in group], batch)
        yield from zip([recording for recording, _ in group], made, strict=True)

    for recording in recordings:
        samples, rate = read_audio(recording.path)
        group.append((recording, (samples, rate)))
        seconds += len(samples) / rate
        if seconds >= SECONDS_AT_ONCE:
            yield from finished()
            group, seconds = [], 0.0
    if group:
        yield from finished()
