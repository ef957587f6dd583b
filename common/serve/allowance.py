"""What a caller may ask for by the minute, in all processes of a server together."""

from __future__ import annotations

import hashlib
import math
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LIMITED = ("requests", "characters", "audio_seconds")
STATE = struct.Struct(f"{2 * len(LIMITED)}d")


@dataclass
class Allowance:
    """Up to `most` of something at once, and as much again in each minute: a token bucket."""

    most: float
    left: float = math.inf
    since: float = 0.0  # when so much was left, in seconds of a clock

    def __post_init__(self) -> None:
        self.left = min(self.left, self.most)

    def fill(self, now: float) -> None:
        self.left = min(self.most, self.left + (now - self.since) * self.most / 60)
        self.since = now

    def wait(self, amount: float) -> float:
        """Seconds until this amount may be taken, 0 for now; of one beyond the most, until that is there."""
        return max(0.0, min(amount, self.most) - self.left) * 60 / self.most

    @property
    def headers(self) -> tuple[str, str, str]:
        """The most, what is left of it, and how long until all of it is, as OpenAI's headers have them."""
        minutes, seconds = divmod(self.wait(math.inf), 60)
        reset = f"{minutes:.0f}m" * (minutes > 0) + f"{round(seconds, 3):g}s"
        return f"{self.most:.12g}", str(max(0, math.floor(self.left))), reset


class Allowances:
    """Those of all callers; `most` are a caller's limits by LIMITED, as far as there are any.

    With a folder they are shared by the processes that have it: a file for each caller, which is locked for
    some microseconds. A process that dies leaves its lock. The clock has to be one for all of them.
    """

    def __init__(self, clock: Callable[[], float], folder: Path | None = None):
        self._clock, self._folder = clock, folder
        self._turn = threading.Lock()
        self._states: dict[str, bytes] = {}

    def take(self, key: str, most: Mapping[str, float], amounts: Mapping[str, float]) -> tuple[str, float]:
        """Takes all amounts, or none: then what there is too little of, and for how many seconds."""
        with self._open(key, most) as allowances:
            for what, allowance in allowances.items():
                if wait := allowance.wait(amounts[what]):
                    return what, wait
            for what, allowance in allowances.items():
                allowance.left -= amounts[what]
        return "", 0.0

    def spend(self, key: str, most: Mapping[str, float], what: str, amount: float) -> None:
        """Takes what was used already, however little is left."""
        if what in most:
            with self._open(key, most) as allowances:
                allowances[what].left -= amount

    def headers(self, key: str, most: Mapping[str, float]) -> list[tuple[bytes, bytes]]:
        if not most:
            return []
        with self._open(key, most) as allowances:
            return [
                (f"x-ratelimit-{part}-{what.replace('_', '-')}".encode(), value.encode())
                for what, one in allowances.items()
                for part, value in zip(("limit", "remaining", "reset"), one.headers, strict=True)
            ]

    @contextmanager
    def _open(self, key: str, most: Mapping[str, float]) -> Iterator[dict[str, Allowance]]:
        with self._state(key) as state:
            now = self._clock()
            known = STATE.unpack(state) if state else (math.inf, now) * len(LIMITED)
            found = dict(zip(LIMITED, zip(known[::2], known[1::2], strict=True), strict=True))
            allowances = {what: Allowance(most[what], *found[what]) for what in LIMITED if what in most}
            for allowance in allowances.values():
                allowance.fill(now)
            yield allowances
            found |= {what: (one.left, one.since) for what, one in allowances.items()}
            state[:] = STATE.pack(*(value for what in LIMITED for value in found[what]))

    @contextmanager
    def _state(self, key: str) -> Iterator[bytearray]:
        """What is known of a caller, for nobody else meanwhile; what is left in it counts from then on."""
        file = self._opened(key)
        if file is None:
            with self._turn:
                state = bytearray(self._states.get(key, b""))
                yield state
                self._states[key] = bytes(state)
            return
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = bytearray(os.pread(file, STATE.size, 0))
            yield state
            with suppress(OSError):
                os.pwrite(file, state, 0)
        finally:
            os.close(file)

    def _opened(self, key: str) -> int | None:
        """A caller's file; None where this process counts for itself, as on a full disk."""
        if self._folder is None:
            return None
        with suppress(OSError):
            name = hashlib.sha256(key.encode()).hexdigest()
            return os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        return None
