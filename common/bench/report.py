"""What every benchmark prints and writes: Markdown tables for people, JSON for programs, and a plot."""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from melforge.common.files import write_files

# One measurement: plain values by their names, some of them in groups, such as `timer.summary` as "latency".
# A measurement that failed has why as "failed".
Row = dict[str, Any]
# A table's columns: by the heading, the value's name and how it is written, "latency.p50 ms". The form is one
# of format()'s or of FORMS.
Columns = Mapping[str, str]

EXPLAINED = "docs/benchmarks.md says what the columns mean."
PANEL = (5.0, 3.4)  # inches
COLOURS = 64  # of a picture's palette, which takes a third of the bytes


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


FORMS: dict[str, Callable[[Any], str]] = {
    "ms": ms,
    "margin": lambda seconds: ms(seconds) + " (gap!)" * (seconds < 0),
    "MB": lambda count: f"{count / 1e6:.0f}",
}


@dataclass(frozen=True)
class ResultTable:
    title: str
    columns: Columns
    rows: Sequence[Row]
    notes: Sequence[str] = ()  # lines below it

    def lines(self) -> list[str]:
        """In Markdown, without the columns for which no row has a value; a failed row says why at its end."""
        columns = {**self.columns, "failed": "failed"}
        cells = [[cell(row, how).replace("|", r"\|") for how in columns.values()] for row in self.rows]
        made = [column for column in zip(columns, *cells, strict=True) if any(column[1:])]
        widths = [max(map(len, column)) for column in made]
        lines = [list(line) for line in zip(*made, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        texts = (
            " | ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)) for line in lines
        )
        notes = [f"- {note}" for note in self.notes]
        return [
            "",
            f"## {self.title}",
            "",
            *(f"| {text} |" for text in texts),
            *([""] if notes else []),
            *notes,
        ]


def cell(row: Row, how: str) -> str:
    name, _, form = how.partition(" ")
    found: Any = row
    for part in name.split("."):
        found = found.get(part) if found else None
    if found is None:
        return ""
    return FORMS[form](found) if form in FORMS else format(found, form)


@dataclass(frozen=True)
class Panel:
    """One plot: lines of points by their labels."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Report:
    """The results of one command. The JSON has all numbers of `data`, the tables those that people read."""

    command: str
    about: str  # what was measured, and where
    machine: Mapping[str, Any]
    data: Mapping[str, Any]
    tables: Sequence[ResultTable]
    panels: Sequence[Panel] = field(default=())

    def json(self) -> str:
        found = {"command": self.command, "about": self.about, "machine": self.machine, **self.data}
        return json.dumps(found, indent=1) + "\n"

    def markdown(self) -> str:
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        lines = ["```bash", self.command, "```", "", *filter(None, (self.about, machine))]
        for table in self.tables:
            lines += table.lines()
        return "\n".join([*lines, "", EXPLAINED, ""])

    def write(self, folder: Path, name: str) -> None:
        """Writes name.json, name.md as it is printed, and name.png where there is something to draw."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {"json": self.json().encode(), "md": self.markdown().encode(), "png": draw(self.panels)}
        write_files({folder / f"{name}.{suffix}": content for suffix, content in files.items() if content})


def by(rows: Iterable[Row], label: Callable[[Row], str]) -> dict[str, list[Row]]:
    """The rows in groups, by their label."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(label(row), []).append(row)
    return groups


def latency_panel(
    title: str,
    x: tuple[str, str],
    rows: Iterable[Row],
    key: str,
    label: Callable[[Row], str],
    points: Mapping[str, str],
) -> list[Panel]:
    """One plot of a latency over numbers, if there are several: what these are, and their name in the rows.

    `points` are the latency's parts, and what stands behind the row's label for them.
    """
    rows = [row for row in rows if key in row]
    if len({row[x[1]] for row in rows}) < 2:
        return []
    lines: dict[str, list[tuple[float, float]]] = {}
    for row, (point, name) in itertools.product(rows, points.items()):
        lines.setdefault(label(row) + name, []).append((row[x[1]], row[key][point] * 1e3))
    return [Panel(title, x[0], "latency, ms", lines)]


def draw(panels: Sequence[Panel]) -> bytes | None:
    """A PNG with two panels in a row; None without any, or without matplotlib."""
    if not panels or importlib.util.find_spec("matplotlib") is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from PIL import Image  # which matplotlib needs

    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    size = (PANEL[0] * columns, PANEL[1] * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        for label, points in panel.lines.items():
            axis.plot(*zip(*sorted(points), strict=True), "o-", label=label)
        axis.set(xlabel=panel.x, ylabel=panel.y, ylim=(0, None))
        axis.set_xticks(sorted({x for points in panel.lines.values() for x, _ in points}))
        axis.set_title(panel.title, fontsize=9)
        axis.legend(fontsize=7)
    drawn, buffer = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=90)
    pyplot.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
