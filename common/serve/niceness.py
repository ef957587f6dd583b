"""The niceness of single threads, which Linux alone has. To lower it takes a permission (docs/serving.md)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

URGENT = -15  # all but a thirtieth of a core that one other program uses too
PATIENT = 10


def change_niceness(change: int) -> bool:
    """Changes this thread's, which what it starts inherits; whether the system allows that."""
    if sys.platform != "linux":
        return False
    thread = threading.get_native_id()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + change)
        return True
    return False


@contextmanager
def urgent(wanted: bool, change: int = URGENT) -> Iterator[int]:
    """This thread goes before others meanwhile, or behind them, if that is `wanted` and allowed.

    Gives by how much its niceness was changed.
    """
    tried = (change, change * 2 // 3) if wanted else ()  # a unit may allow -10, and no more
    made = next((one for one in tried if change_niceness(one)), 0)
    try:
        yield made
    finally:
        if made:
            change_niceness(-made)


@contextmanager
def hurried() -> Iterator[None]:
    """This thread goes before others meanwhile, if that is allowed, but nothing that it starts."""
    allowed = False
    if sys.platform == "linux":
        with suppress(OSError):
            policy = os.sched_getscheduler(0) | os.SCHED_RESET_ON_FORK
            os.sched_setscheduler(0, policy, os.sched_getparam(0))
            allowed = True
    with urgent(allowed):
        yield
