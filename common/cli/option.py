"""An option of a command: what it is called, what a command line or a file may give it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from melforge.common.config.typed import typed
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError, unknown

PLAIN = (bool, int, float, str, Path)


@dataclass(frozen=True, eq=False)
class Option:
    """An option or a positional argument, by argparse's words for it; its key in files is its `dest`."""

    names: tuple[str, ...]  # "-o", "--output"; without dashes it is a positional argument
    title: str  # of the part of --help where it stands
    how: Mapping[str, Any]  # argparse's keywords

    @property
    def key(self) -> str:
        longest = next((name for name in self.names if name.startswith("--")), self.names[0])
        return self.how.get("dest") or longest.lstrip("-").replace("-", "_")

    @property
    def positional(self) -> bool:
        return not self.names[0].startswith("-")

    @property
    def flag(self) -> str:
        """As it is written on a command line."""
        return str(self.how.get("metavar") or self.names[0]) if self.positional else self.names[-1]

    @property
    def words(self) -> dict[str, bool]:
        """What stands for it on a command line; for one that is true or false, which of the two it means."""
        words = dict.fromkeys(() if self.positional else self.names, True)
        if self.how.get("action") is argparse.BooleanOptionalAction:
            words |= {name.replace("--", "--no-", 1): False for name in self.names}
        return words

    @property
    def switch(self) -> bool:
        """Whether it takes no value: it is true, or false, by being there."""
        return self.how.get("action") in ("store_true", argparse.BooleanOptionalAction)

    @property
    def nargs(self) -> str | None:
        return self.how.get("nargs")

    @property
    def added(self) -> bool:
        """Whether each time that it is given adds a value to a list."""
        return self.how.get("action") == "append"

    @property
    def required(self) -> bool:
        """By the command line or a file."""
        return self.how.get("required", self.positional and self.nargs in (None, "+"))

    @property
    def default(self) -> Any:
        default, kind = self.how.get("default"), self.how.get("type")
        if isinstance(default, str) and kind is not None:
            return kind(default)
        if default is None and self.how.get("action") == "store_true":
            return False
        return list(default) if isinstance(default, list) else default

    def value(self, entry: Entry) -> Any:
        """The value of an entry of a file or of --set. Null is the default."""
        if entry.value is None or (entry.value == "None" and self.how.get("default") is None):
            return self.default
        if not self.added and self.nargs not in ("*", "+"):
            return self._typed(entry, f"{entry.place}: {self.key}")
        items = [Entry(i, entry.place) for i in entry.value] if isinstance(entry.value, list) else [entry]
        return [self._typed(item, f"{entry.place}: {self.key}") for item in items]

    def value_of(self, text: str, flag: str) -> Any:
        """The value of a word on the command line, behind this flag."""
        value: int | str = text
        if self.how.get("type") is int:
            with contextlib.suppress(ValueError):
                value = int(text)
        return self._typed(Entry(value, flag, text), flag)

    def _typed(self, entry: Entry, what: str) -> Any:
        kind: Any = bool if self.switch else self.how.get("type", str)
        value, text = entry.value, entry.text
        if kind is not bool and type(value) in (int, float):
            text = text or str(value)  # `voice: 3` is text, and so is a new voice's `denoising_strength: 0.1`
        try:
            value = typed(value, kind, text) if kind in PLAIN else kind(text or typed(value, str))
        except TypeError as error:
            raise InputError(f"{what} must be {error}") from None
        except argparse.ArgumentTypeError as error:
            raise InputError(f"{what} {error}") from None
        except ValueError:
            raise InputError(f"{what} cannot be {value!r}") from None
        choices = self.how.get("choices")
        if choices is not None and value not in choices:
            raise InputError(f"{entry.place}: {unknown(self.key, value, map(str, choices))}")
        return value
