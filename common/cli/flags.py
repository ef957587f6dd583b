"""Options as NVIDIA's programs spell them: `_` for `-`, aliases, and each key of a model as an option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from melforge.common.config.aliases import own_name, require_one_name
from melforge.common.config.hparams import read_value
from melforge.common.config.yaml_file import Entry
from melforge.common.errors import InputError

TRUTHS = ("true", "false")


def read_flags(
    args: Sequence[str], known: Mapping[str, bool], hints: Callable[[], Mapping[str, Any]]
) -> tuple[list[str], dict[str, Entry], dict[str, str]]:
    """(arguments for argparse, the entries of keys given as options, our option -> as it was written).

    `known` has the command's options with their dashes, and whether each may be repeated; `hints` gives the
    type hints of the keys that are none. `--KEY VALUE`, `--KEY=VALUE`, or `--KEY` alone for what is true or
    false. What is neither an option nor a key is left to argparse.
    """
    rest: list[str] = []
    entries: dict[str, Entry] = {}
    written: dict[str, str] = {}
    names: list[str] = []  # as written, with `_`
    left = list(args)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += [word, *left]
            break
        flag, equals, value = word.partition("=")
        name = flag[2:].replace("-", "_")
        if not flag.startswith("--"):
            rest.append(word)
            continue
        if flag in known or any(option.startswith(flag) for option in known):  # argparse takes beginnings
            rest.append(word)
            names.append(name)
            continue
        key = own_name(name)
        option = f"--{key.replace('_', '-')}"
        if option in known:
            rest.append(f"{option}{equals}{value}")
            written[option] = flag
        elif key in hints():
            if not equals:
                value = _value(flag, hints()[key], left)
            entries[key] = read_value(value, flag if not equals and value == "true" else f"{flag}={value}")
        else:
            rest.append(word)
            continue
        names.append(name)
    many = [option[2:].replace("-", "_") for option, repeated in known.items() if repeated]
    require_one_name(names, "--", many)
    return rest, entries, written


def _value(flag: str, hint: Any, left: list[str]) -> str:
    """The value of a key's option, taken from what is left of the command line."""
    has = bool(left) and not left[0].startswith("--")
    if hint is bool:
        return left.pop(0) if has and left[0].lower() in TRUTHS else "true"
    if not has:
        raise InputError(f"{flag} needs a value")
    return left.pop(0)
