"""A run: its folder, which shards are left, progress, and the lists of what was spoken and what was not.

DIR/run.json            the table, the settings and the models, which a further run must have too
DIR/000000/...          a finished shard: sound files or audio.parquet, manifest.csv, not-spoken.csv
DIR/manifest.csv        of all shards: id, file, seconds, warnings (manifest.parquet beside parquet)
DIR/not-spoken.csv      id and reason, where there are any
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from melforge.common.bulk.folder import RunFolder, read_rows
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
    shard_name,
    write_rows,
)
from melforge.common.bulk.texts import Table, require_parquet
from melforge.common.errors import InputError, counted, unknown
from melforge.common.files import config_hash, locked, sha256_of, version, write_bytes
from melforge.common.stages.choose import KINDS
from melforge.common.synthesis.loading import choose_sources

RUN = "run.json"
ROWS_AT_ONCE = 65536  # of the manifest
TELL_SECONDS = 10.0  # between two lines of progress, where stderr is no terminal
# (speech, folder, shards) -> their reports as they are finished.
SpeakShards = Callable[[BulkSettings, RunFolder, Iterable[Shard]], Iterator[ShardReport]]


@dataclass(frozen=True)
class Summary:
    """What a folder holds in the end, and how much of it this run made."""

    texts: int
    not_spoken: int
    seconds: float  # of audio
    made: float  # seconds of audio by this run
    took: float  # seconds
    left: int = 0  # shards that are other parts'

    @property
    def rtf(self) -> float:
        return self.made / self.took if self.took else 0.0


@dataclass(frozen=True)
class Part:
    """Number `number` of `count` runs that divide a table's shards, each on a machine of its own."""

    number: int = 1
    count: int = 1

    def __contains__(self, shard: int) -> bool:
        return shard % self.count == self.number - 1


def speak_table(
    table: Table,
    folder: RunFolder,
    speech: BulkSettings,
    shard_size: int,
    speak: SpeakShards,
    price: float | None = None,
    part: Part = Part(),
    progress_file: Path | None = None,
) -> Summary:
    """Speaks what is left of a table, or of a part of it, into a folder.

    `price`: of an hour, for the progress, which `progress_file` (.json or .prom) has too. The lists of the
    whole are written by whoever finishes last. An InputError if the table cannot be read, or the folder
    belongs to another run.
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
        "models": identity_of(speech.models),
    }
    count = -(-total // shard_size)
    own = [number for number in range(count) if number in part]
    # A second run waits here, and then finds nothing to do.
    with locked(folder.path / f"{part.number} of {part.count}"):
        begin(folder, run, is_shared=part.count > 1)
        finished = folder.shards()
        left = [number for number in own if shard_name(number) not in finished]
        progress = RunProgress(total, len(own), len(left), shard_size, price, progress_file)
        wanted = set(left)
        shards = (shard for shard in cut_shards(table, shard_size) if shard.number in wanted)
        try:
            for report in speak(speech, folder, shards) if left else ():
                progress.add(report)
        except (KeyboardInterrupt, SystemExit):  # a signal
            done = f"{len(folder.shards())} of {counted(count, 'shard')}"
            print(f"{done} in {folder}: the same command goes on", file=sys.stderr)
            raise
        missing = count - len(folder.shards())
        not_spoken, seconds = (0, progress.seconds) if missing else finish(folder, count, speech.output)
    return Summary(total, not_spoken, seconds, progress.seconds, progress.took, missing)


def identity_of(models: Mapping[str, Any]) -> dict[str, Any]:
    """What the samples depend on beside the settings: Melforge's version and the files that are read."""
    wanted = {kind: models.get(kind) for kind in KINDS}
    sources = choose_sources(
        wanted, models.get("voice"), models.get("checkpoints") or (), lexicon=models.get("lexicon")
    )
    files = {
        kind: {
            "model": source.model,
            "config": config_hash(source.config),
            "weights": sha256_of(source.weights),
            **{name: sha256_of(graph) for name, graph in source.graphs.items() if graph.is_file()},
            **{f"lexicon {number}": sha256_of(path) for number, path in enumerate(source.lexicons, 1)},
        }
        for kind, source in sources.items()
    }
    return {"melforge": version(), **files}


def as_json(speech: BulkSettings) -> dict[str, Any]:
    """What all runs of a folder must have in common: everything but the device."""
    settings = asdict(speech)
    models = settings.pop("models")
    return {**{name: value for name, value in models.items() if name != "device"}, **settings}


def begin(folder: RunFolder, run: Mapping[str, Any], *, is_shared: bool) -> None:
    """Prepares the folder: a new one, or that of the same run which was interrupted.

    A run without a shard is no run, unless another machine may be speaking its first.
    """
    run = json.loads(json.dumps(run, default=str))
    known, names = folder.read(RUN), folder.names() - {RUN}
    begun = any(name[0].isdecimal() for name in names)
    if known is not None and (begun or is_shared):
        if difference := differs(json.loads(known), run):
            raise InputError(f"{folder} holds another run ({difference}): give another folder, or remove it")
    elif names:
        raise InputError(f"{folder} is not empty, and holds no run that could go on: give another folder")
    else:
        folder.write(RUN, json.dumps(run, indent=1, ensure_ascii=False).encode())


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


def finish(folder: RunFolder, shards: int, output: str) -> tuple[int, float]:
    """The lists of the whole run, of those of its shards: texts that were not spoken, seconds of audio."""
    seconds = 0.0

    def rows(name: str) -> Iterator[list[str]]:
        for number in range(shards):
            yield from read_rows(folder.read(f"{shard_name(number)}/{name}"))

    def spoken() -> Iterator[list[str]]:
        nonlocal seconds
        for row in rows(SPOKEN):
            seconds += float(row[2])
            yield row

    with folder.lists() as lists:
        write = write_parquet_rows if output == PARQUET else write_rows
        manifest = Path(SPOKEN).with_suffix(".parquet" if output == PARQUET else ".csv").name
        write(lists / manifest, SPOKEN_COLUMNS, spoken())
        not_spoken = write_rows(lists / NOT_SPOKEN, NOT_SPOKEN_COLUMNS, rows(NOT_SPOKEN))
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

    def __init__(
        self,
        texts: int,
        shards: int,
        left: int,
        shard_size: int,
        price: float | None,
        file: Path | None = None,
    ):
        self._texts = min(texts, left * shard_size)
        self._price, self._file, self._done, self._not_spoken = price, file, 0, 0
        self.seconds = 0.0  # of audio made by this run
        self._begun = self._told = time.perf_counter()
        if done := shards - left:
            print(f"{done} of {shards} shards were there already", file=sys.stderr)

    @property
    def took(self) -> float:
        return time.perf_counter() - self._begun

    def add(self, report: ShardReport) -> None:
        self._done += report.spoken + report.not_spoken
        self._not_spoken += report.not_spoken
        self.seconds += report.seconds
        if self._file is not None:
            write_bytes(self._file, self.as_text(self._file.suffix).encode())
        on_terminal, now = sys.stderr.isatty(), time.perf_counter()
        if on_terminal or self._done == self._texts or now - self._told >= TELL_SECONDS:
            self._told = now
            end = "\x1b[K\r" if on_terminal and self._done < self._texts else "\n"
            print(self.line(self.took), end=end, file=sys.stderr, flush=True)

    def as_text(self, suffix: str) -> str:
        """As JSON or, for .prom, as Prometheus' node exporter reads it from its folder of text files."""
        took = self.took
        values = {
            "texts": self._texts,
            "texts_done": self._done,
            "texts_not_spoken": self._not_spoken,
            "audio_seconds": round(self.seconds, 3),
            "run_seconds": round(took, 3),
            "left_seconds": round(took * self._texts / self._done - took, 3),
        }
        if suffix != ".prom":
            return json.dumps(values, indent=1) + "\n"
        return "".join(
            f"# TYPE melforge_run_{name} gauge\nmelforge_run_{name} {value}\n"
            for name, value in values.items()
        )

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
