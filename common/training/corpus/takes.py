"""A folder of recordings with their texts, as people keep them: sound file, text and speaker of each line.

Texts stand in metadata.csv (LJSpeech's, or with a heading line), or in NAME.txt beside NAME.wav.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

from melforge.common.errors import InputError
from melforge.common.files import read_text
from melforge.common.recognition.recordings import SUFFIXES
from melforge.common.training.corpus.dataset import METADATA

LONGEST_NAME = 100
SPEAKER_FROM = ("folder", "column", "none")
# What a heading line may call its columns; of several texts the last one counts, as in LJSpeech.
FILE_HEADINGS = ("file", "file_name", "filename", "audio", "audio_file", "path", "name", "id", "wav")
TEXT_HEADINGS = ("text", "sentence", "transcript", "transcription", "normalised_text", "normalized_text")
SPEAKER_HEADINGS = ("speaker", "speaker_name", "speaker_id")


@dataclass(frozen=True)
class Take:
    """A line of a corpus; `sound` or `text` is None where there is none, and `source` says where to look."""

    name: str  # in the corpus: unique, without a suffix
    source: str  # the file, seen from the folder
    sound: Path | None
    text: str | None
    speaker: str = ""


class MetadataRow(NamedTuple):
    """A line of metadata.csv."""

    name: str
    text: str
    speaker: str


def require_takes(folder: Path) -> None:
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "not found"
        raise FileNotFoundError(f"{folder} {what}: give a folder of recordings")


def find_takes(folder: Path, speaker_from: str | None = None) -> list[Take]:
    """All recordings and texts in and below a folder; an InputError where there is nothing to prepare.

    Speakers are those of a column of metadata.csv, or of the folder's subfolders. Where `speaker_from` is
    None they are those of a column that a heading line names, else of subfolders if there are several.
    """
    require_takes(folder)
    files = [path for path in sorted(folder.rglob("*")) if _is_shown(path, folder) and path.is_file()]
    sounds = [path for path in files if path.suffix.lower() in SUFFIXES]
    tables = [path for path in files if path.name == METADATA]
    if not sounds:
        kinds = " ".join(SUFFIXES)
        raise InputError(f"{folder} holds no sound files ({kinds}): give a folder of recordings")
    found = [take for table in tables for take in _from_table(folder, table, sounds, speaker_from)]
    taken = {take.sound for take in found}
    texts = {path.with_suffix(""): path for path in files if path.suffix.lower() == ".txt"}
    for sound in sounds:
        if sound not in taken:
            text = texts.get(sound.with_suffix(""))
            found.append(_take(folder, sound, sound, None if text is None else read_text(text)))
    if not any(take.text is not None for take in found):
        raise InputError(f"{folder} has no texts: write {METADATA} (name|text), or NAME.txt beside NAME.wav")
    if any(take.text is not None and take.sound not in taken for take in found):
        stems = {sound.with_suffix("") for sound in sounds}
        found += [_take(folder, path, None, "") for stem, path in texts.items() if stem not in stems]
    if speaker_from == "none":
        found = [replace(take, speaker="") for take in found]
    elif speaker_from == "folder" or (speaker_from is None and not any(take.speaker for take in found)):
        found = _by_subfolder(folder, found, asked=speaker_from == "folder")
    elif speaker_from == "column" and not tables:
        raise InputError(f"{folder} has no {METADATA}, so no column of speakers: use --speaker-from folder")
    return _with_unique_names(found)


def read_rows(path: Path, speaker_column: bool = False, marks: str = "|\t,") -> list[MetadataRow]:
    """A metadata.csv: "name|text", further columns between, the speaker last if `speaker_column`.

    The first of `marks` in the first line divides columns. They are also found by names in a heading line.
    """
    lines = [line.rstrip("\r") for line in read_text(path).split("\n")]
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise InputError(f"{path} is empty: write a line name|text for each recording")
    mark = next((mark for mark in marks if mark in lines[first]), None)
    if mark is None:
        raise InputError(f"{path}, line {first + 1}: write name|text")
    reader = csv.reader(lines, delimiter=mark, quoting=csv.QUOTE_MINIMAL if mark == "," else csv.QUOTE_NONE)
    try:
        cells = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from None
    heading = [cell.strip().lower() for cell in cells[0][1]]
    name, text, speaker = 0, -1, None
    if set(heading) & set(FILE_HEADINGS) and set(heading) & set(TEXT_HEADINGS):
        name = next(i for i, cell in enumerate(heading) if cell in FILE_HEADINGS)
        text = max(i for i, cell in enumerate(heading) if cell in TEXT_HEADINGS)
        speaker = next((i for i, cell in enumerate(heading) if cell in SPEAKER_HEADINGS), None)
        del cells[0]
        if speaker_column and speaker is None:
            raise InputError(f"{path}, line 1 names no column {SPEAKER_HEADINGS[0]!r}")
    elif speaker_column:
        text, speaker = -2, -1
    least = len(heading) if text >= 0 else 3 if speaker_column else 2
    rows = []
    for number, row in cells:
        if len(row) < least:
            form = mark.join(heading) if text >= 0 else "name|text|speaker" if speaker_column else "name|text"
            raise InputError(f"{path}, line {number}: write {form}")
        if speaker is not None and not row[speaker].strip():
            raise InputError(f"{path}, line {number}: its speaker is empty")
        rows.append(
            MetadataRow(row[name].strip(), row[text].strip(), "" if speaker is None else row[speaker].strip())
        )
    return rows


def _from_table(
    folder: Path, table: Path, sounds: Sequence[Path], speaker_from: str | None
) -> Iterator[Take]:
    """The lines of a metadata.csv; their names are seen from its folder, with or without wavs/ and suffix."""
    below = [sound for sound in sounds if sound.is_relative_to(table.parent)]
    times = Counter(name for sound in below for name in {sound.name, sound.stem})
    by_name: dict[str, Path] = {}
    for sound in below:
        seen = sound.relative_to(table.parent)
        names = [seen.as_posix(), seen.with_suffix("").as_posix()]
        if seen.parent.as_posix() in (".", "wavs"):
            names += [sound.name, sound.stem]
        names += [name for name in (sound.name, sound.stem) if times[name] == 1]
        for name in names:
            by_name.setdefault(name, sound)
    for row in read_rows(table, speaker_from == "column"):
        sound = by_name.get(row.name.replace("\\", "/"))
        place = sound or table.parent / row.name
        yield replace(_take(folder, place, sound, row.text), speaker=row.speaker)


def _take(folder: Path, place: Path, sound: Path | None, text: str | None) -> Take:
    seen = place.relative_to(folder) if place.is_relative_to(folder) else Path(place.name)
    is_sound = sound is not None or seen.suffix.lower() in (*SUFFIXES, ".txt")
    parts = (seen.with_suffix("") if is_sound else seen).parts
    name = "-".join(part for part in parts if part != "wavs")
    name = re.sub(r"[^\w.+-]+", "_", name)[:LONGEST_NAME]
    return Take(name, seen.as_posix(), sound, text and " ".join(text.split()))


def _by_subfolder(folder: Path, takes: Sequence[Take], asked: bool) -> list[Take]:
    """Each take's speaker is the subfolder that it lies in, if all do and there are several such."""
    tops = [next((p for p in Path(t.source).parts[:-1] if p != "wavs"), "") for t in takes]
    found = {top for top, take in zip(tops, takes, strict=True) if take.sound}
    if len(found) > 1 and (asked or "" not in found):
        return [replace(take, speaker=top or "others") for take, top in zip(takes, tops, strict=True)]
    if asked:
        raise InputError(f"{folder} has no subfolders of several speakers: use --speaker-from none")
    return list(takes)


def _with_unique_names(takes: Sequence[Take]) -> list[Take]:
    """Takes of the same name get numbers: "a", "a-2"; not those that others have already."""
    used = {take.name for take in takes}
    seen: set[str] = set()
    out = []
    for take in takes:
        name = take.name
        if name in seen:
            name = next(name for n in count(2) if (name := f"{take.name}-{n}") not in used)
        seen.add(name)
        used.add(name)
        out.append(replace(take, name=name))
    return out


def _is_shown(path: Path, folder: Path) -> bool:
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)
