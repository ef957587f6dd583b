"""The commands: their parser, options, and a module for each command. Importing this needs only Python."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import time
from typing import NoReturn

from melforge.common.cli.stdout import leave_stdout

STARTED = time.perf_counter()  # about when the process began: the rest is imported after this

SELDOM = 200_000  # objects between collections of garbage
SHORT = ("speak", "transcribe")  # commands that a user waits for from their first import to their exit


def run_command(module: str, **how: str) -> None:
    """Runs the module's `main` on sys.argv and exits; without an install, a sentence says how to make one."""
    if module.rpartition(".")[2] in SHORT:
        prepare_short()
    try:
        from melforge.common.cli.run import run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as error:
        from melforge.common.errors import install_advice

        fail(install_advice(str(error.name)))
    run(lambda: importlib.import_module(module).main(**how))


def prepare_short() -> None:
    """Leaves out what takes a tenth of such a process, and is of use to a longer one only."""
    # numpy's BLAS would begin its threads when numpy is imported; ONNX Runtime has its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What is imported stays, and at the end all memory goes: it is not looked through for garbage each time.
    gc.set_threshold(SELDOM)
    atexit.register(gc.freeze)


def tell(text: str) -> None:
    """Prints what a command would print, where none runs."""
    if reason := leave_stdout(f"{text}\n"):
        fail(reason)


def fail(sentence: str) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)
