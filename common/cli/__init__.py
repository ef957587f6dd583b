"""The commands: their parser, options, and a module for each command. Importing this needs only Python."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import time
from types import ModuleType
from typing import NoReturn

STARTED = time.perf_counter()  # about when the process began: the rest is imported after this

SHORT = ("speak", "transcribe")  # commands that a user waits for from their first import to their exit


def run_command(module: str, **how: str) -> None:
    """Runs the module's `main` on sys.argv and exits; without an install, a sentence says how to make one."""
    if module.rpartition(".")[2] in SHORT:
        prepare_short()
    try:
        from common.cli.run import run
    except ModuleNotFoundError as error:
        from common.errors import install_advice

        fail(install_advice(str(error.name)))
    run(lambda: imported(module).main(**how))


def prepare_short() -> None:
    """Leaves out what takes a tenth of such a process, and is of use to a longer one only."""
    # numpy's BLAS would begin its threads when numpy is imported; ONNX Runtime has its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    atexit.register(gc.freeze)  # at the end all memory goes: nobody looks through it for garbage


def imported(module: str) -> ModuleType:
    """The module. What it imports stays, and is not looked through for garbage meanwhile."""
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.enable()


def fail(sentence: str) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)
