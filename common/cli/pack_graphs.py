"""Exports anew the graphs of published sizes that come packed with Melforge (2 minutes)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from melforge.common.cli import options
from melforge.common.export.packed import FOLDER


def main(argv: Sequence[str] | None = None) -> int:
    parser = options.Parser(description=__doc__)
    what = "folder of the graphs (default: common/export/graphs)"
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help=what)
    args = parser.parse_args(argv)

    from melforge.common.export.pack import write_graphs

    write_graphs(args.out)
    return 0
