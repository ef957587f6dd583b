"""Hyper-parameter files: flat YAML that inherits through `parent_yaml`, typed into dataclasses.

Every value stands once. A key belongs to each dataclass that has a field of its name; a key that none has
is an error that names the file, the line and the nearest known key. `model` says whose file it is.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from common.errors import InputError

PARENT = "parent_yaml"
MODEL = "model"
LARGEST_FILE = 1 << 20  # bytes
MANY_KEYS = 30  # more are not listed in an error
# What other projects' files call a key of ours, for the hint that an unknown key gets.
NAMES_ELSEWHERE = {
    "sr": "sampling_rate",
    "sample_rate": "sampling_rate",
    "n_fft": "filter_length",
    "win_len": "win_length",
    "hop_len": "hop_length",
    "num_mels": "n_mel_channels",
    "alpha": "pace",
}


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

    def refuse_tag(self, node):
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        problem = f"the tag {tag} is not allowed: these files hold values, nothing that runs"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


_Loader.add_constructor(None, _Loader.refuse_tag)


@dataclass(frozen=True)
class Entry:
    """A value and where it stands. `text` is what a user typed for it on a command line."""

    value: Any
    place: str
    text: str | None = None


def load_hparams(
    path: str | Path,
    *classes: type,
    overrides: Mapping[str, Any] | Iterable[str] | None = None,
    model: str | None = None,
) -> tuple:
    """Read a YAML file and its parents into one instance of each dataclass in `classes`.

    `overrides` come last and win: a mapping, or "key=value" strings as `--set` takes them. Whatever is wrong
    (a key, a type, a missing value, a file of another model than `model`) is an InputError that says where; a
    file that is not there, a FileNotFoundError.
    """
    entries = read_file(path)
    require_model(path, entries.pop(MODEL, None), model)
    entries.update(read_overrides(overrides))
    require_known(entries, {field.name for cls in classes for field in fields(cls)})
    return tuple(build(cls, entries, path) for cls in classes)


def require_model(path: str | Path, stated: Entry | None, wanted: str | None) -> None:
    """An InputError where a file says that it is of another model."""
    if stated and wanted and stated.value != wanted:
        raise InputError(
            f"{path} is a file of {stated.value} ({stated.place}), not of {wanted}: "
            f"use one of hparams/{wanted}/"
        )


def require_known(entries: Mapping[str, Entry], known: Iterable[str]) -> None:
    """An InputError for the first key that is none of `known`, with its place and the nearest that is."""
    known = set(known)
    for key, entry in entries.items():
        if key not in known:
            raise InputError(f"{entry.place}: unknown key {key!r}; {nearest(key, known)}")


def nearest(key: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    if NAMES_ELSEWHERE.get(key) in known:
        near = [NAMES_ELSEWHERE[key]]
    if near:
        return f"did you mean {near[0]!r}?"
    if len(known) > MANY_KEYS:
        return "no key is like it (--print-hparams shows all)"
    return f"known keys: {', '.join(sorted(known))}"


def read_file(path: str | Path) -> dict[str, Entry]:
    """The entries of a file over those of its parents, any number of them."""
    path, named_by = Path(path), None
    read: list[Path] = []
    levels: list[dict[str, Entry]] = []
    while True:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: give a YAML file")
        if not path.exists():
            what = f"{named_by.place}: {PARENT}" if named_by else "hyper-parameter file"
            raise FileNotFoundError(f"{what} {path} not found")
        here = path.resolve()
        if here in read:
            chain = " -> ".join(file.name for file in (*read, here))
            raise InputError(f"{named_by.place}: {PARENT} goes in a circle ({chain})")
        read.append(here)
        levels.append(_parse(path))
        named_by = levels[-1].pop(PARENT, None)
        if named_by is None:
            break
        if not isinstance(named_by.value, str) or not named_by.value:
            raise InputError(f"{named_by.place}: {PARENT} must name a file, not {named_by.value!r}")
        path = path.parent / named_by.value
    entries: dict[str, Entry] = {}
    for level in reversed(levels):
        for key, entry in level.items():
            if key in entries:
                if key == MODEL and entry.value != entries[key].value:
                    raise InputError(
                        f"{entry.place}: {MODEL} is {entry.value!r}, but {entries[key].value!r} in "
                        f"{entries[key].place}: a file inherits from those of its own model"
                    )
                entry = Entry(_merged(entries[key].value, entry.value), entry.place)
            entries[key] = entry
    return entries


def _parse(path: Path) -> dict[str, Entry]:
    """The file's top level."""
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise InputError(f"{path} is larger than {LARGEST_FILE} bytes: not a hyper-parameter file")
    try:
        loader = _Loader(content.decode("utf-8"))
        node = loader.get_single_node()
        values = {} if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{path}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no such date
        raise InputError(f"{path} is not readable as YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold lines of `key: value`")
    lines = {key.value: key.start_mark.line + 1 for key, _ in node.value} if values else {}
    return {key: Entry(value, f"{path}, line {lines[key]}") for key, value in values.items()}


def _merged(parent: Any, child: Any) -> Any:
    if not (isinstance(parent, dict) and isinstance(child, dict)):
        return child
    return parent | {key: _merged(parent.get(key), value) for key, value in child.items()}


def read_overrides(overrides: Mapping[str, Any] | Iterable[str] | None) -> dict[str, Entry]:
    """The entries of a mapping, or of "key=value" strings as `--set` takes them."""
    if isinstance(overrides, Mapping):
        return {key: _override(key, value) for key, value in overrides.items()}
    return dict(map(read_override, overrides or ()))


def read_override(text: str) -> tuple[str, Entry]:
    """ "key=value" as a user types it."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise InputError(f"--set {text}: write key=value")
    return key, _override(key, value)


def _override(key: str, value: Any) -> Entry:
    place = " ".join(f"--set {key}={value}".split())
    if not isinstance(value, str):
        return Entry(value, place)
    try:
        return Entry(yaml.load(value, _Loader), place, value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{place}: {getattr(error, 'problem', None) or error}") from None


def build(cls: type, entries: Mapping[str, Entry], where: str | Path) -> Any:
    """An instance of a dataclass from the entries of its fields; `where` is named if one is missing."""
    hints = typing.get_type_hints(cls)
    own = {field.name: field for field in fields(cls) if field.init}
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
    except ValueError as error:
        raise located(error, {name: entries[name] for name in values}, where) from None


def typed_entry(key: str, entry: Entry, hint: Any) -> Any:
    """The entry's value as the type hint says."""
    try:
        return typed(entry.value, hint, entry.text)
    except TypeError as error:
        raise InputError(f"{entry.place}: {key} must be {error}") from None


def located(error: ValueError, entries: Mapping[str, Entry], elsewhere: str | Path = "") -> InputError:
    """The error with the places of the values that it names."""
    named = [entries[word].place for word in re.findall(r"\w+", str(error)) if word in entries]
    where = " and ".join(dict.fromkeys(named)) or elsewhere
    return InputError(f"{where}: {error}" if where else str(error))


def typed(value: Any, hint: Any, text: str | None = None) -> Any:
    """`value` as `hint` says; where it cannot be, a TypeError "<what it must be>, not <what it is>"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
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
        raise TypeError(f"one of {', '.join(map(repr, arguments))}, not {value!r}")
    if origin in (tuple, list) and isinstance(value, list | tuple):
        if origin is list or arguments[-1] is Ellipsis:
            return origin(typed(item, arguments[0]) for item in value)
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


def backend_texts(text: str) -> list[str]:
    """ "onnx,torch" is one after the other, as for a benchmark; "acoustic=onnx,vocoder=torch" is one."""
    return [text] if "=" in text else text.split(",")


def line(key: str, value: Any, place: str) -> str:
    return f"{key}: {shown(value)}  # {place}\n"


def shown(value: Any) -> str:
    """A value as YAML in one line."""
    value = _plain(value)
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf"))
    text = text.removesuffix("...\n").strip()
    return json.dumps(value) if "\n" in text else text


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
