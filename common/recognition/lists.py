"""Lists of recordings and their texts, as people keep them: tables with or without a heading line, NeMo's and
Jasper's manifests, lines of a name and its text.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from melforge.common.errors import InputError
from melforge.common.files import read_text

# What a heading line or a JSON object calls the file; of several the one that names most files counts.
FILE_HEADINGS = (
    *("file", "file_name", "filename", "file_path", "filepath", "path", "audio", "audio_file"),
    *("audio_filename", "audio_filepath", "audio_path", "audio_paths", "wav", "wav_file"),
    *("wav_filename", "wav_path", "wavs", "mels", "clip", "clip_name", "sound", "name", "id"),
    *("utt_id", "utterance_id", "sentence_id", "recording"),
)
# Of several texts a normalised one counts, else the last one, as in LJSpeech, else a raw one.
TEXT_HEADINGS = (
    *("text", "raw_text", "sentence", "utterance", "transcript", "transcription", "label", "words", "wrd"),
    *("prompt", "line", "spoken_text", "normalised_text", "normalized_text", "text_normalized"),
    *("normalized_transcript", "normalized_transcription"),
)
SPEAKER_HEADINGS = (
    *("speaker", "speaker_name", "speaker_id", "spk", "spk_id", "client_id"),
    *("voice", "voice_talent", "actor", "reader", "narrator"),
)
LOOKED_AT = 200  # lines, to see what divides the columns


@dataclass(frozen=True)
class ListedRecording:
    """A line of a list. `offset` and `duration` in seconds are a piece of the file, where they are given."""

    place: str  # the list and its line
    file: str  # as it is written there
    text: str | None
    speaker: str = ""
    offset: float | None = None
    duration: float = 0.0


def read_list(
    path: Path, is_file: Callable[[str], bool] | None = None, speaker_column: bool = False
) -> list[ListedRecording]:
    """What a list says. An InputError names the line that cannot be read.

    `is_file` tells whether a cell names a recording: by that a column of files is found, and what divides
    columns ("|", tabs, ",", ";" or blanks). Without it the list is LJSpeech's, name|text. Without a heading
    line the last column that looks like texts counts; with `speaker_column` that behind it, or before it,
    has the speakers.
    """
    content = read_text(path)
    if content.lstrip()[:1] in ("{", "["):
        return _read_json(content, path, is_file or (lambda name: False))
    if not content.strip():
        raise InputError(f"{path} is empty: write a line name|text for each recording")
    lines = content.split("\n")
    first = next(number for number, line in enumerate(lines, start=1) if line.strip())
    marks = "|\t,;" if is_file else "|"
    tables = [_Table(path, lines, mark, is_file) for mark in marks if mark in lines[first - 1]]
    if is_file and path.suffix.lower() != ".csv":
        tables.append(_Table(path, lines, " ", is_file))
    table = max((one for one in tables if one.rows), key=_Table.files_named, default=None)
    if table is None or (table.mark == " " and not table.files_named()):
        raise InputError(f"{path}, line {first}: write name|text")
    return table.read(speaker_column)


# Tables


class _Columns(NamedTuple):
    """What stands where in a table."""

    file: int
    text: int
    speaker: int | None
    width: int
    joins: bool  # what has more columns has the mark in its text, which is the last one
    form: str  # how to write a line


class _Table:
    """A list's lines as cells."""

    def __init__(self, path: Path, lines: Sequence[str], mark: str, is_file: Callable[[str], bool] | None):
        self.path, self.mark = path, mark
        self._is_file = is_file or (lambda cell: False)
        self.rows = list(self._divide(lines))  # numbers of lines, and their cells

    def _divide(self, lines: Sequence[str]) -> Iterable[tuple[int, list[str]]]:
        if self.mark == " ":  # name and text, also "1. text"; or Festival's ( name "text" )
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    festival = re.fullmatch(r'\(\s*(\S+)\s+"(.*)"\s*\)', line.strip())
                    name, *text = festival.groups() if festival else line.split(maxsplit=1)
                    yield number, [name if self._is_file(name) else name.rstrip(".:)"), *text]
            return
        quotes = self.mark in ",;" or next(filter(str.strip, lines)).startswith('"')
        quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
        reader = csv.reader((f"{line}\n" for line in lines), delimiter=self.mark, quoting=quoting)
        try:
            for row in reader:
                if any(cell.strip() for cell in row):
                    yield reader.line_num, row
        except csv.Error as error:
            raise InputError(f"{self.path}, line {reader.line_num}: {error}") from None

    def files_named(self) -> int:
        """Of the first lines those with a cell that names a recording."""
        return sum(any(self._is_file(cell.strip()) for cell in row) for _, row in self.rows[:LOOKED_AT])

    def read(self, speaker_column: bool) -> list[ListedRecording]:
        cells = [re.sub(r"[\s-]+", "_", cell.strip().lower()) for cell in self.rows[0][1]]
        names = {*cells} & {*FILE_HEADINGS}, {*cells} & {*TEXT_HEADINGS}
        if all(names) or (any(names) and self.files_named() and not any(map(self._is_file, cells))):
            columns = self._headed(cells, speaker_column)
            del self.rows[0]
        else:
            columns = self._unheaded(speaker_column)
        return [self._line(number, row, columns) for number, row in self.rows]

    def _headed(self, cells: Sequence[str], speaker_column: bool) -> _Columns:
        where = f"{self.path}, line {self.rows[0][0]}"
        known = [i for i, cell in enumerate(cells) if cell in FILE_HEADINGS] or range(len(cells))
        texts = sorted((_rank(cell), i) for i, cell in enumerate(cells) if cell in TEXT_HEADINGS)
        if not texts:
            raise InputError(f"{where} names no column {TEXT_HEADINGS[0]!r} but {', '.join(cells)}")
        speakers = [i for i, cell in enumerate(cells) if cell in SPEAKER_HEADINGS]
        if speaker_column and not speakers:
            raise InputError(f"{where} names no column {SPEAKER_HEADINGS[0]!r}")
        text = texts[-1][1]
        name = max((i for i in known if i != text), key=self._files_in, default=0)
        speaker = speakers[0] if speakers else None
        joins = text == len(cells) - 1
        return _Columns(name, text, speaker, len(cells), joins, self.mark.join(cells))

    def _unheaded(self, speaker_column: bool) -> _Columns:
        form = "name|text|speaker" if speaker_column else "name|text"
        widths = Counter(len(row) for _, row in self.rows)
        width = max(widths, key=lambda width: (widths[width], width))
        if self.mark in ",;":  # texts may have such that nobody has quoted
            width = min(map(_cells_before_a_blank, (row for _, row in self.rows)))
        least = 3 if speaker_column else 2
        if width < least:
            width = least
        name = max(range(width), key=self._files_in)
        others = [column for column in range(width) if column != name]
        if speaker_column:
            text, speaker = others[-2:]
            if any(self._cells(speaker)) and self._is_label(text, speaker):  # Piper's: a|speaker|text
                text, speaker = speaker, text
            return _Columns(name, text, speaker, width, False, form)
        while len(others) > 1 and not any(self._cells(others[-1])):
            others.pop()
        longest = max(others, key=lambda column: sum(map(len, self._cells(column))))
        text = max(column for column in others if not self._is_label(column, longest))
        if text != others[-1]:
            cells = ", ".join(list(dict.fromkeys(self._cells(others[-1])))[:3])
            warnings.warn(
                f"{self.path}: column {text + 1} is taken for the texts, not the last one ({cells}): "
                f"a heading line says what columns are, such as file{self.mark}text{self.mark}speaker",
                stacklevel=2,
            )
        return _Columns(name, text, None, width, (name, text, width) == (0, 1, 2), form)

    def _cells(self, column: int) -> list[str]:
        return [row[column].strip() for _, row in self.rows if column < len(row)]

    def _files_in(self, column: int) -> int:
        return sum(map(self._is_file, self._cells(column)[:LOOKED_AT]))

    def _is_label(self, column: int, other: int) -> bool:
        """Whether a column, beside the other one, has no texts but speakers, numbers or the like."""
        mine, others = self._cells(column), self._cells(other)
        if column == other or not all(map(any, (mine, others))):
            return column != other
        size, longer = (sum(map(len, cells)) / len(cells) for cells in (mine, others))
        repeats = 2 * len(set(mine)) <= len(set(others)) and size < longer
        return repeats or 3 * size < longer or all(re.fullmatch(r"[\d.:\s-]*", cell) for cell in mine)

    def _line(self, number: int, row: list[str], columns: _Columns) -> ListedRecording:
        place, text, speaker = f"{self.path}, line {number}", columns.text, columns.speaker
        if len(row) > columns.width:
            if not columns.joins:
                what = f"it has {len(row)} columns, others {columns.width}"
                raise InputError(f"{place}: {what}: take {self.mark!r} out of its text")
            row = [*row[:text], self.mark.join(row[text:])]
        if len(row) == 2 and columns.width > 2 and speaker is None and columns.file == 0:
            text = 1  # a line without its last text
        if len(row) <= max(columns.file, text, speaker or 0):
            raise InputError(f"{place}: write {columns.form}")
        row = [cell.strip() for cell in row]
        if speaker is not None and not row[speaker]:
            raise InputError(f"{place}: its speaker is empty")
        return ListedRecording(place, row[columns.file], row[text], "" if speaker is None else row[speaker])


def _rank(heading: str) -> int:
    """Of a column of texts, beside others."""
    return ("normal" in heading) - ("raw" in heading)


def _cells_before_a_blank(row: Sequence[str]) -> int:
    """The cells before the first one that goes on with a text, unless a blank stands behind all marks."""
    goes_on = (n for n, cell in enumerate(row) if n > 1 and cell[:1] == " " != row[1][:1])
    return next(goes_on, len(row))


# JSON


def _read_json(content: str, path: Path, is_file: Callable[[str], bool]) -> list[ListedRecording]:
    """A JSON object a line, a list of objects, or one object of texts by their files."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, list):
        entries = [(f"{path}, entry {n}", one) for n, one in enumerate(whole, 1)]
    elif isinstance(whole, dict) and "text" in whole and is_file(path.stem):  # Whisper's, of that file
        entries = [(str(path), {FILE_HEADINGS[-1]: path.stem, **whole})]
    elif isinstance(whole, dict) and not {*whole} & {"files", *FILE_HEADINGS, *TEXT_HEADINGS}:
        named = {file: one if isinstance(one, dict) else {"text": one} for file, one in whole.items()}
        entries = [(f"{path}, {file}", {**one, FILE_HEADINGS[-1]: file}) for file, one in named.items()]
    else:
        lines = ((f"{path}, line {n}", line) for n, line in enumerate(content.split("\n"), 1) if line.strip())
        entries = [(place, _json(line, place)) for place, line in lines]
    if not entries:
        raise InputError(f"{path} is empty: write an entry for each recording")
    return [_entry(entry, place, is_file) for place, entry in entries]


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON ({error})") from None


def _entry(entry: Any, place: str, is_file: Callable[[str], bool]) -> ListedRecording:
    """An entry in NeMo's form, or in that of NVIDIA's Jasper, whose `files` are copies at several speeds."""
    entry = entry if isinstance(entry, dict) else {}
    named = [entry[key] for key in ("audio_filepath", *FILE_HEADINGS) if key in entry]
    name = next((one for one in named if isinstance(one, str) and is_file(one)), named[0] if named else None)
    texts = [key for key in (*TEXT_HEADINGS, "text") if isinstance(entry.get(key), str)]
    text = entry[max(reversed(texts), key=_rank)] if texts else entry.get("text")
    speaker = next((entry[key] for key in SPEAKER_HEADINGS if entry.get(key) is not None), "")
    files = entry.get("files")
    if name is None and isinstance(files, list) and all(isinstance(file, dict) for file in files):
        unchanged = [file for file in files if file.get("speed", 1) == 1]
        name = (unchanged or [{}])[0].get("fname")
    if not isinstance(name, str) or not isinstance(text, str | None):
        need = "audio_filepath, or files with an fname at speed 1, and text or transcript as a string if any"
        raise InputError(f"{place}: an entry needs {need}")
    piece = {key: entry[key] for key in ("offset", "duration") if entry.get(key) is not None}
    for key, value in piece.items():
        if not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max or value is True:
            raise InputError(f"{place}: {key} must be a number of seconds from 0 on, not {value!r:.40}")
    return ListedRecording(place, name, text, str(speaker), **piece)
