"""A run: its folder, which shards are left, progress, and the lists of what was spoken and what was not.

DIR/run.json            the table and the settings, which a further run must have too
DIR/000000/...          a finished shard: sound files or audio.parquet, manifest.csv, not-spoken.csv
DIR/manifest.csv        of all shards: id, file, seconds, warnings (manifest.parquet beside parquet)
DIR/not-spoken.csv      id and reason, where there are any
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from melforge.common.bulk.shards import (
    NOT_SPOKEN,
    NOT_SPOKEN_COLUMNS,
    OUTPUTS,
    PARQUET,
    SPOKEN,
    SPOKEN_COLUMNS,
    BulkSettings,
    Shard,
    ShardReport,
    cut_shards,
    read_rows,
    write_rows,
)
from melforge.common.bulk.texts import Table, require_parquet
from melforge.common.errors import InputError, unknown
from melforge.common.files import locked, sha256_of, write_bytes

RUN = "run.json"
ROWS_AT_ONCE = 65536  # of the manifest
TELL_SECONDS = 10.0  # between two lines of progress, where stderr is no terminal
# (speech, folder, shards) -> their reports as they are finished.
SpeakShards = Callable[[BulkSettings, Path, Iterable[Shard]], Iterator[ShardReport]]


@dataclass(frozen=True)
class Summary:
    """What a folder holds in the end, and how much of it this run made."""

    texts: int
    not_spoken: int
    seconds: float  # of audio
    made: float  # seconds of audio by this run
    took: float  # seconds

    @property
    def rtf(self) -> float:
        return self.made / self.took if self.took else 0.0


def speak_table(
    table: Table,
    folder: Path,
    speech: BulkSettings,
    shard_size: int,
    speak: SpeakShards,
    price: float | None = None,
) -> Summary:
    """Speaks what is left of a table into a folder. `price`: of an hour, for the progress.

    An InputError if the table cannot be read, or the folder belongs to another run.
    """
    if speech.output not in OUTPUTS:
        raise InputError(unknown("format", speech.output, OUTPUTS))
    if speech.output == PARQUET:
        require_parquet()
    total = table.scan()
    run = {
        "table": {"name": table.path.name, "sha256": sha256_of(table.path), "texts": total},
        "settings": {
            "shard_size": shard_size,
            "text_column": table.text_column,
            "id_column": table.id_column,
            **as_json(speech),
        },
    }
    count = -(-total // shard_size)
    with locked(folder):  # a second run waits here, and then finds nothing to do
        begin(folder, run)
        left = [number for number in range(count) if not (folder / f"{number:06d}").is_dir()]
        progress = RunProgress(total, count, len(left), shard_size, price)
        wanted = set(left)
        shards = (shard for shard in cut_shards(table, shard_size) if shard.number in wanted)
        for report in speak(speech, folder, shards) if left else ():
            progress.add(report)
        not_spoken = finish(folder, count, speech.output)
    return Summary(total, not_spoken[0], not_spoken[1], progress.seconds, progress.took)


def as_json(speech: BulkSettings) -> dict[str, Any]:
    """What all runs of a folder must have in common: everything but the device."""
    settings = asdict(speech)
    models = settings.pop("models")
    return {**{name: value for name, value in models.items() if name != "device"}, **settings}


def begin(folder: Path, run: Mapping[str, Any]) -> None:
    """Prepares the folder: a new one, or that of the same run which was interrupted."""
    run = json.loads(json.dumps(run, default=str))
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder")
    folder.mkdir(parents=True, exist_ok=True)
    path, begun = folder / RUN, any(folder.glob("[0-9]*"))
    if path.exists() and begun:
        if difference := differs(json.loads(path.read_text(encoding="utf-8")), run):
            raise InputError(f"{folder} holds another run ({difference}): give another folder, or remove it")
    elif begun or any(file.name != RUN and file.suffix != ".tmp" for file in folder.iterdir()):
        raise InputError(f"{folder} is not empty, and holds no run that could go on: give another folder")
    else:
        write_bytes(path, json.dumps(run, indent=1, ensure_ascii=False).encode())
    for left_over in folder.glob(".*.tmp"):
        shutil.rmtree(left_over, ignore_errors=True)


def differs(before: Any, now: Any, name: str = "") -> str:
    """The first value in which two runs differ; "" where they do not."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in (*now, *before):
            where = f"{name}.{key}" if name else key
            if found := differs(before.get(key), now.get(key), where):
                return found
        return ""
    name = name.removeprefix("settings.")
    return "" if before == now else f"{name}: {json.dumps(before)}, not {json.dumps(now)}"


def finish(folder: Path, shards: int, output: str) -> tuple[int, float]:
    """The lists of the whole run, of those of its shards: texts that were not spoken, seconds of audio."""
    folders = [folder / f"{number:06d}" for number in range(shards)]
    seconds = 0.0

    def spoken() -> Iterator[list[str]]:
        nonlocal seconds
        for row in chain.from_iterable(read_rows(shard / SPOKEN) for shard in folders):
            seconds += float(row[2])
            yield row

    temporary = folder / ".lists.tmp"
    temporary.mkdir()
    write = write_parquet_rows if output == PARQUET else write_rows
    manifest = temporary / Path(SPOKEN).with_suffix(".parquet" if output == PARQUET else ".csv").name
    write(manifest, SPOKEN_COLUMNS, spoken())
    failed = chain.from_iterable(read_rows(shard / NOT_SPOKEN) for shard in folders)
    not_spoken = write_rows(temporary / NOT_SPOKEN, NOT_SPOKEN_COLUMNS, failed)
    for file in temporary.iterdir():
        file.replace(folder / file.name)
    temporary.rmdir()
    return not_spoken, seconds


def write_parquet_rows(path: Path, columns: Iterable[str], rows: Iterator[list[str]]) -> None:
    parquet, pyarrow = require_parquet()
    schema = pyarrow.schema(
        [(name, pyarrow.float64() if name == "seconds" else pyarrow.string()) for name in columns]
    )
    with parquet.ParquetWriter(path, schema) as writer:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            values = [[float(row[i]) if i == 2 else row[i] for row in some] for i in range(len(schema.names))]
            writer.write_table(pyarrow.table(dict(zip(schema.names, values, strict=True)), schema))


class RunProgress:
    """Lines on stderr: how far, how fast, how long and for how much money still."""

    def __init__(self, texts: int, shards: int, left: int, shard_size: int, price: float | None):
        self._texts = min(texts, left * shard_size)
        self._price, self._done = price, 0
        self.seconds = 0.0  # of audio made by this run
        self._begun = self._told = time.perf_counter()
        if done := shards - left:
            print(f"{done} of {shards} shards were there already", file=sys.stderr)

    @property
    def took(self) -> float:
        return time.perf_counter() - self._begun

    def add(self, report: ShardReport) -> None:
        self._done += report.spoken + report.not_spoken
        self.seconds += report.seconds
        on_terminal, now = sys.stderr.isatty(), time.perf_counter()
        if on_terminal or self._done == self._texts or now - self._told >= TELL_SECONDS:
            self._told = now
            end = "\x1b[K\r" if on_terminal and self._done < self._texts else "\n"
            print(self.line(self.took), end=end, file=sys.stderr, flush=True)

    def line(self, took: float) -> str:
        """What the shards so far say of the whole."""
        whole = took * self._texts / self._done
        parts = [
            f"{self._done} of {self._texts} texts",
            f"{self._done / took:.1f} a second",
            f"{self.seconds / took:.1f} x real time",
            f"{duration(whole - took)} left",
        ]
        if self._price is not None:
            parts.append(f"{self._price * whole / 3600:.2f} for all of it")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """In the two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
