"""Connections that the front of several processes hands to one of them, and what becomes of each.

The front reads the first bytes of a request and sends them with the connection's descriptor. It keeps one
of its own: a connection comes back between two requests, and a request that its process has neither begun to
answer nor read further goes to another one if that process dies. Notes about connections go the other way.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LARGEST_START = 1 << 15  # bytes of a request that are handed over with its connection; the rest is read there
BUFFER = 1 << 20  # bytes that may wait for a process to take them, as far as the system allows
NUMBER = struct.Struct("<Q")  # of a connection, in front of the bytes
NOTE = struct.Struct("<QB")
BEGUN, BETWEEN, CLOSED = range(3)  # notes: no other process can answer; between requests; closed
NOTE_SECONDS = 10.0  # for the front to take a note


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """The front's end and a process's. Each message is whole, or not sent."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for one in pair:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    return pair


class HandedConnection(socket.socket):
    """A connection that was handed over, and tells the front what happens to it."""

    def __init__(self, fileno: int, number: int, start: bytes, notes: socket.socket):
        super().__init__(fileno=fileno)
        self.start = start  # of the request, as the front has read it
        self._number, self._notes = number, notes
        self._begun = self._ended = False

    def recv(self, *given: Any) -> bytes:
        self._begin()
        return super().recv(*given)

    def send(self, *given: Any) -> int:
        self._begin()
        return super().send(*given)

    def give_back(self) -> None:
        """It is the front's again; this process's descriptor has still to be closed."""
        self._end(BETWEEN)

    def close(self) -> None:
        super().close()
        self._end(CLOSED)

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            with suppress(ConnectionError):  # the front has ended
                self._notes.send(NOTE.pack(self._number, BEGUN))

    def _end(self, note: int) -> None:
        if not self._ended:
            self._ended = True
            with suppress(OSError):  # the front has ended
                self._notes.send(NOTE.pack(self._number, note))


class Handed(socket.socket):
    """A process's end, which asyncio takes for a listening socket: it accepts what was handed over."""

    type = socket.SOCK_STREAM  # type: ignore[assignment]  # asyncio listens at no others

    def __init__(self, end: socket.socket, address: tuple[str, int]):
        """`address` is where the front listens."""
        super().__init__(fileno=end.detach())
        self._address = address
        self.begun: list[Callable[[], object]] = []  # called when what is handed over will be accepted
        self._notes = socket.socket(fileno=os.dup(self.fileno()))
        self._notes.settimeout(NOTE_SECONDS)
        self.connections: dict[int, HandedConnection] = {}  # the latest by descriptor

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def listen(self, backlog: int = 0, /) -> None:
        while self.begun:
            self.begun.pop(0)()

    def accept(self) -> tuple[socket.socket, Any]:
        message, descriptors, _, _ = socket.recv_fds(self, NUMBER.size + LARGEST_START, 1)
        (number,) = NUMBER.unpack_from(message)
        if not descriptors:  # this process has too many files open
            self._notes.send(NOTE.pack(number, CLOSED))
            raise ConnectionAbortedError
        connection = HandedConnection(descriptors[0], number, message[NUMBER.size :], self._notes)
        self.connections[connection.fileno()] = connection
        try:
            return connection, connection.getpeername()
        except OSError:
            connection.close()
            raise ConnectionAbortedError from None
