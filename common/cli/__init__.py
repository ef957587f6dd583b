"""The commands: their parser, options, and a module for each command. Importing this needs only Python."""

from __future__ import annotations

import importlib
import sys
import time
from typing import NoReturn

STARTED = time.perf_counter()  # about when the process began: the rest is imported after this


def run_command(module: str, **how: str) -> None:
    """Runs the module's `main` on sys.argv and exits; without an install, a sentence says how to make one."""
    try:
        from common.cli.run import run
    except ModuleNotFoundError as error:
        from common.errors import install_advice

        fail(install_advice(str(error.name)))
    run(lambda: importlib.import_module(module).main(**how))


def fail(sentence: str) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)
