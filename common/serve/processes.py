"""Several server processes at one port, each with its own models; one that dies is replaced.

The kernel distributes the connections (SO_REUSEPORT). A process listens once its first pair is loaded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType

from prometheus_client.multiprocess import mark_process_dead

from melforge.common.serve.app import HANGING_CHECK
from melforge.common.serve.health import STEP_LIMIT
from melforge.common.serve.keys import Access
from melforge.common.serve.logs import exit_now, set_up_logging
from melforge.common.serve.metrics import FOLDER_VARIABLE, log
from melforge.common.serve.pairs import LoadOptions
from melforge.common.serve.server import CLOSING_SECONDS, SIGNALS, answer, bind, listen, make_service
from melforge.common.serve.service import Service
from melforge.common.serve.settings import ServeSettings

MOST_FAILURES = 3  # processes in a row that die before they listen; after that none is started
PAUSE = 1.0  # seconds before a process that failed is replaced


def serve_by_processes(settings: ServeSettings, options: LoadOptions, access: Access) -> int:
    """Serves until a signal comes; the exit status. What keeps the first one from listening is raised."""
    set_up_logging()
    with ExitStack() as stack:
        port = stack.enter_context(reserved(settings.host, settings.port))
        if settings.riva_port is not None:
            riva_port = stack.enter_context(reserved(settings.host, settings.riva_port))
            settings = replace(settings, riva_port=riva_port)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="melforge-figures-"))
        os.environ[FOLDER_VARIABLE] = folder
        try:
            return Front(settings, options, access, port).run()
        finally:
            del os.environ[FOLDER_VARIABLE]


@contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """A port that processes can share, kept from other programs; an OSError if one of these has it."""
    bind(host, port).close()
    with bind(host, port, shared=True) as bound:
        yield bound.getsockname()[1]


class Front:
    """Starts the processes, replaces those that die, and stops them all."""

    def __init__(self, settings: ServeSettings, options: LoadOptions, access: Access, port: int):
        self._given = settings, options, access, port
        self._settings = settings
        self._running: dict[SpawnProcess, Connection] = {}
        self._listening: set[SpawnProcess] = set()
        self._failures = 0
        self._fault: BaseException | None = None
        self._signals: list[int] = []
        self._woken, self._wake = os.pipe()

    def run(self) -> int:
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            for _ in range(self._settings.processes):
                self._begin()
            while self._running and not self._signals and self._fault is None:
                self._look()
            status = self._end()
        finally:
            for process in self._running:
                process.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._fault is not None:
            raise self._fault
        log("stopped")
        return status

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        os.write(self._wake, b"!")

    def _begin(self) -> None:
        context = get_context("spawn")
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_serve_one, args=(*self._given, theirs))
        process.start()
        theirs.close()
        self._running[process] = mine

    def _look(self, seconds: float | None = None) -> None:
        """Waits for a signal, or news of a process."""
        sentinels = [process.sentinel for process in self._running]
        news = [link for link in self._running.values() if not link.closed]
        found = wait([self._woken, *sentinels, *news], seconds)
        if self._woken in found:
            os.read(self._woken, 1)
        for process, link in list(self._running.items()):
            if not link.closed and link.poll():
                self._read(process, link)
            if not process.is_alive():
                self._ended(process)

    def _read(self, process: SpawnProcess, link: Connection) -> None:
        """Reads a process's message: None if it listens, else why it cannot."""
        try:
            fault = link.recv()
        except EOFError:
            link.close()
            return
        if fault is None:
            self._listening.add(process)
            self._failures = 0
        elif not self._listening:
            self._fault = fault

    def _ended(self, process: SpawnProcess) -> None:
        process.join()
        self._running.pop(process).close()
        if process.pid is not None:
            mark_process_dead(process.pid, os.environ[FOLDER_VARIABLE])
            Path(os.environ[FOLDER_VARIABLE], f"{process.pid}.state").unlink(missing_ok=True)
        if self._signals or self._fault is not None:
            return
        log("a process ended", logging.ERROR, pid=process.pid, status=process.exitcode)
        if process in self._listening:
            self._listening.remove(process)
        else:
            self._failures += 1
            time.sleep(PAUSE)
        if self._failures < MOST_FAILURES:
            self._begin()

    def _end(self) -> int:
        """Lets all processes finish what they speak; a second signal kills them."""
        for process in self._running:
            process.terminate()
        end = time.monotonic() + self._settings.grace + 2 * CLOSING_SECONDS
        asked = len(self._signals)
        while self._running and time.monotonic() < end and len(self._signals) == asked:
            self._look(max(0.0, end - time.monotonic()))
        if len(self._signals) > asked:
            return 128 + self._signals[-1]
        return 0 if asked and not self._running else 1


def _serve_one(
    settings: ServeSettings, options: LoadOptions, access: Access, port: int, link: Connection
) -> None:
    """Runs in a process; reports that it listens (None), or why it cannot."""
    os.setsid()  # a terminal's Ctrl-C is for the front, which passes it on
    threading.Thread(target=_end_with_front, daemon=True).start()
    set_up_logging()

    async def run() -> None:
        service = make_service(settings, options, access)
        await service.load_first()
        if service.fault is not None:
            service.stop()
            raise service.fault
        if service.orders is not None:
            await service.orders.catch_up()
        listening = listen(settings.host, port, shared=True)
        link.send(None)
        watching = asyncio.create_task(_watch(service))
        try:
            await answer(service, listening)
        finally:
            watching.cancel()

    try:
        asyncio.run(run())
    except Exception as error:
        link.send(error)
        raise SystemExit(1) from None


async def _watch(service: Service) -> None:
    """Updates the metrics, which another process may be asked for. If one thread owns the models and hangs,
    no other thread can replace it: this process exits, and is replaced.
    """
    owned = not service.pairs.options.shares_engines()
    while True:
        await asyncio.sleep(HANGING_CHECK)
        service.note_state()
        if owned and service.scheduler.slowest_step() > STEP_LIMIT:
            log("a step hangs", logging.ERROR, pid=os.getpid())
            exit_now(1)


def _end_with_front() -> None:
    """Ends this process with the front, however that ended."""
    front = parent_process()
    if front is not None:
        front.join()
        os.kill(os.getpid(), signal.SIGTERM)
