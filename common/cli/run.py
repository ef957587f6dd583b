"""What surrounds every command: errors as a sentence with an exit status, warnings, tables."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from melforge.common.cli.parser import USER_ERROR
from melforge.common.cli.stdout import leave_stdout
from melforge.common.errors import PACKAGES, InputError, install_advice
from melforge.common.files import is_file

FAULT = 1
INTERRUPTED = 128 + signal.SIGINT
ENDS = (signal.SIGTERM, signal.SIGHUP)  # of a service, and of the terminal


class Terminated(SystemExit):
    """A signal came: what is half made is removed on the way out, as after Ctrl-C."""


def run(main: Callable[[], int | None]) -> None:
    """Runs a command's main and exits with its status. An error is a sentence.

    The status is 2 for what a user can mend, and 1 for a fault of ours. The traceback of one shows with
    `--debug` or $MELFORGE_DEBUG.
    """
    warnings.showwarning = _show_warning
    _prepare_streams()
    try:
        with _terminated_in_order():
            status = _status_of(main)
        sys.stdout.flush()
    except (KeyboardInterrupt, Terminated) as stop:
        status = _stopped(stop)
    except BrokenPipeError:  # who read our output has gone
        status = 0
    except InputError as error:
        status = _report(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        status = _report(install_advice(package)) if package in PACKAGES else _report_fault(error)
    except OSError as error:
        status = _report(leave_stdout() or words_of(error))
    except Exception as error:
        if stop := _stop_behind(error):
            status = _stopped(stop)
        elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # PyTorch's
            status = _report("out of memory")
        else:
            status = _report_fault(error)
    leave_stdout()
    sys.exit(status)


def _status_of(main: Callable[[], int | None]) -> Any:
    try:
        return main() or 0
    except Terminated:
        raise
    except SystemExit as ended:  # by --help, for one
        return ended.code or 0


def _prepare_streams() -> None:
    """Standard streams that are closed become /dev/null, and an output takes every character.

    Without the first, a file that is opened would get the number of a closed one. What an encoding lacks is
    written as JSON escapes it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115
    codecs.register_error("escaped", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="escaped")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


@contextlib.contextmanager
def _terminated_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `Terminated`, if not ignored or answered already. Servers answer them."""
    answered = [number for number in ENDS if signal.getsignal(number) is signal.SIG_DFL]
    for number in answered:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number in answered:
            signal.signal(number, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, lambda *_: None)  # timeout and terminals send two: the other is not to stop tidying
    if processes := sys.modules.get("multiprocessing"):
        for process in processes.active_children():  # a terminal sends Ctrl-C to ours too
            process.terminate()
    raise Terminated(128 + number)


def _stopped(stop: BaseException) -> int:
    status = stop.code if isinstance(stop, Terminated) else INTERRUPTED
    assert isinstance(status, int)
    with contextlib.suppress(OSError):  # the terminal has gone
        print("interrupted" if status == INTERRUPTED else "terminated", file=sys.stderr)
    return status


def _stop_behind(error: BaseException | None) -> BaseException | None:
    """The signal that an error comes of: a module in C that is imported makes an ImportError of it, and
    pydantic's, in Rust, an error whose words alone name it.
    """
    if "KeyboardInterrupt:" in str(error):
        return KeyboardInterrupt()
    while error and not isinstance(error, KeyboardInterrupt | Terminated):
        error = error.__cause__ or error.__context__
    return error


def words_of(error: Exception) -> str:
    """The sentence about what a user can mend."""
    if not isinstance(error, OSError):
        return str(error)
    if str(error.strerror).startswith("No usable temporary directory"):
        return "no folder for temporary files can be written to: set $TMPDIR to one that can"
    path = Path(str(error.filename or ""))
    file = next((one for one in (path, *path.parents) if is_file(str(one))), None)
    if file and isinstance(error, FileExistsError | NotADirectoryError):
        return f"{file} is a file: give a folder"
    if error.filename and isinstance(error, IsADirectoryError):
        return f"{error.filename} is a folder: give a file"
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def command_line(script: str) -> str:
    """The words of this command, as one runs it again: `melforge NAME ...`, or the script of this name."""
    called = sys.argv[0] if sys.argv[0].startswith("melforge ") else f"python scripts/{script}.py"
    return f"{called} {shlex.join(sys.argv[1:])}".strip()


def _report(sentence: str, status: int = USER_ERROR) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return status


def _report_fault(error: Exception) -> int:
    debug = "--debug" in sys.argv or os.environ.get("MELFORGE_DEBUG", "0") not in ("", "0")
    if debug:
        import traceback

        traceback.print_exception(error)
    hint = "" if debug else "; --debug or MELFORGE_DEBUG=1 shows the traceback"
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return _report(f"this is a fault of Melforge ({what}); please report it{hint}", FAULT)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], file: TextIO | None = None) -> None:
    """Aligned columns; numbers stand right."""
    columns = []
    for heading, *cells in zip(headings, *rows, strict=True):
        width = max(map(len, (heading, *cells)))
        align = ">" if cells and all(cell[:1].isdigit() for cell in cells) else "<"
        columns.append([f"{cell:{align}{width}}" for cell in (heading, *cells)])
    for line in zip(*columns, strict=True):
        print("  ".join(line).rstrip(), file=file)
