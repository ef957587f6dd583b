"""Python's garbage collector, where it must stay out of the way."""

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_users = 0  # threads within
_was_enabled = False


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """The collector is off until the last thread within is out."""
    global _users, _was_enabled
    with _lock:
        if _users == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _was_enabled:
                gc.enable()
