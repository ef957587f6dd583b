"""Memory in pages of 2 MB, on Linux alone: a processor finds few of its usual pages of 4 KB at once."""

from __future__ import annotations

import ctypes
import mmap
import sys
from contextlib import suppress
from pathlib import Path

LEAST = 16 << 20  # bytes of a range: more than a thread's stack, which needs little of its own
COLLAPSE = 25  # Linux's MADV_COLLAPSE, from 6.1 on; before, the pages come within minutes


def use_large_pages() -> None:
    """Has the system put what is in memory now into large pages, where it makes such for who asks."""
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    with suppress(OSError), Path("/proc/self/maps").open(encoding="utf-8") as ranges:
        for line in ranges:
            place, rights, _, _, _, *name = line.split()
            low, high = (int(end, base=16) for end in place.split("-"))
            if rights == "rw-p" and name in ([], ["[heap]"]) and high - low >= LEAST:
                for advice in (mmap.MADV_HUGEPAGE, COLLAPSE):
                    advise(ctypes.c_void_p(low), ctypes.c_size_t(high - low), advice)
