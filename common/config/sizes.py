"""What holds for the sizes of every network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from common.errors import InputError


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


def _whole_numbers(value: Any) -> list[int]:
    if isinstance(value, tuple):
        return [number for item in value for number in _whole_numbers(item)]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []
