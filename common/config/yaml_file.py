"""YAML files as values that know their file and line. Aliases, repeated keys and tags are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from melforge.common.errors import InputError
from melforge.common.files import decode_text

LARGEST_FILE = 1 << 20  # bytes
TAG = "tag:yaml.org,2002:"
SCALARS = {TAG + name for name in ("null", "bool", "int", "float", "str", "timestamp")}
# libyaml reads a voice's file ten times as fast as Python does.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Entry:
    """A value and where it stands. `text` is what a user typed for it on a command line."""

    value: Any
    place: str
    text: str | None = None


class Section(dict[str, Any]):
    """A mapping in a file, and where each of its keys stands."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, str] = {}


def entries_of(value: Any, where: str) -> dict[str, Entry]:
    """The entries of a mapping; an InputError for anything else. `where` is the place of what has no line."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a mapping of keys to values")
    places = value.places if isinstance(value, Section) else {}
    return {key: Entry(item, places.get(key, where)) for key, item in value.items()}


def read_yaml(path: Path) -> dict[str, Entry]:
    """The top level of a file; its nested mappings are Sections."""
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise InputError(f"{path} is larger than {LARGEST_FILE} bytes: not a hyper-parameter file")
    text = decode_text(content, str(path))
    try:
        value = parse_yaml(text, str(path))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        # libyaml counts a line more at the end of a file.
        line = f", line {min(mark.line, text.rstrip().count(chr(10))) + 1}" if mark else ""
        raise InputError(f"{path}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no such date
        raise InputError(f"{path} is not readable as YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(value, dict | None):
        raise InputError(f"{path}: must hold lines of `key: value`")
    return entries_of(value or {}, str(path))


def parse_yaml(text: str, name: str = "") -> Any:
    """The value of a YAML document; None for an empty one. What is wrong is a yaml.YAMLError."""
    parser = Loader(text)
    value = None
    try:
        parser.get_event()  # the stream's start
        if not parser.check_event(yaml.StreamEndEvent):
            parser.get_event()  # the document's start
            value = _value(parser, name)
            parser.get_event()  # its end
        if not parser.check_event(yaml.StreamEndEvent):
            raise _error("a second document begins here", parser.get_event())
    finally:
        parser.dispose()
    return value


def _value(parser: Any, name: str) -> Any:
    """The value that begins with the next event. It is built from events, since an alias shows in them only,
    and since Python's recursion has a limit: libyaml's own loader overflows the stack of a deep document."""
    event = parser.get_event()
    if isinstance(event, yaml.AliasEvent):
        raise _error("aliases (*name) are not allowed", event)
    if isinstance(event, yaml.ScalarEvent):
        tag = event.tag
        if tag in (None, "!"):
            tag = parser.resolve(yaml.ScalarNode, event.value, event.implicit)
        _require_tag(tag, SCALARS, event)
        return parser.yaml_constructors[tag](parser, yaml.ScalarNode(tag, event.value))
    if isinstance(event, yaml.SequenceStartEvent):
        _require_tag(event.tag, {None, "!", TAG + "seq"}, event)
        items = []
        while not parser.check_event(yaml.SequenceEndEvent):
            items.append(_value(parser, name))
        parser.get_event()
        return items
    _require_tag(event.tag, {None, "!", TAG + "map"}, event)
    section, lines = Section(), {}
    while not parser.check_event(yaml.MappingEndEvent):
        start = parser.peek_event()
        key, line = _value(parser, name), start.start_mark.line + 1
        if not isinstance(key, str):
            word = getattr(start, "value", None)
            is_word = f": YAML reads {word} so; write it in quotes" if word else ""
            raise _error(f"the key {key!r} is not text{is_word}", start)
        if key in section:
            raise _error(f"{key} stands here a second time (first in line {lines[key]})", start)
        section[key] = _value(parser, name)
        lines[key], section.places[key] = line, f"{name}, line {line}"
    parser.get_event()
    return section


def _require_tag(tag: str | None, allowed: set[Any], event: Any) -> None:
    if tag not in allowed:
        tag = str(tag).replace(TAG, "!!")
        raise _error(f"the tag {tag} is not allowed: these files hold values, nothing that runs", event)


def _error(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
