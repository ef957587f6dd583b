"""Processes that analyse texts side by side: a fast GPU speaks sooner than one process reads."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from melforge.common.processes import interrupts_held
from melforge.common.text import Analysis, Frontend, spoken_by
from melforge.common.text.markup import analyse

TEXTS = 8  # that a process takes at a time

_frontend: Frontend | None = None  # of a process


class TextProcesses:
    """`count` processes, each with a frontend of its own; `build` makes it, and must be picklable.

    They are started anew (spawned), so a program's main module guards what it does with
    `if __name__ == "__main__"`. They end with the program.
    """

    def __init__(self, build: Callable[[], Frontend], count: int):
        self._pool = ProcessPoolExecutor(count, get_context("spawn"), _begin, (build,))
        self._share = count * TEXTS
        with interrupts_held():
            begun = self._pool.map(_analyse, [""] * self._share, [""] * self._share, chunksize=1)
        list(begun)  # they start, and read their data

    def analyse(self, texts: Sequence[str], speakers: Sequence[str]) -> Iterator[tuple[Analysis, float]]:
        """What the frontend makes of each text, which this speaker speaks, and the seconds that it took.

        All are begun at once.
        """
        return self._pool.map(_analyse, texts, speakers, chunksize=TEXTS if len(texts) >= self._share else 1)


def _begin(build: Callable[[], Frontend]) -> None:
    global _frontend
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as it was held: a notebook's stop is for the program
    _frontend = build()


def _analyse(text: str, speaker: str) -> tuple[Analysis, float]:
    assert _frontend is not None
    start = time.perf_counter()
    return analyse(spoken_by(_frontend, speaker), text), time.perf_counter() - start
