"""Processes that this program begins: how they begin and end with it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process


@contextmanager
def interrupts_held() -> Iterator[None]:
    """A terminal's Ctrl-C comes to this thread behind this, and never to processes that are begun within."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(number: int) -> None:
    """This process gets the signal of this number when the one that began it has ended, however that was."""
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), number)

    threading.Thread(target=wait, daemon=True).start()
