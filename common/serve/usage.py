"""What callers used, by day: rows of a table in SQLite, or in Postgres by a URL.

A thread writes them, all that came meanwhile in one transaction. The last bytes of an answer wait for theirs,
so that what a client has in full is in the table, however the process ends. Whether a transaction ended whose
connection was lost meanwhile, the number of each writer's last batch tells, which is written with it.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import astuple, dataclass, fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from melforge.common.errors import InputError, require_package
from melforge.common.files import require_writable_file
from melforge.common.serve.scheduler import LOG
from melforge.common.serve.traces import RequestSpan

POSTGRES = ("postgres", "postgresql")
SECONDS = 5.0  # for which the table may be locked, or the database not answer
RETRY = 5.0  # seconds until another attempt after one that failed
CHECKPOINT = 1000  # transactions after which SQLite's log of them is taken into its file


@dataclass(frozen=True)
class Asking:
    """Who asks for what: an API key's owner ("" without keys), the kind of use, the request's span, and what
    gives its place among those that come back.
    """

    key: str
    kind: str
    span: RequestSpan | None = None
    leave: Callable[[], object] | None = None

    def leave_place(self) -> None:
        if self.leave is not None:
            self.leave()


# Of the request that a task works for, so that all protocols count alike; None: it is not counted.
ASKING: ContextVar[Asking | None] = ContextVar("asking", default=None)


class UsageRow(NamedTuple):
    """What a row is about. `day` is in UTC, as 2027-01-31."""

    day: str
    key: str
    kind: str
    model: str
    voice: str


@dataclass
class Used:
    """What a row counts; requests include those that failed or were cancelled."""

    requests: int = 0
    characters: int = 0
    audio_seconds: float = 0.0
    errors: int = 0
    cancelled: int = 0

    def add(self, other: Used) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


NAMES = UsageRow._fields
COUNTED = tuple(field.name for field in fields(Used))
COLUMNS = (*NAMES, *COUNTED)
TYPES = (*("TEXT NOT NULL",) * len(NAMES), "BIGINT", "BIGINT", "DOUBLE PRECISION", "BIGINT", "BIGINT")
CREATE = (
    "CREATE TABLE IF NOT EXISTS melforge_usage "
    f"({', '.join(map(' '.join, zip(COLUMNS, TYPES, strict=True)))}, PRIMARY KEY ({', '.join(NAMES)}))"
)
ADD = (
    f"INSERT INTO melforge_usage ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    f"ON CONFLICT ({', '.join(NAMES)}) DO UPDATE SET "
    + ", ".join(f"{name} = melforge_usage.{name} + excluded.{name}" for name in COUNTED)
)
WRITERS = "CREATE TABLE IF NOT EXISTS melforge_usage_writers (writer TEXT PRIMARY KEY, batch BIGINT NOT NULL)"
NUMBER = (
    "INSERT INTO melforge_usage_writers (writer, batch) VALUES (?, ?) ON CONFLICT (writer) "
    "DO UPDATE SET batch = excluded.batch WHERE melforge_usage_writers.batch < excluded.batch"
)
READ = f"SELECT {', '.join(COLUMNS)} FROM melforge_usage WHERE day >= ? AND day <= ?"


class Database:
    """Connections to SQLite's file, or to the Postgres of a URL."""

    def __init__(self, place: str):
        self.url = urlsplit(place)
        self.on_postgres = self.url.scheme in POSTGRES
        if self.on_postgres:
            require_package("pg8000", "usage in Postgres")
        elif "://" in place:
            raise InputError(f"usage: a file's name or a postgresql:// URL, not {self.url.scheme}://")
        else:
            require_writable_file(Path(place))
        self.place = (
            f"{self.url.hostname}{self.url.path}" if self.on_postgres else place
        )  # without a password

    def connect(self) -> Any:
        if not self.on_postgres:
            connection = sqlite3.connect(self.place, SECONDS, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # it would hold answers up
            return connection
        import pg8000.dbapi

        url = self.url
        return pg8000.dbapi.connect(
            user=unquote(url.username or ""),
            host=url.hostname or "localhost",
            database=unquote(url.path[1:]) or None,
            port=url.port or 5432,
            password=unquote(url.password or "") or os.environ.get("PGPASSWORD"),
            timeout=SECONDS,
        )

    def execute(self, connection: Any, statement: str, rows: Sequence[Sequence[Any]] = ((),)) -> Any:
        cursor = connection.cursor()
        for row in rows:
            cursor.execute(statement.replace("?", "%s") if self.on_postgres else statement, row)
        return cursor

    def write(self, connection: Any, writer: str, batch: int, rows: Sequence[Sequence[Any]]) -> None:
        """All rows of a writer's batch, or none; a batch that is there already adds nothing."""
        if not self.on_postgres:
            connection.execute("BEGIN IMMEDIATE")
        if self.execute(connection, NUMBER, [(writer, batch)]).rowcount:
            self.execute(connection, ADD, rows)
        connection.commit()

    @contextmanager
    def connected(self) -> Iterator[Any]:
        connection = self.connect()
        try:
            yield connection
        finally:
            connection.close()

    def create(self) -> None:
        """The tables, if they are not there; an InputError says what stands in the way."""
        for more in (True, True, False):  # another process may create them at this moment
            try:
                with self.connected() as connection:
                    self.execute(connection, CREATE)
                    self.execute(connection, WRITERS)
                    connection.commit()
                return
            except Exception as error:
                if not more:
                    raise InputError(f"usage: {self.place}: {error}") from None

    def read(self, first: date, last: date, key: str | None = None) -> list[dict[str, Any]]:
        """The rows of these days, of one key or all, in order."""
        days = (first.isoformat(), last.isoformat())
        statement, values = (READ, days) if key is None else (f"{READ} AND key = ?", (*days, key))
        with self.connected() as connection:
            found = self.execute(connection, f"{statement} ORDER BY {', '.join(NAMES)}", [values]).fetchall()
        return [dict(zip(COLUMNS, row, strict=True)) for row in found]


Entry = tuple[UsageRow, Used, Callable[[], object]]


class Usage:
    """The thread that writes. Where it cannot, speech goes on, and what there is to write waits."""

    def __init__(self, place: str):
        self.database = Database(place)
        self.database.create()
        self.unwritten = 0  # requests
        self._failing = False
        self._name = uuid4().hex
        self._connection: Any = None  # the thread's
        self._entries: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="usage", daemon=True)
        self._thread.start()

    def add(self, asking: Asking, model: str, voice: str, used: Used, then: Callable[[], object]) -> None:
        """Adds to a row of today; `then` is called by the thread once that is written, or has failed."""
        today = datetime.now(UTC).date().isoformat()
        self._entries.put((UsageRow(today, asking.key, asking.kind, model, voice), used, then))

    def close(self, seconds: float) -> None:
        """Writes the rest, for so long at most."""
        self._entries.put(None)
        self._thread.join(seconds)

    def _work(self) -> None:
        rows, tried, ended = dict[UsageRow, Used](), 0.0, False
        batch, number, checkpoint = dict[UsageRow, Used](), 0, CHECKPOINT
        while not ended:
            entries = self._come(RETRY if batch or rows else None)
            ended = None in entries
            asked = [entry for entry in entries if entry is not None]
            for place, used, _ in asked:
                rows.setdefault(place, Used()).add(used)
            self.unwritten = sum(used.requests for used in (*batch.values(), *rows.values()))
            if not self._failing or ended or time.monotonic() - tried >= RETRY:
                tried = time.monotonic()
                while batch or rows:
                    if not batch:  # one that failed stays as it is: it may be in the table
                        batch, rows, number = rows, {}, number + 1
                    if not self._write(number, batch):
                        break
                    self.unwritten -= sum(used.requests for used in batch.values())
                    batch = {}
            for _, _, then in asked:
                with suppress(RuntimeError):  # its event loop is closed
                    then()
            if number >= checkpoint and not self.database.on_postgres and self._connection:
                checkpoint = number + CHECKPOINT
                with suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._disconnect()

    def _write(self, batch: int, rows: Mapping[UsageRow, Used]) -> bool:
        """Whether that was possible. A connection that the database has ended meanwhile is made again."""
        # Processes that write at the same time lock rows in one order.
        ordered = [(*place, *astuple(rows[place])) for place in sorted(rows)]
        for known in (True, False) if self._connection else (False,):
            try:
                self._connection = self._connection or self.database.connect()
                self.database.write(self._connection, self._name, batch, ordered)
            except Exception as error:
                self._disconnect()
                if not known:
                    self._note(error)
            else:
                self._note(None)
                return True
        return False

    def _come(self, seconds: float | None) -> list[Entry | None]:
        """All entries that are there, after the first one; none if none came within `seconds`."""
        found = list[Entry | None]()
        with suppress(queue.Empty):
            found.append(self._entries.get(timeout=seconds))
            while True:
                found.append(self._entries.get_nowait())
        return found

    def _note(self, error: Exception | None) -> None:
        """Says when writing begins to fail, and when it does no more."""
        if error is not None and not self._failing:
            fields = {"place": self.database.place, "error": str(error), "unwritten": self.unwritten}
            LOG.error("usage is not written", extra={"fields": fields})
        elif error is None and self._failing:
            LOG.warning("usage is written again", extra={"fields": {"requests": self.unwritten}})
        self._failing = error is not None

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
        self._connection = None
