"""Draws results: latency against the batch size, and the stages of each way to run."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

from common.bench.rows import Row, grouped, merged

WIDTH, HEIGHT = 5.0, 3.4  # inches of a panel
LABEL = 26  # letters of a line


def draw_latency(rows: Sequence[Row]) -> bytes | None:
    """A PNG with a panel for each table that has several batch sizes: mean latency, a line a backend."""
    tables = {
        title: found for title, found in _tables(rows).items() if len({row["batch"] for row in found}) > 1
    }
    if not tables:
        return None
    figure, axes = _panels(len(tables), HEIGHT)
    for axis, (title, found) in zip(axes, tables.items(), strict=True):
        lines: dict[str, list[Row]] = {}
        for row in found:
            lines.setdefault(_label(row), []).append(row)
        for label, line in lines.items():
            line.sort(key=lambda row: row["batch"])
            batches = [row["batch"] for row in line]
            axis.plot(batches, [row["latency"]["mean"] * 1e3 for row in line], "o-", label=label)
        axis.set(xlabel="batch size", ylabel="latency, ms", ylim=(0, None))
        axis.set_title(title, fontsize=9)
        axis.set_xticks(sorted({row["batch"] for row in found}))
        axis.legend(fontsize=7)
    return _png(figure)


def draw_stages(rows: Sequence[Row]) -> bytes | None:
    """A PNG with a panel for each table: a bar for each backend at batch 1, made of its stages' times."""
    tables = {
        title: [row for row in found if row.get("stages") and row["batch"] == 1]
        for title, found in _tables(rows).items()
    }
    tables = {title: found for title, found in tables.items() if found}
    if not tables:
        return None
    figure, axes = _panels(len(tables), 1.2 + 0.3 * max(map(len, tables.values())))
    for axis, (title, found) in zip(axes, tables.items(), strict=True):
        lefts = [0.0] * len(found)
        stages = [{one["stage"]: one["seconds"] * 1e3 for one in merged(row["stages"])} for row in found]
        for name in dict.fromkeys(name for row in stages for name in row):
            widths = [row.get(name, 0.0) for row in stages]
            axis.barh([_label(row) for row in found], widths, left=lefts, label=name)
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
        axis.set(xlabel="ms")
        axis.set_title(title, fontsize=9)
        axis.invert_yaxis()
        axis.tick_params(axis="y", labelsize=8)
        axis.legend(fontsize=7)
    return _png(figure)


def _tables(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return grouped(row for row in rows if "failed" not in row)


def _label(row: Row) -> str:
    """In short lines: kernels of several stages make a long name."""
    return textwrap.fill(f"{row['backend']} {row['precision']}".strip().replace(",", ", "), LABEL)


def _panels(count: int, height: float) -> tuple[Any, Sequence[Any]]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(count, 2)
    lines = -(-count // columns)
    size = (WIDTH * columns, height * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, axes.flat[:count]


def _png(figure: Any) -> bytes:
    from matplotlib import pyplot

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    pyplot.close(figure)
    return buffer.getvalue()
