"""Panels of plots in one PNG, where matplotlib is there."""

import importlib.util
import io
from collections.abc import Callable, Mapping
from typing import Any

WIDTH = 5.0  # of a panel, in inches
COLOURS = 64  # of a picture's palette, which takes a third of the bytes


def draw_panels(
    panels: Mapping[str, Callable[[Any], object]], height: float, width: float = WIDTH
) -> bytes | None:
    """A PNG with a panel of this height for each title, two in a row; None without any, or matplotlib."""
    if not panels or importlib.util.find_spec("matplotlib") is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from PIL import Image  # which matplotlib needs

    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    size = (width * columns, height * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, draw) in zip(axes.flat, panels.items(), strict=False):
        draw(axis)
        axis.set_title(title, fontsize=9)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7)
    drawn, buffer = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=90)
    pyplot.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
