"""Hyper-parameter files: flat YAML that inherits through `parent_yaml`, typed into dataclasses.

Every value stands once. A key belongs to each dataclass that has a field of its name; a key that none has
is an error that names the file, the line and the nearest known key.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

PARENT = "parent_yaml"
LARGEST_FILE = 1 << 20  # bytes


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases (a few lines of them can stand for gigabytes) and without repeated keys."""

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node, deep=False):
        lines: dict[str, int] = {}
        for key_node, _ in node.value:
            key, mark = self.construct_object(key_node, deep=True), key_node.start_mark
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is not text", problem_mark=mark)
            if key in lines:
                problem = f"{key} stands here a second time (first in line {lines[key]})"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
            lines[key] = mark.line + 1
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class _Entry:
    """A value and where it stands. `text` is what a user typed for it on a command line."""

    value: Any
    place: str
    text: str | None = None


def load_hparams(
    path: str | Path, *classes: type, overrides: Mapping[str, Any] | Iterable[str] | None = None
) -> tuple:
    """Read a YAML file and its parents into one instance of each dataclass in `classes`.

    `overrides` come last and win: a mapping, or "key=value" strings as `--set` takes them. Whatever is wrong
    (a key, a type, a missing value) is a ValueError that says where; a file that is not there, a
    FileNotFoundError.
    """
    entries = _read(Path(path), ())
    entries.update(_overrides(overrides))
    known = {field.name for cls in classes for field in fields(cls)}
    for key, entry in entries.items():
        if key not in known:
            raise ValueError(f"{entry.place}: unknown key {key!r}; {_nearest(key, known)}")
    return tuple(_build(cls, entries, path) for cls in classes)


def _nearest(key: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(known))}"


def _read(path: Path, children: tuple[Path, ...]) -> dict[str, _Entry]:
    """The entries of a file over those of its parents."""
    here = path.resolve()
    if here in children:
        chain = " -> ".join(child.name for child in (*children, here))
        raise ValueError(f"{path}: {PARENT} goes in a circle ({chain})")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give a YAML file")
    if not path.exists():
        raise FileNotFoundError(f"hyper-parameter file {path} not found")
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{path} is larger than {LARGEST_FILE} bytes: not a hyper-parameter file")
    values, lines = _parse(path)
    own = {key: _Entry(value, f"{path}, line {lines[key]}") for key, value in values.items()}
    parent = own.pop(PARENT, None)
    if parent is None:
        return own
    if not isinstance(parent.value, str) or not parent.value:
        raise ValueError(f"{parent.place}: {PARENT} must name a file, not {parent.value!r}")
    parent_path = path.parent / parent.value
    if not parent_path.is_file():
        raise FileNotFoundError(f"{parent.place}: {PARENT} {parent_path} not found")
    entries = _read(parent_path, (*children, here))
    for key, entry in own.items():
        if key in entries:
            entry = _Entry(_merged(entries[key].value, entry.value), entry.place)
        entries[key] = entry
    return entries


def _parse(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The file's top level: key -> value, and key -> line."""
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        values = {} if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{path}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no such date
        raise ValueError(f"{path} is not readable as YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must hold lines of `key: value`")
    if not values:
        return {}, {}
    return values, {key_node.value: key_node.start_mark.line + 1 for key_node, _ in node.value}


def _merged(parent: Any, child: Any) -> Any:
    if not (isinstance(parent, dict) and isinstance(child, dict)):
        return child
    return parent | {key: _merged(parent.get(key), value) for key, value in child.items()}


def _overrides(overrides: Mapping[str, Any] | Iterable[str] | None) -> dict[str, _Entry]:
    if overrides is None:
        return {}
    if isinstance(overrides, Mapping):
        pairs = list(overrides.items())
    else:
        overrides = list(overrides)
        bad = [text for text in overrides if "=" not in text]
        if bad:
            raise ValueError(f"--set {bad[0]}: write key=value")
        pairs = [tuple(part.strip() for part in text.split("=", 1)) for text in overrides]
    entries = {}
    for key, value in pairs:
        place, text = f"--set {key}={value}", value if isinstance(value, str) else None
        if text is not None:
            try:
                value = yaml.load(text, _Loader)
            except (yaml.YAMLError, ValueError, RecursionError) as error:
                raise ValueError(f"{place}: {getattr(error, 'problem', None) or error}") from None
        entries[key] = _Entry(value, place, text)
    return entries


def _build(cls: type, entries: Mapping[str, _Entry], path: str | Path) -> Any:
    hints = typing.get_type_hints(cls)
    values, missing = {}, []
    for field in fields(cls):
        if not field.init:
            continue
        if field.name in entries:
            entry = entries[field.name]
            try:
                values[field.name] = _typed(entry.value, hints[field.name], entry.text)
            except TypeError as error:
                raise ValueError(f"{entry.place}: {field.name} must be {error}") from None
        elif field.default is MISSING and field.default_factory is MISSING:
            missing.append(field.name)
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} missing (for {cls.__name__})")
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _typed(value: Any, hint: Any, text: str | None = None) -> Any:
    """`value` as `hint` says; where it cannot be, a TypeError "<what it must be>, not <what it is>"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        choices = [choice for choice in arguments if choice is not type(None)]
        for choice in choices:
            try:
                return _typed(value, choice, text)
            except TypeError:
                continue
        raise TypeError(f"{' or '.join(map(_name, arguments))}, not {value!r}")
    if origin is typing.Literal:
        for choice in arguments:
            if (value == choice and type(value) is type(choice)) or text == choice:
                return choice
        raise TypeError(f"one of {', '.join(map(repr, arguments))}, not {value!r}")
    if origin in (tuple, list) and isinstance(value, list | tuple):
        if origin is list or arguments[-1] is Ellipsis:
            return origin(_typed(item, arguments[0]) for item in value)
        if len(value) == len(arguments):
            return tuple(_typed(item, item_hint) for item, item_hint in zip(value, arguments, strict=True))
    elif origin is dict and isinstance(value, dict):
        return {key: _typed(item, arguments[1]) for key, item in value.items()}
    elif hint is str and isinstance(text or value, str):
        return text or value  # what a user typed is text even where YAML would make a number of it
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)  # YAML 1.1 takes 1e-4, without a point, for text
        except (ValueError, OverflowError):
            pass
    elif hint in (int, bool, dict, list, tuple, type(None)) and type(value) is hint:
        return value
    raise TypeError(f"{_name(hint)}, not {value!r}")


def _name(hint: Any) -> str:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    if hint in words:
        return words[hint]
    if hint is type(None):
        return "null"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, list):
        if origin is list or arguments[-1] is Ellipsis:
            return f"a list, each item {_name(arguments[0])}"
        return f"a list of {len(arguments)} items ({', '.join(map(_name, arguments))})"
    return "a mapping" if origin is dict or hint is dict else getattr(hint, "__name__", str(hint))
