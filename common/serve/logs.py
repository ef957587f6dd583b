"""The log of a server's process: lines of JSON on stderr, from all libraries that log."""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from contextlib import suppress
from typing import Any

from melforge.common.serve.scheduler import LOG

STDERR = 2
MOST_LINES = 2000  # that wait for a slow reader; further ones are dropped
FLUSH_SECONDS = 1.0  # for those that wait when the process ends
# Of the messages from one place of a library: a client's mistakes and full tables must not fill a disk.
BURST, WINDOW = 10, 60.0


def set_up_logging() -> None:
    """Lines of JSON on stderr, of uvicorn, asyncio and all others that warn, and of Python's warnings."""
    handler = JsonLines(os.dup(STDERR))
    handler.addFilter(Seldom())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(logging.INFO)
    logging.captureWarnings(True)


def exit_now(status: int) -> None:
    """Ends the process as it is, but for lines that wait."""
    logging.shutdown()
    os._exit(status)


class JsonLines(logging.Handler):
    """A record as a line of JSON, to a file descriptor; `extra={"fields": ...}` are its own keys.

    A thread writes the lines, so that a reader who stops reading does not stop the server.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._lines: queue.Queue[str] = queue.Queue(MOST_LINES)
        self._dropped = 0
        threading.Thread(target=self._write, args=(descriptor,), name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        dropped = self._dropped
        try:
            self._lines.put_nowait(self._line(record, dropped))
            self._dropped -= dropped
        except queue.Full:
            self._dropped += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Waits a moment for the lines to be written."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, FLUSH_SECONDS)

    def _line(self, record: logging.LogRecord, dropped: int) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {"time": f"{when}.{int(record.msecs):03d}Z", "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        line |= getattr(record, "fields", {})
        if dropped:
            line["lines_dropped"] = dropped
        if record.exc_info:
            line["traceback"] = logging.Formatter().formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False) + "\n"

    def _write(self, descriptor: int) -> None:
        while True:
            data = memoryview(self._lines.get().encode(errors="backslashreplace"))
            with suppress(OSError):  # the disk is full, or nobody reads any more
                while data:
                    data = data[os.write(descriptor, data) :]
            self._lines.task_done()


class Seldom(logging.Filter):
    """Passes on BURST messages from one place of a library in WINDOW seconds, and all of the server's own."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}  # since when, and how many

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == LOG.name:
            return True
        place = (record.pathname, record.lineno)
        since, count = self._seen.get(place, (record.created, 0))
        if record.created - since >= WINDOW:
            if count > BURST:
                record.fields = {"left_out": count - BURST}
            since, count = record.created, 0
        self._seen[place] = since, count + 1
        return count < BURST
