"""Tables in Markdown, of rows of measurements or of cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

# A heading, and what stands below it for a row.
Column = tuple[str, Callable[[dict[str, Any]], str]]


def table(headings: Sequence[str], cells: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in (headings, *cells))
    first, *lines = (f"| {' | '.join(line)} |" for line in escaped)
    return [first, "|" + "---|" * len(headings), *lines]


def table_of(columns: Sequence[Column], rows: Iterable[dict[str, Any]], head: int = 3) -> list[str]:
    """The same of rows; one that failed has its first `head` cells, and why."""
    return table([heading for heading, _ in columns], (cells_of(columns, row, head) for row in rows))


def cells_of(columns: Sequence[Column], row: dict[str, Any], head: int = 3) -> list[str]:
    if "failed" in row:
        first = [show(row) for _, show in columns[:head]]
        return [*first, f"failed: {row['failed']}", *[""] * (len(columns) - head - 1)]
    return [show(row) for _, show in columns]


def value(key: str, form: str | Callable[[Any], str] = "") -> Callable[[dict[str, Any]], str]:
    """What shows a key of a row; nothing where it is missing or None."""

    def show(row: dict[str, Any]) -> str:
        found = row.get(key)
        if found is None:
            return ""
        return format(found, form) if isinstance(form, str) else form(found)

    return show


def ms(seconds: float) -> str:
    found = seconds * 1e3
    return f"{found:.2f}" if found < 100 else f"{found:.0f}"


def mb(count: float) -> str:
    return f"{count / 1e6:.0f}"


def counts(numbers: Sequence[int]) -> str:
    """How many there are on all sides, or "99=100" where these differ."""
    return "=".join(map(str, sorted(set(numbers))))
