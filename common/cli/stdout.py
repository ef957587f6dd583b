"""The end of standard output, where it takes no more or its reader has gone."""

from __future__ import annotations

import os
import sys


def leave_stdout(text: str = "") -> str:
    """Writes this and what stdout holds; why it cannot be, as a sentence, "" also where its reader has gone.

    Python would try again at exit, and say so.
    """
    try:
        print(text, end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return f"cannot write to standard output: {error.strerror}"
    return ""
