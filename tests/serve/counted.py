"""`melforge`, in a process that says on stderr after SIGUSR1 how many bytes it has of malloc (glibc's)."""

import ctypes
import gc
import json
import runpy
import signal
import sys

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class MallInfo(ctypes.Structure):
    """As malloc.h has it: what is in use are `uordblks`, and `hblkhd` in mappings of their own."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS.split()]


def say(*_):
    gc.collect()
    found = count()
    line = {"level": "info", "event": "memory", "bytes": found.uordblks + found.hblkhd}
    print(json.dumps(line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    count = ctypes.CDLL(None).mallinfo2
    count.restype = MallInfo
    signal.signal(signal.SIGUSR1, say)
    runpy.run_module("melforge", run_name="__main__")
