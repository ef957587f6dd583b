"""Texts of a table: .txt, .csv, .tsv, .jsonl or .parquet, read one after the other."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from melforge.common.audio.sound_files import FORMATS
from melforge.common.errors import InputError, require_package
from melforge.common.files import folded, is_text

TEXT_COLUMN = "text"
ID_COLUMNS = ("id", "name", "output", "file")  # the first one that a table has
LONGEST_CELL = 1 << 24  # characters; the csv module's own limit is 131,072
ROWS_AT_ONCE = 4096  # of parquet
LONGEST_TEXT = 1_000_000  # characters, some 15 hours
LONGEST_NAME = 240  # bytes of an id in UTF-8: file systems take 255, with the suffix
MOST_TOLD = 20  # bad rows in a message


@dataclass(frozen=True)
class TableText:
    """A text to speak and its id, which names its sound file."""

    id: str
    text: str
    bad: str = ""  # why the row cannot be spoken: it has no id or text that could be


@dataclass(frozen=True)
class Table:
    """A file of texts and the names of its columns.

    Without an id column the ids are the lines' numbers from 1, of a .csv or .parquet those of the rows.
    """

    path: Path
    text_column: str = TEXT_COLUMN
    id_column: str | None = None  # None: the first of ID_COLUMNS that there is, else none
    skip_bad: bool = False  # bad rows are among the texts, and are not spoken; else `scan` refuses them

    def __post_init__(self) -> None:
        if self.path.suffix.lower() not in READERS:
            known = ", ".join(READERS)
            raise InputError(f"{self.path}: the suffix does not name a table of texts; use one of {known}")

    def __iter__(self) -> Iterator[TableText]:
        """An InputError where nothing behind a line can be read."""
        seen: set[str] = set()
        for number, row in enumerate(READERS[self.path.suffix.lower()](self), start=1):
            try:
                text = row()
                if (key := folded(text.id)) in seen:
                    raise InputError(f"{self.path} row {number}: the id {text.id!r} stands there twice")
                if (length := len(text.text)) > LONGEST_TEXT:
                    has = f"{self.path}: the text {text.id!r} has {length:,} characters"
                    raise InputError(f"{has}, and {LONGEST_TEXT:,} is the most: cut it into several")
                seen.add(key)
                yield text
            except InputError as error:
                yield TableText(f"row {number}", "", str(error))

    def scan(self) -> int:
        """Reads all of it: the number of texts. An InputError names bad rows, unless they are skipped."""
        total, bad, told = 0, 0, list[str]()
        for text in self:
            total += 1
            bad += bool(text.bad)
            if text.bad and len(told) < MOST_TOLD:
                told.append(text.bad)
        if bad and not self.skip_bad:
            more = f"; and {bad - len(told)} more" if bad > len(told) else ""
            way = "" if bad == 1 else f" ({bad} rows of {total} are bad: mend them, or give --skip-bad)"
            raise InputError(f"{'; '.join(told)}{more}{way}")
        if total == bad:
            raise InputError(f"{self.path} holds no text to speak")
        return total

    def columns(self, names: Iterable[str], place: str) -> tuple[str, str | None]:
        """The text's column and the id's of those that there are; an InputError where one is missing."""
        names = [name for name in names if name]
        for wanted, option in ((self.text_column, "--text-column"), (self.id_column, "--id-column")):
            if wanted is not None and wanted not in names:
                has = ", ".join(names) or "none"
                raise InputError(f"{place} has no column {wanted!r} (it has: {has}): give {option} NAME")
        return self.text_column, self.id_column or next((name for name in ID_COLUMNS if name in names), None)


def file_name(cell: str, place: str) -> str:
    """A cell as the name of a file without its suffix; an InputError where it can't be one."""
    name = cell.strip()
    stem, _, suffix = name.rpartition(".")
    name = stem if suffix.lower() in FORMATS else name
    if not name or name.startswith(".") or any(char in "/\\:\0" or ord(char) < 32 for char in name):
        raise InputError(f"{place}: {cell!r} cannot be the name of a file")
    require_whole(name, place)
    if (size := len(name.encode())) > LONGEST_NAME:
        raise InputError(
            f"{place}: {name[:20]!r}... cannot be the name of a file: it has {size} bytes, and "
            f"{LONGEST_NAME} is the most"
        )
    return name


def require_whole(text: str, place: str) -> None:
    """An InputError where a text holds half of a character, as JSON can write it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise InputError(f"{place}: {half} is half of a character, whose other half is missing") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers from 1, without their ends."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                where = f"{path} line {number} is not UTF-8 (byte 0x{raw[error.start]:02x})"
                raise InputError(f"{where}: save it as plain text in UTF-8") from None
            yield number, line.rstrip("\r\n")


Row = Callable[[], TableText]  # an InputError where it is bad


def _read_lines(table: Table) -> Iterator[Row]:
    lines = _lines(table.path)
    return (partial(TableText, str(number), line.strip()) for number, line in lines if is_text(line))


def _read_csv(table: Table) -> Iterator[Row]:
    import csv

    csv.field_size_limit(LONGEST_CELL)
    how: dict[str, Any] = {"strict": True}
    advice = "a text with commas stands in quotes"
    if table.path.suffix.lower() == ".tsv":
        how = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
        advice = "a text has no tabs"
    reader = csv.reader((f"{line}\n" for _, line in _lines(table.path)), **how)
    try:
        heading = [cell.strip() for cell in next(reader, [])]
        text, own = table.columns(heading, f"{table.path}: its first line")
        text_at, id_at = heading.index(text), heading.index(own) if own else -1
        for number, row in enumerate(filter(None, reader), start=1):
            place = f"{table.path} line {reader.line_num}"
            yield partial(_csv_row, row, text_at, id_at, number, place, len(heading), advice)
    except csv.Error as error:
        raise InputError(f"{table.path} line {reader.line_num}: {error}") from None


def _csv_row(
    row: list[str], text_at: int, id_at: int, number: int, place: str, columns: int, advice: str
) -> TableText:
    """`advice` is for a row with more columns than there are names."""
    if max(text_at, id_at) >= len(row) or any(cell.strip() for cell in row[columns:]):
        more = f": {advice}" if len(row) > columns else ""
        raise InputError(f"{place} has {len(row)} columns, and the first line {columns}{more}")
    return TableText(str(number) if id_at < 0 else file_name(row[id_at], place), row[text_at].strip())


def _read_json_lines(table: Table) -> Iterator[Row]:
    for number, line in _lines(table.path):
        if line.strip():
            yield partial(_json_row, table, line, number, f"{table.path} line {number}")


def _json_row(table: Table, line: str, number: int, place: str) -> TableText:
    import json

    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place} is no JSON: {error}") from None
    if not isinstance(row, dict):
        raise InputError(f"{place} is no JSON object, as {{{json.dumps(table.text_column)}: ...}} is")
    return _row(table, row, number, place)


def _read_parquet(table: Table) -> Iterator[Row]:
    parquet, pyarrow = require_parquet()
    try:
        file = parquet.ParquetFile(table.path)
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{table.path} cannot be read as parquet: {error}") from None
    with file:
        text, own = table.columns(file.schema_arrow.names, str(table.path))
        wanted = [text, own] if own else [text]
        numbers = count(1)
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=wanted):
            for row in batch.to_pylist():
                number = next(numbers)
                yield partial(_row, table, row, number, f"{table.path} row {number}")


def _row(table: Table, row: dict[str, Any], number: int, place: str) -> TableText:
    """A row by the names of its columns. A text that is null is empty: it will be listed as not spoken."""
    text, own = table.columns(row, place)
    value = "" if row[text] is None else row[text]
    if not isinstance(value, str):
        raise InputError(f"{place}: {text} must be text, not {value!r}")
    require_whole(value, place)
    name = row[own] if own else number
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise InputError(f"{place}: {own} must be text or a whole number, not {name!r}")
    return TableText(file_name(str(name), place), value.strip())


def require_parquet() -> tuple[Any, Any]:
    """The modules pyarrow.parquet and pyarrow; an InputError says how to get them."""
    pyarrow = require_package("pyarrow", "parquet")
    return importlib.import_module("pyarrow.parquet"), pyarrow


READERS: dict[str, Callable[[Table], Iterator[Row]]] = {
    ".txt": _read_lines,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}
