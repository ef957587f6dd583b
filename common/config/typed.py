"""Values of files as dataclasses: types by the fields' hints, and errors that name the place."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from melforge.common.config.yaml_file import Entry, entries_of
from melforge.common.errors import InputError, close_matches

MANY_KEYS = 30  # more are not listed in an error
# What others call a key of ours, for the hint that an unknown key gets (alpha is 1 / pace).
NAMES_ELSEWHERE = {"sample_rate": "sampling_rate", "alpha": "pace", "speed": "pace"}


def require_known(entries: Mapping[str, Entry], known: Iterable[str]) -> None:
    """An InputError for the first key that is none of `known`, with its place and the nearest that is."""
    known = set(known)
    for key, entry in entries.items():
        if key not in known:
            raise InputError(f"{entry.place}: unknown key {key!r}; {nearest(key, known)}")


def likely_name(key: str, known: Collection[str]) -> str | None:
    """The known key that is meant by one that is not known, if any is like it."""
    near = [NAMES_ELSEWHERE.get(key, ""), *close_matches(key, known, 0.6)]
    return next((name for name in near if name in known), None)


def nearest(key: str, known: set[str]) -> str:
    if near := likely_name(key, known):
        return f"did you mean {near!r}?"
    if len(known) > MANY_KEYS:
        return "no key is like it (--print-hparams shows all)"
    return f"known keys: {', '.join(sorted(known))}"


T = TypeVar("T")
SCALARS = {kind.__name__: kind for kind in (bool, int, float, str)}


@cache
def hints_of(owner: Any) -> dict[str, Any]:
    """The type hints of a dataclass or function. Most are plain words, which need no evaluation."""
    words = getattr(owner, "__annotations__", {})
    if len(getattr(owner, "__mro__", ())) == 2 and all(word in SCALARS for word in words.values()):
        return {name: SCALARS[word] for name, word in words.items()}
    return typing.get_type_hints(owner)


def build(cls: type[T], entries: Mapping[str, Entry], where: str | Path) -> T:
    """An instance of a dataclass from the entries of its fields; `where` is named if one is missing."""
    hints = hints_of(cls)
    own = {field.name: field for field in fields_of(cls) if field.init}
    missing = [
        name
        for name, field in own.items()
        if name not in entries and field.default is MISSING and field.default_factory is MISSING
    ]
    values = {name: typed_entry(name, entries[name], hints[name]) for name in own if name in entries}
    if missing:
        raise InputError(f"{where}: {', '.join(missing)} missing (for {cls.__name__})")
    try:
        return cls(**values)
    except InputError as error:
        raise located(error, {name: entries[name] for name in values}, where) from None


def build_section(cls: type[T], section: Any, where: str) -> T:
    """A dataclass from a mapping that is for it alone: a key that is no field of it is an InputError."""
    entries = entries_of(section, where)
    require_known(entries, [field.name for field in fields_of(cls)])
    return build(cls, entries, where)


def typed_options(cls: type, entries: Mapping[str, Entry]) -> dict[str, Any]:
    """The keywords of a class's constructor, checked as a dataclass's fields are."""
    hints = {name: hint for name, hint in hints_of(cls.__init__).items() if name != "return"}
    require_known(entries, hints)
    return {name: typed_entry(name, entry, hints[name]) for name, entry in entries.items()}


def fields_of(cls: type) -> tuple[Field[Any], ...]:
    return fields(cls)  # pyright: ignore[reportArgumentType] (every class here is a dataclass)


def typed_entry(key: str, entry: Entry, hint: Any) -> Any:
    """The entry's value as the type hint says."""
    if isinstance(hint, type) and is_dataclass(hint):
        return build_section(hint, entry.value, f"{entry.place}: {key}")
    try:
        return typed(entry.value, hint, entry.text)
    except TypeError as error:
        raise InputError(f"{entry.place}: {key} must be {error}") from None


def located(error: ValueError, entries: Mapping[str, Entry], elsewhere: str | Path = "") -> InputError:
    """The error with the places of the values that it names; an option's is its name, said once."""
    named = [entries[word].place for word in re.findall(r"\w+", str(error)) if word in entries]
    where = " and ".join(dict.fromkeys(named)) or str(elsewhere)
    if where == f"--{(name := str(error).partition(' ')[0]).replace('_', '-')}":
        return InputError(where + str(error).removeprefix(name))
    return InputError(f"{where}: {error}" if where else str(error))


def typed(value: Any, hint: Any, text: str | None = None) -> Any:
    """`value` as `hint` says; where it cannot be, a TypeError "<what it must be>, not <what it is>"."""
    if hint is Any or (text is None and type(value) is hint and hint in (bool, int, str)):
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value in (None, "None") and type(None) in arguments:
            return None  # NVIDIA's files write None, which is text to YAML
        choices = [choice for choice in arguments if choice is not type(None)]
        for choice in choices:
            try:
                return typed(value, choice, text)
            except TypeError:
                continue
        raise TypeError(f"{' or '.join(map(_name, arguments))}, not {value!r}")
    if origin is typing.Literal:
        for choice in arguments:
            if (value == choice and type(value) is type(choice)) or text == choice:
                return choice
        raise TypeError(f"{_name(hint)}, not {value!r}")
    if origin in (tuple, list, Sequence) and isinstance(value, list | tuple):
        if origin is not tuple or arguments[-1] is Ellipsis:
            return (list if origin is list else tuple)(typed(item, arguments[0]) for item in value)
        if len(value) == len(arguments):
            return tuple(typed(item, item_hint) for item, item_hint in zip(value, arguments, strict=True))
    elif origin is dict and isinstance(value, dict):
        return {key: typed(item, arguments[1]) for key, item in value.items()}
    elif hint is str and isinstance(text or value, str):
        return text or value  # what a user typed is text even where YAML would make a number of it
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)  # YAML 1.1 takes 1e-4, without a point, for text
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    elif (hint is dict and isinstance(value, dict)) or (
        hint in (int, bool, list, tuple, type(None)) and type(value) is hint
    ):
        return value
    raise TypeError(f"{_name(hint)}, not {value!r}")


def _name(hint: Any) -> str:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    if hint in words:
        return words[hint]
    if hint is type(None):
        return "null"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, list, Sequence):
        if origin is not tuple or arguments[-1] is Ellipsis:
            return f"a list, each item {_name(arguments[0])}"
        return f"a list of {len(arguments)} items ({', '.join(map(_name, arguments))})"
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin is dict:
        return f"a mapping, each value {_name(arguments[1])}"
    return "a mapping" if hint is dict else getattr(hint, "__name__", str(hint))


def require_sizes(config: Any, may_be_zero: Sequence[str] = (), odd: Sequence[str] = ()) -> None:
    """An InputError that names a field of a config with a value that no network can have."""
    for name in (f.name for f in fields(config)):
        value = getattr(config, name)
        least = 0 if name in may_be_zero else 1
        if any(size < least for size in _whole_numbers(value)):
            raise InputError(f"{name} must be at least {least}, not {value}")
        if (name == "dropout" or name.startswith("p_")) and not 0 <= value < 1:
            raise InputError(f"{name} must be from 0 to below 1, not {value}")
        if name in odd and value % 2 == 0:
            raise InputError(f"{name} {value} must be odd, to keep the length")


def require_shares(settings: Any) -> None:
    """An InputError that names a field `..._share` that is not from 0 to 1."""
    for name in (f.name for f in fields(settings) if f.name.endswith("_share")):
        if not 0 <= getattr(settings, name) <= 1:
            raise InputError(f"{name} must be a share from 0 to 1, not {getattr(settings, name):g}")


def _whole_numbers(value: Any) -> list[int]:
    if isinstance(value, tuple):
        return [number for item in value for number in _whole_numbers(item)]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []
