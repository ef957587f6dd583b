"""Long work is counted on a terminal."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

SHOWN_AFTER = 1.0  # seconds


@contextlib.contextmanager
def counting(doing: str, total: float, unit: str) -> Iterator[Callable[[float], object]]:
    """A function that is told how many more of `total` are done. Stderr shows it where it is a terminal, from
    a second on and until all are done. A total that nobody knows is `math.inf`.
    """
    begun, done, bar = time.monotonic(), 0.0, None

    def add(number: float) -> None:
        nonlocal done, bar
        done += number
        if bar is None and done < total and time.monotonic() - begun >= SHOWN_AFTER and sys.stderr.isatty():
            from tqdm import tqdm  # short work is done before it would be imported

            shape = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f}{unit} [{elapsed}<{remaining}]"
            if math.isinf(total):
                shape = "{desc}: {n:.0f}{unit} [{elapsed}]"
            bar = tqdm(desc=doing, total=total, unit=unit, bar_format=shape, leave=False)
            bar.start_t -= time.monotonic() - begun
        if bar is not None:
            bar.update(done - bar.n)
            if done >= total:
                bar.close()

    try:
        yield add
    finally:
        if bar is not None:
            bar.close()
