"""What a caller may ask for by the minute."""

from __future__ import annotations

from collections.abc import Callable


class Allowance:
    """Up to `a_minute` of something at once, and as much again in each minute: a token bucket."""

    def __init__(self, a_minute: float, clock: Callable[[], float]) -> None:
        self._most, self._clock = a_minute, clock
        self._left, self._since = a_minute, clock()

    def wait(self, amount: float) -> float:
        """Seconds until this amount may be taken, 0 for now; of one beyond the most, until that is there."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._since) * self._most / 60)
        self._since = now
        return max(0.0, min(amount, self._most) - self._left) * 60 / self._most

    def take(self, amount: float) -> None:
        self._left -= amount
