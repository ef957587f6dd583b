"""Hyper-parameter files: flat YAML that inherits through `parent_yaml`, typed into dataclasses.

Every value stands once. A key belongs to each dataclass that has a field of its name; a key that none has
is an error that names the file, the line and the nearest known key. `model` says whose file it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from melforge.common.config.aliases import own_entry, own_name, with_own_names
from melforge.common.config.typed import build, require_known
from melforge.common.config.yaml_file import Entry, parse_yaml, read_yaml
from melforge.common.errors import InputError, close_matches

PARENT = "parent_yaml"
MODEL = "model"
ROOT = Path(__file__).resolve().parents[2]  # of the checkout, or the folder of the installed packages


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
    entries = read_file(path, model)
    require_model(path, entries.pop(MODEL, None), model)
    if isinstance(overrides, Mapping):
        entries.update((own_name(key), _override(key, value)) for key, value in overrides.items())
    else:
        entries.update(map(read_override, overrides or ()))
    require_known(entries, {field.name for cls in classes for field in fields(cls)})
    return tuple(build(cls, entries, path) for cls in classes)


def require_model(path: str | Path, stated: Entry | None, wanted: str | None) -> None:
    """An InputError where a file says that it is of another model."""
    if stated and wanted and stated.value != wanted:
        whose = f"{path} is a file of {stated.value} ({stated.place}), not of {wanted}"
        raise InputError(f"{whose}: use one of hparams/{wanted}/")


def find_file(path: Path, model: str | None = None) -> Path:
    """A path that is not there is looked for where Melforge is installed: from any folder
    `hparams/fastpitch/infer.yaml` and `fastpitch/infer.yaml` are found, and of a `model` `infer.yaml` too.

    A FileNotFoundError where there is none.
    """
    shipped = ROOT / "hparams"
    folders = (ROOT, shipped, *([shipped / model] if model else []))
    if path.exists():
        return path
    if found := next((folder / path for folder in folders if (folder / path).is_file()), None):
        return found
    known = sorted(str(file.relative_to(ROOT)) for file in shipped.glob(f"*/{path.name}"))
    if not known:
        known = [f"hparams/{file}" for file in nearest(path, shipped)]
    advice = f": there is {', '.join(known)}" if known else ""
    raise FileNotFoundError(f"hyper-parameter file {path} not found{advice}")


def nearest(path: Path, shipped: Path) -> list[str]:
    """Of the shipped files those whose path, or name where only a name is given, is most like this one."""
    files = [str(file.relative_to(shipped)) for file in shipped.glob("*/*.yaml")]
    names = {file: file if len(path.parts) > 1 else Path(file).name for file in files}
    word = str(path).removeprefix("hparams/")
    near = close_matches(word, {*names.values()}, 0.8)
    return sorted(file for file, name in names.items() if name in near)


def read_file(path: str | Path, model: str | None = None) -> dict[str, Entry]:
    """The entries of a file, found by `find_file`, over those of its parents, any number of them."""
    path, named_by = find_file(Path(path), model), None
    read: list[Path] = []
    levels: list[dict[str, Entry]] = []
    while True:
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder: give a YAML file")
        if named_by and not path.exists():
            raise FileNotFoundError(f"{named_by.place}: {PARENT} {path} not found")
        here = path.resolve()
        if here in read:
            chain = " -> ".join(file.name for file in (*read, here))
            place = named_by.place if named_by else path
            raise InputError(f"{place}: {PARENT} goes in a circle ({chain})")
        read.append(here)
        levels.append(with_own_names(read_yaml(path)))
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


def _merged(parent: Any, child: Any) -> Any:
    if not (isinstance(parent, dict) and isinstance(child, dict)):
        return child
    return parent | {key: _merged(parent.get(key), value) for key, value in child.items()}


def read_override(text: str) -> tuple[str, Entry]:
    """ "key=value" as a user types it; the key by our name."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise InputError(f"--set {text}: write key=value")
    return own_name(key), _override(key, value)


def _override(key: str, value: Any) -> Entry:
    place = " ".join(f"--set {key}={value}".split())
    return own_entry(key, read_value(value, place) if isinstance(value, str) else Entry(value, place))


def read_value(value: str, place: str) -> Entry:
    """A value as a user types it on a command line."""
    try:
        return Entry(parse_yaml(value), place, value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{place}: {getattr(error, 'problem', None) or error}") from None


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
