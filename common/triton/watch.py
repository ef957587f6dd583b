#!/usr/bin/env python3
"""Runs tritonserver, and ends it when the process of a model dies: python3 watch.py tritonserver OPTIONS.

tritonserver 2.51 does not start such a process again. To load the model again is not enough: nobody ends the
streams that were under way, and over HTTP a load stops other clients for as long as it takes. So the server
is killed, which all its clients see at once; who runs this starts it again, as is done with containers. So it
is where a model's process paused for a second while it was loaded: the server waits for the end of that
process, which nobody has told to end, and is never ready.
Signals to end are passed on. It needs Python only, and lies in the repository for who runs the server.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

PERIOD = 0.5  # seconds between two looks
STUCK = 20  # looks at which the server waits for the end of a process and no model has done anything
STUB = "triton_python_b"  # the process of a model, as the kernel calls it
ENDS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
SIGNALS = {*ENDS, signal.SIGCHLD}
PR_SET_CHILD_SUBREAPER = 36


def dead_models(server):
    """The processes of models that have ended while the server does not wait for their end."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            process, _, rest = path.read_text(errors="replace").rpartition(") ")
            state, parent = rest.split()[:2]
            if state == "Z" and int(parent) == server and process.endswith(f"({STUB}"):
                found.add(process.split()[0])
    return found


def read(path):
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def times_of_models(server):
    """The time that the first thread of each model has run, while the server waits for a process to end."""
    tasks = Path(f"/proc/{server}/task")
    if not any(read(path) == "do_wait" for path in tasks.glob("*/wchan")):
        return None
    children = " ".join(map(read, tasks.glob("*/children"))).split()
    return [stat.split()[13:15] for one in children if (stat := read(Path(f"/proc/{one}/task/{one}/stat")))]


def status_of(server):
    """The status with which the server has ended, or None; what else has ended is cleared away."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == server:
                return os.waitstatus_to_exitcode(found[1])
    return None


def run(command):
    """Runs the server to its end; its status, negative where a signal ended it, and whether it was to end."""
    try:
        server = os.posix_spawnp(command[0], command, os.environ, setpgroup=0, setsigmask=())
    except OSError as error:
        print(f"error: {command[0]}: {error.strerror}", file=sys.stderr)
        return 2, True
    told, dead, times, looks = False, set(), None, 0
    while (status := status_of(server)) is None:
        came = signal.sigtimedwait(SIGNALS, PERIOD)
        if came and came.si_signo in ENDS:
            told = True
            os.kill(server, came.si_signo)
        elif not came:
            earlier, dead = dead, dead_models(server)
            before, times = times, times_of_models(server)
            looks = looks + 1 if times and times == before else 0
            if dead & earlier or looks == STUCK:
                what = f"has died: {', '.join(dead)}" if dead & earlier else "hangs"
                print(f"the process of a model {what}", file=sys.stderr, flush=True)
                os.killpg(server, signal.SIGKILL)
    with suppress(ProcessLookupError):  # models whose server has gone
        os.killpg(server, signal.SIGKILL)
    for path in Path("/dev/shm").glob(f"melforge-{server}-*"):  # counts of its models
        path.unlink()
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return status, told


def main(*command, again=False):
    """The status of the server that this command starts; `again` where it died and was not told to end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # waits for models whose server has gone
    regions = f"melforge-{os.getpid()}-"  # of shared memory, which a server that is killed leaves
    command = [*command, f"--backend-config=python,shm-region-prefix-name={regions}"]
    while True:
        status, told = run(command)
        for path in Path("/dev/shm").glob(f"{regions}*"):
            path.unlink()
        if status >= 0 or told or not again:
            return status if status >= 0 else 128 - status


if __name__ == "__main__":
    words = sys.argv[1:]
    if not words or words[0].startswith("-"):
        helps = words[:1] in (["-h"], ["--help"])
        print(__doc__, end="", file=sys.stdout if helps else sys.stderr)
        sys.exit(0 if helps else 2)
    sys.exit(main(*words))
