"""What surrounds every command: errors as one line with an exit status, warnings, tables."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from common.cli.parser import USER_ERROR

INTERRUPTED = 130


def run(main: Callable[[], int | None]) -> None:
    """Runs a command's main and exits; what a user can do wrong becomes a sentence, not a traceback."""
    warnings.showwarning = _show_warning
    try:
        status = main() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone; Python must not try to flush to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except MemoryError:
        print("error: out of memory", file=sys.stderr)
        status = USER_ERROR
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        status = USER_ERROR
    except (ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        status = USER_ERROR
    sys.exit(status)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns; numbers stand right."""
    lines = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    right = [
        len(lines) > 1 and all(line[column][:1].isdigit() for line in lines[1:])
        for column in range(len(headings))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], file: TextIO | None = None) -> None:
    print(table(headings, rows), file=file or sys.stdout)
