"""The way to gRPC's own server, which gathers whole messages, and of as many calls as send them, unasked.

Connections are relayed to it, and what has come of messages that are not whole is counted as other callers'
is (`incoming.Held`), by HTTP/2's frames (RFC 9113, 4.1 and 6) and by the lengths in front of gRPC's messages.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from socket import socket
from typing import cast

from melforge.common.serve.connections import READ_AT_ONCE, most_connections
from melforge.common.serve.errors import ApiError
from melforge.common.serve.incoming import Held
from melforge.common.serve.metrics import log
from melforge.common.serve.settings import ServeSettings

PREFACE, FRAME_HEAD, MESSAGE_HEAD = 24, 9, 5  # bytes that begin a connection, a frame and a message
DATA, HEADERS, RST_STREAM = 0, 1, 3  # kinds of frames
END_STREAM = 1  # a flag of the first two
MOST_STREAMS = 1000  # calls of one connection at a time
OPEN_FILES = 3  # of a relayed connection: the caller's, and both ends of the one inside
INSIDE = "127.0.0.1"  # where gRPC's server listens
UNREAD_SECONDS = 20.0  # for which the end of an answer may wait to be read


class Door:
    """Callers' connections, and those inside that go with them."""

    def __init__(self, inside: int, most: int) -> None:
        self.inside, self.most = inside, most  # gRPC's port; connections at a time
        self.callers: set[CallerEnd] = set()
        self.addresses: dict[int, str] = {}  # of callers, by the ports that gRPC sees

    def address(self, peer: str) -> str:
        """The caller's whom gRPC calls so (ipv4:127.0.0.1:PORT)."""
        return self.addresses.get(int(peer.rpartition(":")[2]), "")


@asynccontextmanager
async def opened_door(listening: socket, inside: int, settings: ServeSettings) -> AsyncIterator[Door]:
    secure = None
    if settings.certificate:
        secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        secure.load_cert_chain(settings.certificate, settings.certificate_key)
        secure.set_alpn_protocols(["h2"])
    door = Door(inside, most_connections(settings, OPEN_FILES))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: CallerEnd(door), sock=listening, ssl=secure)
    try:
        yield door
    finally:
        server.close()


class Frames:
    """One direction of a connection, cut into frames."""

    def __init__(self, preface: int) -> None:
        self._head, self._left = bytes(FRAME_HEAD), preface  # of the frame that comes; bytes that it lacks

    def add(self, data: bytes) -> Iterator[tuple[int, int, memoryview, bool]]:
        """Of each frame its kind, its stream, a part of it, and whether the stream ends with it."""
        at, view = 0, memoryview(data)
        while at < len(data):
            if not self._left:
                begun = b"" if len(self._head) == FRAME_HEAD else self._head
                self._head = begun + data[at : at + FRAME_HEAD - len(begun)]
                at += len(self._head) - len(begun)
                if len(self._head) < FRAME_HEAD:
                    return
                self._left = int.from_bytes(self._head[:3])
            part = view[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            kind, flags, stream = self._head[3], self._head[4], int.from_bytes(self._head[5:]) & 0x7FFFFFFF
            ends = kind == RST_STREAM or (kind in (DATA, HEADERS) and bool(flags & END_STREAM))
            yield kind, stream, part, ends and not self._left


@dataclass
class Message:
    """The one that a stream sends now."""

    head: bytes = b""
    missing: int = 0
    come: int = 0

    def add(self, data: memoryview) -> None:
        at = 0
        while at < len(data):
            if self.missing:
                size = min(self.missing, len(data) - at)
                self.missing -= size
                self.come = self.come + size if self.missing else 0
                at += size
            else:
                begun = len(self.head)
                self.head += data[at : at + MESSAGE_HEAD - begun]
                at += len(self.head) - begun
                if len(self.head) == MESSAGE_HEAD:
                    self.missing, self.head = int.from_bytes(self.head[1:]), b""


class End(asyncio.Protocol):
    """One end of a relayed connection. What comes here goes on at the other one, at that one's pace."""

    transport: asyncio.Transport
    other: End | None = None

    def __init__(self, door: Door) -> None:
        self.door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.max_size = READ_AT_ONCE  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other one sends first what waits to be read, for some time."""
        if self.other is not None:
            self.other.transport.close()
            asyncio.get_running_loop().call_later(UNREAD_SECONDS, self.other.transport.abort)
            self.other = None


class CallerEnd(End):
    def __init__(self, door: Door) -> None:
        super().__init__(door)
        self.messages: dict[int, Message] = {}  # of the streams that are open
        self._latest = 0  # stream
        self._frames, self._held = Frames(PREFACE), Held()
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.door.callers) < self.door.most:
            self.door.callers.add(self)
            self.transport.pause_reading()
            self._connecting = asyncio.create_task(self._connect())
        else:
            self.transport.abort()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: InnerEnd(self), INSIDE, self.door.inside)
        except OSError:
            self.transport.abort()
        else:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        for kind, stream, part, ends in self._frames.add(data):
            if kind == HEADERS and stream > self._latest:
                self._latest, self.messages[stream] = stream, Message()
            elif kind == DATA and (message := self.messages.get(stream)):
                message.add(part)
            if ends:
                self.messages.pop(stream, None)
        try:
            self._held.note(sum(one.come for one in self.messages.values()))
        except ApiError as error:
            client = self.transport.get_extra_info("peername")[0]
            log("cut off", logging.WARNING, protocol="riva", client=client, message=str(error))
            self.transport.abort()
            return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.door.callers.discard(self)
        self._held.note(0)
        if self._connecting is not None:
            self._connecting.cancel()


class InnerEnd(End):
    def __init__(self, caller: CallerEnd) -> None:
        super().__init__(caller.door)
        self.caller = caller
        self._frames, self._port = Frames(0), 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.other, self.caller.other = self.caller, self
        self._port = transport.get_extra_info("sockname")[1]
        self.door.addresses[self._port] = self.caller.transport.get_extra_info("peername")[0]

    def data_received(self, data: bytes) -> None:
        for _, stream, _, ends in self._frames.add(data):
            if ends:  # for the caller too: nobody reads what more of it comes
                self.caller.messages.pop(stream, None)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.door.addresses.pop(self._port, None)
