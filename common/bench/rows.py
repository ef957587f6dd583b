"""Rows of measurements: which of them stand in one table, and their stages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]


def title_of(row: Row) -> str:
    length = f"{row['symbols']} symbols" if row["symbols"] else "a sentence"
    weights = "the voice" if row["weights"] == "voice" else "published sizes"
    return f"{row['name']}, {length}, {weights}"


def grouped(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each table, by its title; a peer stands beside what it is compared with."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(title_of(row), []).append(row)
    return tables


def merged(stages: Iterable[Row]) -> list[Row]:
    """One entry for each stage: chunks of several lengths are together."""
    found: dict[str, Row] = {}
    for stage in stages:
        one = found.setdefault(stage["stage"], {"stage": stage["stage"]})
        for key in ("calls", "seconds", "flops", "bytes"):
            value = stage.get(key)
            so_far = one.get(key, 0)
            one[key] = None if None in (value, so_far) else so_far + value
    return list(found.values())
