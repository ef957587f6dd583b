"""The commands: their parser, options, and a module for each command."""

import time

STARTED = time.perf_counter()  # about when the process began: the rest is imported after this
