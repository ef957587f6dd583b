"""A bounded store for what is made once for each key, such as a CUDA graph for each set of shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(dict[K, V]):
    """At most `largest` values, in the order of their last use; what was unused for longest goes first.

    `largest` None: as many as there are. `let_go` is called with each value that goes.
    """

    def __init__(self, largest: int | None = None, let_go: Callable[[V], object] | None = None):
        super().__init__()
        self.largest, self._let_go = largest, let_go

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The key's value, which is then the one used last; `make` gives it where there is none."""
        value = self.pop(key) if key in self else make()
        self[key] = value
        while self.largest is not None and len(self) > self.largest:
            self.drop_oldest()
        return value

    def drop_oldest(self) -> None:
        """Lets go of the value that was unused for longest."""
        value = self.pop(next(iter(self)))
        if self._let_go:
            self._let_go(value)
