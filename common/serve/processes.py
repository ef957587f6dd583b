"""Several server processes behind one front, each with its own models; one that dies is replaced.

The front accepts connections, reads the first bytes of a request, and hands both to the process that has the
fewest (handing.py). What is sent then does not pass it. Riva's port is shared by the processes themselves:
there the kernel distributes the connections (SO_REUSEPORT).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from melforge.common.processes import end_with_parent
from melforge.common.serve.app import HANGING_CHECK
from melforge.common.serve.connections import HEAD_SECONDS, most_connections
from melforge.common.serve.errors import TAKEN_SECONDS, overloaded
from melforge.common.serve.handing import BEGUN, BETWEEN, LARGEST_START, NOTE, NUMBER, Handed, socket_pair
from melforge.common.serve.health import STEP_LIMIT, Probe
from melforge.common.serve.keys import Access
from melforge.common.serve.logs import exit_now, set_up_logging
from melforge.common.serve.metrics import FOLDER_VARIABLE, log
from melforge.common.serve.pairs import LoadOptions
from melforge.common.serve.server import (
    ACCEPTED,
    BACKLOG,
    CLOSING_SECONDS,
    SIGNALS,
    answer,
    bind,
    make_service,
)
from melforge.common.serve.service import Service
from melforge.common.serve.settings import ServeSettings
from melforge.common.synthesis.places import WorkerPlace, describe

MOST_FAILURES = 3  # processes in a row that die before any has listened: the server ends
PAUSE = 1.0  # seconds before a process that failed is replaced, and before a connection is accepted again
LONGEST_PAUSE = 10.0  # where several failed in a row
AGAIN = 0.1  # seconds before a request is offered again that no process could take


def serve_by_processes(
    settings: ServeSettings, options: LoadOptions, access: Access, places: Sequence[WorkerPlace]
) -> int:
    """Serves until a signal comes; the exit status. What keeps the first one from listening is raised."""
    set_up_logging()
    allow_open_files()
    with ExitStack() as stack:
        bound = stack.enter_context(bind(settings.host, settings.port))
        bound.setblocking(False)
        if settings.riva_port is not None:
            riva_port = stack.enter_context(reserved(settings.host, settings.riva_port))
            settings = replace(settings, riva_port=riva_port)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="melforge-figures-"))
        os.environ[FOLDER_VARIABLE] = folder
        log("processes", chosen=describe(places))
        try:
            return asyncio.run(Front(settings, options, access, bound).run(places))
        finally:
            del os.environ[FOLDER_VARIABLE]


def allow_open_files() -> None:
    """As many as the system lets this process have: it keeps all connections."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def reserved(host: str, port: int) -> Iterator[int]:
    """A port that processes can share, kept from other programs; an OSError if one of these has it."""
    bind(host, port).close()
    with bind(host, port, shared=True) as bound:
        yield bound.getsockname()[1]


@dataclass(eq=False)
class HeldConnection:
    """A client's connection, whoever has it."""

    socket: socket.socket
    deadline: asyncio.TimerHandle | None = None  # while no request comes
    start: bytes | None = None  # of a request that another process could answer too
    until: float = 0.0  # in the loop's seconds, when that request is refused if no process takes it


@dataclass(eq=False)
class ServerProcess:
    """A process, as the front knows it."""

    place: WorkerPlace
    process: SpawnProcess
    link: Connection
    hands: socket.socket
    listening: bool = False
    connections: dict[int, HeldConnection] = field(default_factory=dict)  # that it has now


class Front:
    """Starts the processes, hands them connections, replaces those that die, and stops them all."""

    def __init__(
        self, settings: ServeSettings, options: LoadOptions, access: Access, bound: socket.socket
    ) -> None:
        self._given = settings, options, access
        self._settings, self._bound = settings, bound
        self._running: list[ServerProcess] = []  # first who was handed none for longest
        self._idle: dict[HeldConnection, None] = {}  # the longest first
        self._most_idle = most_connections(settings)
        self._numbers = itertools.count()
        self._accepts = False
        self._failures = 0
        self._fault: BaseException | None = None
        self._signals: list[int] = []

    async def run(self, places: Sequence[WorkerPlace]) -> int:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)
        try:
            for place in places:
                self._begin(place)
            await self._over.wait()
        finally:
            for one in self._running:
                one.process.kill()
        if self._fault is not None:
            raise self._fault
        log("stopped")
        if len(self._signals) > (1 if self._accepts else 0):
            return 128 + self._signals[-1]
        return 0 if self._signals and not self._running else 1

    def _on_signal(self, number: int) -> None:
        """Lets all processes finish what they speak; a second one, or one before any listens, kills them."""
        if self._signals and number == signal.SIGHUP:
            return
        self._signals.append(number)
        if len(self._signals) > 1 or not (self._accepts and self._running):
            self._over.set()
        for one in self._running:
            one.process.terminate()
        self._loop.call_later(self._settings.grace + 2 * CLOSING_SECONDS, self._over.set)

    def _begin(self, place: WorkerPlace) -> None:
        if self._signals:
            return
        context = get_context("spawn")
        link, theirs = context.Pipe(duplex=False)
        hands, end = socket_pair()
        given = *self._given, place, self._bound.getsockname()[:2], end, theirs
        process = context.Process(target=_serve_one, args=given)
        process.start()
        theirs.close()
        end.close()
        one = ServerProcess(place, process, link, hands)
        self._running.append(one)
        self._loop.add_reader(process.sentinel, self._ended, one)
        self._loop.add_reader(link.fileno(), self._read, one)
        self._loop.add_reader(hands, self._note, one)

    def _read(self, one: ServerProcess) -> None:
        """Reads a process's message: None if it listens, else why it cannot."""
        self._loop.remove_reader(one.link.fileno())
        try:
            fault = one.link.recv()
        except EOFError:
            return
        if fault is None:
            one.listening = True
            self._failures = 0
            if not self._accepts:
                self._accepts = True
                self._bound.listen(BACKLOG)
                self._loop.add_reader(self._bound, self._accept)
        elif not self._accepts:
            self._fault = fault
            self._over.set()
        else:
            log("a process cannot begin", logging.ERROR, pid=one.process.pid, fault=str(fault))

    def _ended(self, one: ServerProcess) -> None:
        self._note(one)
        for source in (one.process.sentinel, one.link.fileno(), one.hands):
            self._loop.remove_reader(source)
        one.process.join()
        one.link.close()
        one.hands.close()
        self._running.remove(one)
        if one.process.pid is not None:
            mark_process_dead(one.process.pid, os.environ[FOLDER_VARIABLE])
            Path(os.environ[FOLDER_VARIABLE], f"{one.process.pid}.state").unlink(missing_ok=True)
        for held in one.connections.values():
            start, held.start = held.start, None
            if start is None:
                held.socket.close()
            else:  # once: a request may be what ends a process
                self._hand_over(held, start)
        if self._signals:
            if not self._running:
                self._over.set()
            return
        log("a process ended", logging.ERROR, pid=one.process.pid, status=one.process.exitcode)
        self._failures += not one.listening
        if self._accepts or self._failures < MOST_FAILURES:
            pause = 0 if one.listening else min(self._failures * PAUSE, LONGEST_PAUSE)
            self._loop.call_later(pause, self._begin, one.place)
        elif not self._running:
            self._over.set()

    # Connections

    def _accept(self) -> None:
        for _ in range(ACCEPTED):
            try:
                connection, _ = self._bound.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # too many open files
                if self._idle:
                    self._drop(next(iter(self._idle)))
                    continue
                self._loop.remove_reader(self._bound)
                self._loop.call_later(PAUSE, self._loop.add_reader, self._bound, self._accept)
                return
            connection.setblocking(False)
            self._keep(HeldConnection(connection))

    def _keep(self, held: HeldConnection) -> None:
        """Waits for its next request; of too many that wait the oldest is closed."""
        if len(self._idle) >= self._most_idle:
            self._drop(next(iter(self._idle)))
        self._idle[held] = None
        held.deadline = self._loop.call_later(HEAD_SECONDS, self._drop, held)
        self._loop.add_reader(held.socket, self._on_bytes, held)

    def _take(self, held: HeldConnection) -> None:
        del self._idle[held]
        self._loop.remove_reader(held.socket)
        if held.deadline is not None:
            held.deadline.cancel()

    def _drop(self, held: HeldConnection) -> None:
        self._take(held)
        held.socket.close()

    def _on_bytes(self, held: HeldConnection) -> None:
        try:
            start = b"" if self._settings.certificate else held.socket.recv(LARGEST_START)
        except BlockingIOError:
            return
        except OSError:
            self._drop(held)
            return
        if not start and not self._settings.certificate:  # its client has left
            self._drop(held)
            return
        self._take(held)
        held.start = start or None  # TLS begins with its process
        held.until = self._loop.time() + TAKEN_SECONDS
        self._hand_over(held, start)

    def _hand_over(self, held: HeldConnection, start: bytes) -> None:
        """To the process with the fewest connections, of several the one that was handed none for longest;
        later, where none listens or has room for it.
        """
        number = next(self._numbers)
        for one in sorted(self._running, key=lambda one: len(one.connections)):
            with suppress(OSError):
                if one.listening:
                    socket.send_fds(one.hands, [NUMBER.pack(number), start], [held.socket.fileno()])
                    one.connections[number] = held
                    self._running.remove(one)
                    self._running.append(one)
                    return
        if self._loop.time() < held.until:
            self._loop.call_later(AGAIN, self._hand_over, held, start)
        else:
            _refuse(held.socket, is_plain=self._settings.certificate is None)

    def _note(self, one: ServerProcess) -> None:
        """Reads what became of connections."""
        with suppress(OSError):  # there are no further ones
            while note := one.hands.recv(NOTE.size):
                number, what = NOTE.unpack(note)
                if what == BEGUN:
                    one.connections[number].start = None
                elif what == BETWEEN:
                    self._keep(one.connections.pop(number))
                else:
                    one.connections.pop(number).socket.close()


def _refuse(connection: socket.socket, *, is_plain: bool) -> None:
    """503 and the end of a connection; where TLS would have to begin first, the end alone."""
    answer = overloaded("no process can take the request now: try again").response
    lines = [b"HTTP/1.1 503 Service Unavailable", b"connection: close"]
    lines += [name + b": " + value for name, value in answer.raw_headers]
    with suppress(OSError), connection:
        if is_plain:
            connection.send(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(LARGEST_START)  # what is unread resets the connection, and the answer with it


def _serve_one(
    settings: ServeSettings,
    options: LoadOptions,
    access: Access,
    place: WorkerPlace,
    address: tuple[str, int],
    end: socket.socket,
    link: Connection,
) -> None:
    """Runs in a process; reports that it listens (None), or why it cannot. What ends it later is logged."""
    os.setsid()  # a terminal's Ctrl-C is for the front, which passes it on
    end_with_parent(signal.SIGTERM)  # with the front
    set_up_logging()
    listens = False

    def tell() -> None:
        nonlocal listens
        listens = True
        link.send(None)

    async def run() -> None:
        service = make_service(settings, replace(options, device=place.claim()), access)
        await service.load_first()
        if service.fault is not None:
            service.stop()
            raise service.fault
        if service.orders is not None:
            await service.orders.catch_up()
        listening = Handed(end, address)
        listening.begun.append(tell)
        watching = asyncio.create_task(_watch(service))
        try:
            await answer(service, listening)
        finally:
            watching.cancel()

    try:
        asyncio.run(run())
    except Exception as error:
        if listens:
            log("a process fails", logging.ERROR, pid=os.getpid(), fault=repr(error))
        else:
            link.send(error)
        raise SystemExit(1) from None


async def _watch(service: Service) -> None:
    """Updates the metrics, which another process may be asked for. If one thread owns the models and hangs,
    no other thread can replace it: this process exits, and is replaced. So it does where nothing is spoken
    any more, as after a GPU's fault: who fails at once always has the fewest requests.
    """
    owned, probe = not service.pairs.options.shares_engines, Probe(service)
    while True:
        await asyncio.sleep(HANGING_CHECK)
        service.note_state()
        if not owned or service.draining:
            continue
        fault = "a step hangs" if service.scheduler.slowest_step() > STEP_LIMIT else ""
        if service.last_step < 0 and service.pairs.is_ready(service.pairs.first):
            fault = fault or await probe.fault()
        if fault and not service.draining:
            log(fault, logging.ERROR, pid=os.getpid())
            exit_now(1)
