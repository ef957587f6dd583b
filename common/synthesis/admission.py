"""Texts admitted as they come: a list's at once, a generator's when it gives them."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _End:
    """The last entry of the thread that reads: the error that ended it, if any."""

    error: BaseException | None = None


class Admission(Generic[T]):
    """Items with their numbers, in rounds of those that are there: nobody waits for a round to fill up.

    A generator is read ahead by a thread, `most` items at most; what it raises, `rounds` raises.
    """

    def __init__(self, items: Iterable[T], most: int):
        self._most = most
        self._items = iter(items)
        self._listed = isinstance(items, Sized)
        if not self._listed:
            self._arrived: queue.Queue[T | _End] = queue.Queue(most)
            self._closed = threading.Event()

    def rounds(self) -> Iterator[list[tuple[int, T]]]:
        """Each round has at least one item and at most `most`."""
        numbered = enumerate(self._items if self._listed else self._as_they_come())
        while first := list(itertools.islice(numbered, 1)):
            more = self._most - 1 if self._listed else min(self._most - 1, self._arrived.qsize())
            admitted = list(first)
            try:
                admitted.extend(itertools.islice(numbered, more))
            except Exception:
                yield admitted  # what came before the error is not lost
                raise
            yield admitted

    def _as_they_come(self) -> Iterator[T]:
        threading.Thread(target=self._read, daemon=True).start()
        try:
            while not isinstance(entry := self._arrived.get(), _End):
                yield entry
            if entry.error is not None:
                raise entry.error
        finally:
            self._closed.set()
            while not self._arrived.empty():  # the thread may be waiting for room
                self._arrived.get_nowait()

    def _read(self) -> None:
        end = _End()
        try:
            for item in self._items:
                self._arrived.put(item)
                if self._closed.is_set():
                    return
        except BaseException as error:  # the caller's: it is raised in the caller's thread
            end = _End(error)
        self._arrived.put(end)
