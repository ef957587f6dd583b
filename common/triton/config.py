"""config.pbtxt: protocol buffers' text format, written so that people can read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from melforge.common.triton.tensors import TEXT_TYPE, Tensor

TYPES = {
    **{"int32": "TYPE_INT32", "int64": "TYPE_INT64"},
    **{"float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64"},
    TEXT_TYPE: "TYPE_STRING",
}
LINE = 100  # characters of a message that stays in one line


@dataclass(frozen=True)
class Constant:
    """A name of an enumeration, written without quotes."""

    name: str


def tensor_entry(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "data_type": Constant(TYPES[tensor.dtype]), "dims": list(tensor.dims)}


def input_entry(tensor: Tensor, ragged: bool) -> dict[str, Any]:
    entry = {**tensor_entry(tensor), **({"optional": True} if tensor.optional else {})}
    # Without this only requests of equal lengths would share a batch.
    return {**entry, "allow_ragged_batch": True} if ragged else entry


def to_text(message: Mapping[str, Any]) -> str:
    """A message as text, a field a line; values are scalars, messages (mappings), or sequences of either."""
    return "".join(f"{line}\n" for name, value in message.items() for line in _field(name, value))


def _field(name: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [name + " " + "\n".join(_block(value))]
    if isinstance(value, list | tuple):
        items: Sequence[Any] = value
        if not any(isinstance(item, Mapping) for item in items):
            return [f"{name}: [{', '.join(map(_scalar, items))}]"]
        blocks = [_indent("\n".join(_block(item))) for item in items]
        return [f"{name} [\n" + ",\n".join(blocks) + "\n]"]
    return [f"{name}: {_scalar(value)}"]


def _block(message: Mapping[str, Any]) -> list[str]:
    fields = [line for name, value in message.items() for line in _field(name, value)]
    short = "{ " + ", ".join(fields) + " }" if fields else "{ }"
    if len(short) <= LINE and "\n" not in short:
        return [short]
    return ["{", *map(_indent, fields), "}"]


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _scalar(value: Any) -> str:
    if isinstance(value, Constant):
        return value.name
    return json.dumps(value, ensure_ascii=False)  # numbers, true and false, and strings with their escapes
