"""Files that are read again when they change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from melforge.common.errors import InputError

LOOK_EVERY = 1.0  # seconds, at a file that may have changed

log = logging.getLogger(__name__)

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """What `read` makes of a file, made again when that changes; where it is wrong then, the last one stays.

    It may be used from several threads. A log entry names what is wrong.
    """

    def __init__(self, path: Path, read: Callable[[Path], T]):
        self.path, self._read = path, read
        self._turn = threading.Lock()
        self._looked, self._stamp = time.monotonic(), _stamp(path)
        self._content = read(path)

    @property
    def current(self) -> T:
        if time.monotonic() - self._looked > LOOK_EVERY and self._turn.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._turn.release()
        return self._content

    def _look(self) -> None:
        stamp, self._looked = _stamp(self.path), time.monotonic()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._content = self._read(self.path)
        except (OSError, InputError) as error:
            log.warning("not read again, so what was read before counts: %s", error)


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file; () where there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
