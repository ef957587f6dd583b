"""Names of units of measurement, one and many."""

from __future__ import annotations

from common.text.english.reading import tables


def plural_unit(name: str) -> str:
    head, *tail = name.split(" ")
    if head in ("cubic", "square"):
        head, *tail = tail[0], *tail[1:]
        return f"{name.split(' ')[0]} {tables.PLURALS.get(head, head + 's')}"
    return " ".join([tables.PLURALS.get(head, head + "s"), *tail])


def singular_unit(name: str) -> str:
    """ "kilometers per hour" -> "kilometer per hour"."""
    for unit in (*tables.UNITS.values(), "degree"):
        plural = plural_unit(unit)
        if name.startswith(plural):
            return unit + name[len(plural) :]
    return name


def singular(unit: str) -> str:
    return tables.UNITS.get(unit, unit)
