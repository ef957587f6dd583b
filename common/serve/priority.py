"""Threads that go before those of other programs, on Linux alone. It takes a permission (docs/serving.md).

They do so in real time, and not by a lower niceness: that of one thread takes the others of its session or
control group most of the group's share of the cores.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENT = 10


def be_patient() -> None:
    """This thread goes behind others."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + PATIENT)


def hurry(goes_first: bool) -> bool:
    """Whether this thread goes before all that are not in real time, or no longer, as was asked.

    What it starts does not, nor does a program that was begun with a higher niceness or another policy.
    """
    if sys.platform != "linux" or os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) > 0:
        return False
    usual, now = os.SCHED_OTHER, os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    policy, priority = (os.SCHED_RR, 1) if goes_first else (usual, 0)
    with suppress(OSError):
        if now in (usual, os.SCHED_RR):
            os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
            return True
    return False


@contextmanager
def hurrying(goes_first: bool, wanted: bool = True) -> Iterator[bool]:
    """As `hurry` meanwhile, if that is `wanted`, and the contrary behind it. Says whether it was done."""
    done = wanted and hurry(goes_first)
    try:
        yield done
    finally:
        if done:
            hurry(not goes_first)
