"""An option of a command: what it is called, what a command line or a file may give it.

Commands write their options as tables that read like `--help`. A row of names alone takes options of the
table that all commands share (options.py):

    heading:
      voice backend
      phrases FILE                        a positional argument, with the name of its key
      files [FILE...]                     any number of arguments; without brackets one at least
      -o, --output DIR!                   the last word says what the value is; with ! it must be given
      --count N=4                         a whole number; without the option it is 4
      --listen [EAR]                      the value may be left out, and is "" then
      --checkpoint FILE...                may be repeated
      --stages onnx|trt                   one of these
      --force                             true where it is given
      --[no-]warm-up                      true or false, or neither
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from melforge.common.config.deployment import MOST_THREADS
from melforge.common.config.typed import typed
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError, unknown
from melforge.common.remote import NO_ADDRESS, is_address

PLAIN = (bool, int, float, str, Path)
LONGEST_WAIT = 1_000_000  # seconds: what sockets take ends somewhere


def positive(text: str, least: int = 1) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {text!r}")
    return int(text)


def finite(text: str) -> float:
    """A number, neither NaN nor infinite."""
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise argparse.ArgumentTypeError(f"must be a number, such as 1.5, not {text!r}")


def share(text: str) -> float:
    """A number from 0 to 1."""
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) <= 1:
            return number
    raise argparse.ArgumentTypeError(f"must be a share from 0 to 1, such as 0.3 for 30 %, not {text!r}")


def seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < LONGEST_WAIT:
            return number
    raise argparse.ArgumentTypeError(f"must be seconds above 0 and below {LONGEST_WAIT}, not {text!r}")


def threads(text: str) -> int:
    """With tens of thousands, which the system starts one by one, a command would not end."""
    if (number := positive(text)) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"must be {MOST_THREADS} at most, not {number}")
    return number


def port(text: str) -> int:
    """0 is any free one."""
    if (number := not_negative(text)) > 65535:
        raise argparse.ArgumentTypeError(f"must be 65535 at most, not {number}")
    return number


def local(text: str) -> str:
    """A path: as one, s3://bucket/run would be the folder "s3:" here."""
    if is_address(text.rpartition("=")[2]):
        raise argparse.ArgumentTypeError(f"{NO_ADDRESS}, not {text}: mount it, or copy it")
    return text


def local_path(text: str) -> Path:
    return Path(local(text))


def written(text: str) -> str:
    """A text. Bytes that the locale could not read are read as UTF-8."""
    if not re.search("[\ud800-\udfff]", text):
        return text
    try:
        return os.fsencode(text).decode()
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"is not UTF-8 (byte 0x{error.object[error.start]:02x})") from None


not_negative = partial(positive, least=0)
SHOWN = {"N0": "N", "PATH": "FILE", "PORT": "N"}  # words of a table that --help has not
# What a value is by the word for it in a table; by other words it is text. A FILE may be "-", or NAME=FILE.
TYPES: dict[str, Callable[[str], Any]] = {
    **{"N": positive, "N0": not_negative, "X": float, "SECONDS": seconds, "SHARE": share, "THREADS": threads},
    **{"FILE": local, "PATH": local_path, "DIR": local_path, "HZ": positive, "US": not_negative},
    "TEXT": written,
    "PORT": port,
}


class Option:
    """An option or a positional argument, by argparse's words for it; its key in files is its `dest`."""

    def __init__(self, names: tuple[str, ...], title: str, how: Mapping[str, Any]):
        longest = next((name for name in names if name.startswith("--")), names[0])
        action = how.get("action")
        self.names = names  # "-o", "--output"; without dashes it is a positional argument
        self.title = title  # of the part of --help where it stands
        self.how = how
        self.key: str = how.get("dest") or longest.lstrip("-").replace("-", "_")
        self.positional = not names[0].startswith("-")
        # As it is written on a command line.
        self.flag = str(how.get("metavar") or names[0]) if self.positional else names[-1]
        self.nargs = how.get("nargs")
        self.many = self.nargs in ("*", "+")
        self.added = action == "append"  # each time that it is given it adds a value to a list
        self.switch = action in ("store_true", argparse.BooleanOptionalAction)  # takes no value
        self.required: bool = how.get("required", self.positional and self.nargs in (None, "+"))
        # What stands for it on a command line, and of a switch whether it means true.
        self.words = dict.fromkeys(() if self.positional else names, True)
        if action is argparse.BooleanOptionalAction:
            self.words |= {name.replace("--", "--no-", 1): False for name in names}

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
        if not self.added and not self.many:
            return self._typed(entry, f"{entry.place}: {self.key}")
        items = [Entry(i, entry.place) for i in entry.value] if isinstance(entry.value, list) else [entry]
        return [self._typed(item, f"{entry.place}: {self.key}") for item in items]

    def value_of(self, text: str, flag: str) -> Any:
        """The value of a word on the command line, behind this flag."""
        if text.startswith("~/") and self.how.get("type") is not written:  # shells leave it in --output=~/x
            text = os.path.expanduser(text)  # noqa: PTH111
        value: int | str = text
        if not text and self.how.get("type") is not written and self.default != "":
            raise InputError(
                f"{flag} is empty: give a value, or leave it out"
            )  # as of a variable without one
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
            name, where = (what, "") if what == entry.place else (self.key, f"{entry.place}: ")
            raise InputError(where + unknown(name, value, map(str, choices)))
        return value


def read_table(text: str) -> Iterator[tuple[str, str, str]]:
    """(heading, the words of an option, its help) of each row of a table, see above."""
    title, words, about = "", "", ""
    for line in [*text.splitlines(), "end:"]:
        if line.startswith("        "):  # goes on with the help
            about = f"{about} {line.strip()}".strip()
            continue
        if words:
            yield title, words, about
        words, _, about = (part.strip() for part in line.strip().partition("  "))
        if line and not line.startswith(" "):
            title, words = line.rstrip(":"), ""


VALUE = re.compile(r"(\[?)(.+?)(\.\.\.)?\]?(!)?(?:=(.*))?")


def in_argparses_words(words: str, about: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names and keywords of a row of a table."""
    *names, last = words.replace(",", "").split()
    how: dict[str, Any] = {"help": about}
    if last.startswith("-"):
        either = {"action": argparse.BooleanOptionalAction if "[no-]" in last else "store_true"}
        return (*names, last.replace("[no-]", "")), how | either
    match = VALUE.fullmatch(last)
    assert match, words
    optional, metavar, many, required, default = match.groups()
    if "|" in metavar:
        how["choices"] = tuple(metavar.split("|"))
    else:
        how |= {"type": TYPES[metavar]} if metavar in TYPES else {}
        how["metavar"] = SHOWN.get(metavar, metavar)
    if names[0].startswith("-"):
        how |= {"action": "append", "default": []} if many else {}
        how |= {"nargs": "?", "const": ""} if optional else {}
        how |= {"required": True} if required else {}
    elif optional or many:
        how |= {"nargs": ("*" if optional else "+") if many else "?"} | ({"default": []} if many else {})
    if default is not None:
        how |= {"default": default, "help": f"{about} (default: {default})" if default else about}
    return tuple(names), how
