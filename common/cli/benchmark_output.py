"""What the benchmark commands share: their output, and how they show that they go on."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from melforge.common.cli.option import TYPES
from melforge.common.cli.parser import Parser
from melforge.common.files import require_writable_folder

if TYPE_CHECKING:
    from melforge.common.bench.report import Report


def add_output(parser: Parser, name: str) -> Any:
    """The options for the output; the argument group, for further ones."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print all numbers as JSON, in place of tables")
    text = f"a folder: also write {name}.json, {name}.md (the tables) and a plot of the latency there"
    group.add_argument("-o", "--output", "--out", type=TYPES["DIR"], metavar="FOLDER", help=text)
    return group


def require_output(args: argparse.Namespace) -> None:
    """An error before anything is measured where the results could not be written."""
    if args.output:
        require_writable_folder(args.output)


def tell(text: str) -> None:
    """Progress, and what goes wrong on the way."""
    print(text, file=sys.stderr, flush=True)


def conclude(args: argparse.Namespace, report: Report, name: str) -> int:
    """Prints the results, and writes them where --output asks for it; the exit status."""
    if args.output:
        report.write(args.output, name)
    print(report.json() if args.json else report.markdown(), end="")
    return 0 if any("failed" not in row for row in report.data["rows"]) else 1
