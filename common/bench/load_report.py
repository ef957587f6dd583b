"""Pages and plots of a server under load, whatever it serves: a table and panels for each kind of load."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from melforge.common.bench.machine import versions
from melforge.common.bench.picture import draw_panels
from melforge.common.bench.table import Column, Row, table_of
from melforge.common.files import write_bytes

HEIGHT = 3.4  # of a plot's panel, in inches


def results_of(asked: str, rows: Sequence[Row], command: str) -> dict[str, Any]:
    """What is written as JSON; `asked` says in a line what was asked of which server."""
    return {"command": command, "asked": asked, "client": versions("cpu"), "rows": list(rows)}


def markdown(
    results: dict[str, Any],
    kinds: Iterable[str],
    columns: Callable[[str], Sequence[Column]],
    explained: str,
    more: Callable[[str, Sequence[Row]], Iterable[str]] = lambda kind, rows: (),
) -> str:
    """The command, the client's machine, a table for each kind of load, and what their columns mean.

    `more` gives further lines behind a kind's table.
    """
    known = (f"{name} {value}" for name, value in results["client"].items() if value is not None)
    lines = ["```bash", results["command"], "```", "", results["asked"], "", f"Client: {', '.join(known)}"]
    for kind in kinds:
        if rows := [row for row in results["rows"] if row["load"] == kind]:
            lines += ["", f"## {kind.capitalize()}", "", *table_of(columns(kind), rows, head=3)]
            lines += [*_errors_of(rows), *more(kind, rows)]
    return "\n".join([*lines, "", explained, ""])


def _errors_of(rows: Sequence[Row]) -> list[str]:
    """The lines that say which errors came, with a blank one before."""
    errors = [
        f"- {row['number']:g}: {count} times {what}"
        for row in rows
        for what, count in row["by_error"].items()
    ]
    return ["", *errors] if errors else []


def draw(
    rows: Sequence[Row], kinds: Iterable[str], panels: Mapping[str, Callable[..., object]]
) -> bytes | None:
    """A PNG: each of `panels`, by title, for each kind of load with several numbers; given axes and rows."""
    drawn: dict[str, Callable[[Any], object]] = {}
    for kind in kinds:
        found = [row for row in rows if row["load"] == kind and "failed" not in row]
        if len(found) > 1:
            drawn |= {f"{kind}: {title}": partial(panel, rows=found) for title, panel in panels.items()}
    return draw_panels(drawn, HEIGHT)


def write_all(results: dict[str, Any], folder: Path, name: str, page: str, picture: bytes | None) -> None:
    """Writes `name`.json and .md, and the plot where there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / f"{name}.json", (json.dumps(results, indent=1) + "\n").encode())
    write_bytes(folder / f"{name}.md", page.encode())
    if picture:
        write_bytes(folder / f"{name}.png", picture)
