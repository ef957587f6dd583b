"""The folder of a run: of this machine, or in an object store.

Here a shard appears by a rename. In a store it is there when its object _SUCCESS is, which is sent last.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from melforge.common.bulk.texts import LONGEST_CELL
from melforge.common.files import write_bytes
from melforge.common.remote import SUCCESS, ask, is_address, send_folder, store_of

WAY_ON = "what is finished stays, and the same command goes on"


@dataclass(frozen=True)
class RunFolder:
    """One of this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def names(self) -> set[str]:
        """What is in it, without what workers are writing; nothing where there is no folder yet."""
        paths = self.path.iterdir() if self.path.exists() else ()
        return {path.name for path in paths if path.suffix != ".tmp"}

    def shards(self) -> set[str]:
        """The names of those that are finished."""
        return {name for name in self.names() if name.isdecimal() and (self.path / name).is_dir()}

    def read(self, name: str) -> bytes | None:
        """A file's content, or None where there is none."""
        path = self.path / name
        return path.read_bytes() if path.exists() else None

    def write(self, name: str, content: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_bytes(self.path / name, content)

    @contextmanager
    def shard(self, name: str) -> Iterator[Path]:
        """A folder to write to, which becomes the shard when all went well; else it is removed.

        With the shard goes what killed workers have left of it.
        """
        target = self.path / name
        temporary = self.path / f".{name}.{os.urandom(4).hex()}.tmp"
        temporary.mkdir()
        try:
            yield temporary
            try:
                temporary.rename(target)
            except OSError:
                if not target.is_dir():  # else a worker that was taken for lost has finished it
                    raise
            for left in self.path.glob(f".{name}.*.tmp"):
                shutil.rmtree(left, ignore_errors=True)
        except OSError as error:
            raise type(error)(error.errno, f"cannot write {target}: {error.strerror}; {WAY_ON}") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    @contextmanager
    def lists(self) -> Iterator[Path]:
        """A folder to write files to that then belong to the run."""
        temporary = Path(tempfile.mkdtemp(".tmp", ".lists.", self.path))
        try:
            yield temporary
            for file in temporary.iterdir():
                file.replace(self.path / file.name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@dataclass(frozen=True)
class RemoteFolder(RunFolder):
    """One in an object store; `path` is that of its address."""

    address: str = ""

    def __str__(self) -> str:
        return self.address

    def _names(self, pattern: str) -> set[PurePosixPath]:
        store, path = store_of(self.address)
        names = ask(self.address, store.glob, f"{path}/{pattern}")
        return {PurePosixPath(name).relative_to(path) for name in names}

    def names(self) -> set[str]:
        return {str(name) for name in self._names("*")}

    def shards(self) -> set[str]:
        return {str(name.parent) for name in self._names(f"*/{SUCCESS}")}

    def read(self, name: str) -> bytes | None:
        store, path = store_of(self.address)
        with suppress(FileNotFoundError):
            return ask(self.address, store.cat_file, f"{path}/{name}")
        return None

    def write(self, name: str, content: bytes) -> None:
        with self.lists() as folder:
            (folder / name).write_bytes(content)

    @contextmanager
    def shard(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
            (Path(temporary) / SUCCESS).touch()
            send_folder(Path(temporary), f"{self.address}/{name}")

    @contextmanager
    def lists(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
            send_folder(Path(temporary), self.address)


def run_folder(place: str) -> RunFolder:
    """By its path or its address."""
    address = place.rstrip("/")
    return RemoteFolder(Path(address), address) if is_address(place) else RunFolder(Path(place))


def read_rows(content: bytes | None) -> Iterator[list[str]]:
    """The rows of a csv file without its heading; none where there is no file."""
    import csv

    csv.field_size_limit(LONGEST_CELL)
    if content is not None:
        rows = csv.reader(io.StringIO(content.decode(), newline=""))
        next(rows)
        yield from rows
