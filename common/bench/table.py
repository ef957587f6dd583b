"""Rows of measurements, and Markdown tables of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from melforge.common.bench.workload import SPEAK_MANY

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]  # a heading, and the text of a row's cell


def title_of(row: Row) -> str:
    what = f"{row['symbols']} symbols" if row["symbols"] else "a sentence"
    if file := row.get("texts"):
        what = f"{'throughput' if row['call'] == SPEAK_MANY else 'new texts'} of {file}"
    weights = "the voice" if row["weights"] == "voice" else "published sizes"
    return f"{row['name']}, {what}, {weights}"


def grouped(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each table, by its title."""
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
            both = one.get(key, 0), stage.get(key)
            one[key] = None if None in both else sum(both)
    return list(found.values())


def table(headings: Sequence[str], cells: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in (headings, *cells))
    first, *lines = (f"| {' | '.join(line)} |" for line in escaped)
    return [first, "|" + "---|" * len(headings), *lines]


def table_of(columns: Sequence[Column], rows: Iterable[Row], head: int = 3) -> list[str]:
    """The same of rows; one that failed has its first `head` cells, and why."""
    return table([heading for heading, _ in columns], (cells_of(columns, row, head) for row in rows))


def cells_of(columns: Sequence[Column], row: Row, head: int = 3) -> list[str]:
    if "failed" not in row:
        return [show(row) for _, show in columns]
    first = [show(row) for _, show in columns[:head]]
    return [*first, f"failed: {row['failed']}", *[""] * (len(columns) - head - 1)]


def columns_of(*lines: str) -> tuple[Column, ...]:
    """A column for each "heading: key" or "heading: key form", the form being format()'s or one of FORMS.

    The key may be dotted: "latency.mean". Nothing is shown where a value is missing or None.
    """
    return tuple(_column(*line.split(": ")) for line in lines)


def spread(name: str, key: str, points: Mapping[str, str]) -> list[str]:
    """For `columns_of`: what `summary` says under a key, in ms; `points` are its parts by their headings."""
    headings = (f"{name} {point}" if number == 0 else point for number, point in enumerate(points))
    return [f"{heading}: {key}.{part} ms" for heading, part in zip(headings, points.values(), strict=True)]


def _column(heading: str, text: str) -> Column:
    key, _, form = text.partition(" ")

    def show(row: Row) -> str:
        found: Any = row
        for name in key.split("."):
            found = None if found is None else found.get(name)
        if found is None:
            return ""
        return FORMS[form](found) if form in FORMS else format(found, form)

    return heading, show


def ms(seconds: float) -> str:
    found = seconds * 1e3
    return f"{found:.2f}" if found < 100 else f"{found:.0f}"


def counts(numbers: Sequence[int]) -> str:
    """How many there are on all sides, or "99=100" where these differ."""
    return "=".join(map(str, sorted(set(numbers))))


FORMS: dict[str, Callable[[Any], str]] = {
    "ms": ms,
    "margin": lambda seconds: ms(seconds) + " (gap!)" * (seconds < 0),
    "MB": lambda count: f"{count / 1e6:.0f}",
    "MB.3": lambda count: f"{count / 1e6:.3f}",
    "ms.3": lambda seconds: f"{seconds * 1e3:.3f}",
    "range": lambda found: f"{found['mean']:.0f} ({found['min']} to {found['max']})",
    "MB.1": lambda count: f"{count / 1e6:.1f}",
    "giga": lambda rate: f"{rate / 1e9:.3g}",
    "share": lambda share: f"{share:.1%}" if share <= 1 else "more",
    "tera": lambda rate: f"{rate / 1e12:.3g}",
    "counts": counts,
}
