"""A training on several GPUs of this machine: a process for each, as torchrun begins them (`ranks`).

The process that begins them does not train. It hands on what rank 0 says, and ends all when one fails.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from melforge.common.errors import InputError
from melforge.common.processes import end_with_parent, interrupts_held
from melforge.common.synthesis.places import is_several, places_of
from melforge.common.training import ranks
from melforge.common.training.loop import pick_device, stopped_by_signals

Work = Callable[[Callable[[float], object]], object]  # it tells the share of it that is done
LEAVING = 10.0  # seconds that processes have to end once the work is done


def devices_of(device: str) -> list[str]:
    """Those that are meant by --device, `cuda:all` for one; an InputError for what is not there."""
    if not is_several(device, None):
        pick_device(device)
        return [device]
    per_gpu = None if "cpu" in device else 1
    return [place.device for place in places_of(device, per_gpu)]


def work_on(devices: Sequence[str], work: Work, progress: Callable[[float], object]) -> None:
    """Does `work`, which can be pickled, in a rank on each device; `progress` is told of rank 0's.

    Ctrl-C and SIGTERM are rank 0's to answer.
    """
    context, told = get_context("spawn"), {"WORLD_SIZE": str(len(devices)), "MASTER_ADDR": "127.0.0.1"}
    told["MASTER_PORT"] = str(free_port())
    links: dict[Connection, SpawnProcess] = {}
    with interrupts_held():
        for rank, device in enumerate(devices):
            own = {"RANK": str(rank), "LOCAL_RANK": device.partition(":")[2] or "0"}
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_be_rank, args=(told | own, theirs, work))
            process.start()
            theirs.close()
            links[mine] = process
    first, *_ = processes = [*links.values()]
    try:
        with stopped_by_signals(first.terminate) as came:
            _hear(links, progress, came)
        for process in processes:
            process.join(LEAVING)
    finally:
        first.terminate()  # it may have processes of its own to end
        first.join(1.0)
        for process in processes:
            process.kill()
            process.join()


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return server.getsockname()[1]


def _hear(
    links: dict[Connection, SpawnProcess], progress: Callable[[float], object], came: Sequence[int]
) -> None:
    """Until the work is done, or ended by a signal; raises what a rank raised."""
    while True:
        for link in wait([*links]):
            assert isinstance(link, Connection)
            try:
                said = link.recv()
            except (EOFError, OSError):
                process = links.pop(link)
                process.join()
                if came:
                    return
                if process.exitcode:
                    how = f"a process of the training ended with status {process.exitcode}"
                    raise InputError(f"{how}, perhaps for lack of memory") from None
                continue
            if said is None:
                return
            if isinstance(said, Exception):
                raise said
            if isinstance(said, tuple):
                name, text = said
                print(text, end="", file=getattr(sys, name), flush=True)
            else:
                progress(said)


class Told(io.TextIOBase):
    """Sends what is printed."""

    def __init__(self, link: Connection, name: str):
        self.link, self.name = link, name

    def write(self, text: str) -> int:
        self.link.send((self.name, text))
        return len(text)


def _be_rank(environment: Mapping[str, str], link: Connection, work: Work) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent
    end_with_parent(signal.SIGKILL)
    os.environ.update(environment)
    first = environment["RANK"] == "0"
    for name in ("stdout", "stderr"):
        setattr(sys, name, Told(link, name) if first else Path(os.devnull).open("w"))  # noqa: SIM115
    signal.signal(signal.SIGTERM, (lambda *_: sys.exit()) if first else signal.SIG_IGN)
    try:
        work(link.send if first else lambda share: None)
        if first:
            link.send(None)
        ranks.leave()
    except ranks.RankLost:  # the parent hears why of that rank, and ends this one
        threading.Event().wait()
    except SystemExit:
        os._exit(128 + signal.SIGTERM)  # at once: NCCL might wait for the others
    except Exception as error:
        error.add_note(traceback.format_exc())
        link.send(error)
