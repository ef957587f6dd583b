"""How many requests are between the first and the last model of an ensemble, counted by their processes.

Triton's ensembles have no limit of their own: a request that the first model lets through may be refused by a
later one's queue, after it has waited and cost time. Here the first model waits until there is room behind
it. So what is too much stands in its queue, where Triton refuses it as it comes.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHARED = Path("/dev/shm")  # which Triton's Python backend needs too
GPUS = Path("/proc/driver/nvidia/gpus")
TURN = 0.005  # seconds between two looks for room
# Seconds without a model at work after which none is under way: what was counted was cancelled between two
# models, was at one whose process has died, or had asked for the first model alone.
IDLE = 0.5


class UnderWay:
    """The count of an ensemble in one server, by name; `most` for each GPU of the machine."""

    def __init__(self, name: str, most: int):
        server = os.getppid()
        for left in SHARED.glob("melforge-*"):
            with suppress(OSError, ValueError):
                if not Path(f"/proc/{int(left.name.split('-')[1])}").exists():
                    left.unlink()
        self._most = most * max(1, len(list(GPUS.glob("*"))))
        self._count = (SHARED / f"melforge-{server}-{name}").open("a+b")
        self._work = (SHARED / f"melforge-{server}-{name}-work").open("ab")

    def enter(self, requests: int) -> None:
        """Counts these requests as soon as there is room for them, or nothing is under way."""
        idle_since = None
        while requests and not self._add(requests, self._most):
            if self._is_idle():
                now = time.monotonic()
                idle_since = idle_since or now
                if now - idle_since >= IDLE:
                    self._add(-self._most)
            else:
                idle_since = None
            time.sleep(TURN)

    def leave(self, requests: int) -> None:
        """They are answered."""
        if requests:
            self._add(-requests)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """A later model is at work meanwhile, or until its process dies."""
        fcntl.flock(self._work, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._work, fcntl.LOCK_UN)

    def _is_idle(self) -> bool:
        try:
            fcntl.flock(self._work, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._work, fcntl.LOCK_UN)
        return True

    def _add(self, requests: int, most: float = float("inf")) -> bool:
        """Whether there was room; more than `most` at once have to be alone."""
        fcntl.flock(self._count, fcntl.LOCK_EX)
        try:
            self._count.seek(0)
            count = int(self._count.read() or 0)
            if count and count + requests > most:
                return False
            self._count.truncate(0)
            self._count.write(b"%d" % max(0, count + requests))
            self._count.flush()
            return True
        finally:
            fcntl.flock(self._count, fcntl.LOCK_UN)
