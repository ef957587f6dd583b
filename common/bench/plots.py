"""Draws results: latency against the batch size, and the stages of each way to run."""

import io
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from common.bench.table import Row, grouped, merged

WIDTH, HEIGHT = 5.0, 3.4  # inches of a panel
LABEL = 26  # letters of a line


def draw_latency(rows: Sequence[Row]) -> bytes | None:
    """A PNG with a panel for each table that has several batch sizes: mean latency, a line a backend."""
    tables = {
        title: found for title, found in _tables(rows).items() if len({row["batch"] for row in found}) > 1
    }
    return _draw(tables, HEIGHT, _latency)


def _latency(axis: Any, rows: Sequence[Row]) -> None:
    for label in dict.fromkeys(map(_label, rows)):
        line = sorted((row for row in rows if _label(row) == label), key=lambda row: row["batch"])
        latencies = [row["latency"]["mean"] * 1e3 for row in line]
        axis.plot([row["batch"] for row in line], latencies, "o-", label=label)
    axis.set(xlabel="batch size", ylabel="latency, ms", ylim=(0, None))
    axis.set_xticks(sorted({row["batch"] for row in rows}))


def draw_stages(rows: Sequence[Row]) -> bytes | None:
    """A PNG with a panel for each table: a bar for each backend at batch 1, made of its stages' times."""
    single = [row for row in rows if row.get("stages") and row["batch"] == 1]
    tables = _tables(single)
    return _draw(tables, 1.2 + 0.3 * max(map(len, tables.values()), default=0), _stages)


def _stages(axis: Any, rows: Sequence[Row]) -> None:
    lefts = [0.0] * len(rows)
    stages = [{one["stage"]: one["seconds"] * 1e3 for one in merged(row["stages"])} for row in rows]
    for name in dict.fromkeys(name for row in stages for name in row):
        widths = [row.get(name, 0.0) for row in stages]
        axis.barh([_label(row) for row in rows], widths, left=lefts, label=name)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    axis.set(xlabel="ms")
    axis.invert_yaxis()
    axis.tick_params(axis="y", labelsize=8)


def _tables(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return grouped(row for row in rows if "failed" not in row)


def _label(row: Row) -> str:
    """In short lines: kernels of several stages make a long name."""
    return textwrap.fill(f"{row['backend']} {row['precision']}".strip().replace(",", ", "), LABEL)


def _draw(
    tables: dict[str, list[Row]], height: float, draw: Callable[[Any, Sequence[Row]], None]
) -> bytes | None:
    """A panel for each table; None without any."""
    if not tables:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(len(tables), 2)
    lines = -(-len(tables) // columns)
    size = (WIDTH * columns, height * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for axis, (title, rows) in zip(axes.flat, tables.items(), strict=False):
        draw(axis, rows)
        axis.set_title(title, fontsize=9)
        axis.legend(fontsize=7)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    pyplot.close(figure)
    return buffer.getvalue()
