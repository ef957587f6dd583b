"""Connections of clients: WebSockets, HTTP by h11 with a deadline for headers, and only so many of them."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode

from melforge.common.serve.errors import ApiError
from melforge.common.serve.handing import Handed, HandedConnection
from melforge.common.serve.incoming import Held
from melforge.common.serve.metrics import log
from melforge.common.serve.settings import ServeSettings

HEAD_SECONDS = 20.0  # in which a connection's next request must have begun and its headers have come
READ_AT_ONCE = 1 << 13  # bytes: thousands of tiny chunks or frames of 256 KiB, asyncio's number, take long
UNREAD_SECONDS = 600.0  # for which the end of an answer may wait to be read after that
SHARE = (
    0.75  # of the system's limit of open files; the rest is for files, ffmpeg's pipes and what is accepted
)
FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

BAD = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s"
)


class HttpConnection(H11Protocol):
    """uvicorn's, which waits for headers as long as their sender likes.

    At most `most` connections are kept: a new one takes the place of the one that has waited longest without
    a request, and is refused with 503 if there is none. One that a front has handed over goes back to it
    between two requests.
    """

    def __init__(self, *given: Any, most: int, handed: Handed | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._most, self._from_front = most, handed
        self._handed: HandedConnection | None = None
        self._deadline: asyncio.TimerHandle | None = None  # while no request is under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.max_size = READ_AT_ONCE  # type: ignore[attr-defined]  # also of the WebSocket that it may be
        if len(self.connections) > self._most:
            self._take_a_place()
        self._note_state()
        if self._from_front is not None:
            self._handed = self._from_front.connections.pop(transport.get_extra_info("socket").fileno())
            if self._handed.start and not transport.is_closing():
                self.data_received(self._handed.start)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._note_state()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_state()
        if self._handed is not None and self._can_go_back():
            self._handed.give_back()
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no HTTP; an answer that is under way ends with the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = msg.encode()  # by h11 it could not be sent to HEAD
            self.transport.write(BAD % (len(body), body))
        self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _note_state(self) -> None:
        """Starts the deadline when no request is under way, and ends it when one is.

        A WebSocket has left `connections` for a protocol of its own, which pings.
        """
        waits = self in self.connections and (self.cycle is None or self.cycle.response_complete)
        if waits and self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)
        elif not waits:
            self._end_deadline()

    def _can_go_back(self) -> bool:
        """Whether nothing of this connection is here alone: neither a request, nor bytes, nor keys of TLS."""
        return (
            self.conn.our_state is self.conn.their_state is h11.IDLE
            and self.conn.trailing_data == (b"", False)
            and not self.transport.get_write_buffer_size()
            and not self.transport.is_closing()
            and self.scheme == "http"
        )

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self.transport.close()  # sends what waits to be read first
        self._deadline = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def _take_a_place(self) -> None:
        waiting = [one for one in self.connections if isinstance(one, HttpConnection) and one._deadline]
        if waiting:
            oldest = min(waiting, key=lambda one: one._deadline.when())  # type: ignore[union-attr]
            oldest._end_deadline()  # it is out of this list at once, of `connections` soon
            oldest.transport.abort()
        else:
            self.transport.write(FULL)
            self.transport.close()


class LiveConnection(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which fails where a message is no UTF-8 and its sender has closed behind it, where
    what is no message comes before it is accepted, or an answer behind its end, logs an error where one is
    refused, stays with who reads nothing, and keeps all that comes of messages that are not whole, and all
    pongs that nobody reads.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._held, self._pong = Held(), b""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._held.note(0)
        self.conn.parser.close()  # which refers to all that has come, and to itself
        self.conn.parser_exc = None  # which refers to where it was raised

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
            self._held.note(len(self.conn.reader.buffer) + sum(map(len, self.frames)))
        except InvalidState:
            self.handle_parser_exception()
        except ApiError as error:
            self.conn.fail(CloseCode.TRY_AGAIN_LATER, str(error))
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:  # it has not been accepted
            self.transport.close()
        else:
            super().handle_parser_exception()

    def handle_ping(self) -> None:
        """While what was sent is not read, the pong to the last ping stands for all (RFC 6455, 5.5.3)."""
        self._pong = b"".join(self.conn.data_to_send()) or self._pong  # of all pings that came together
        if self.writable.is_set():
            self._send_pong()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send_pong()

    def _send_pong(self) -> None:
        pong, self._pong = self._pong, b""
        self.transport.write(pong)

    def handle_cont(self, event: Any) -> None:
        """Adds to one piece: a list of empty frames, of which any number may come, is larger."""
        message: Any = self.frames[0]
        if isinstance(message, bytes):
            message = bytearray(message)
        message += event.data
        self.frames = [message]
        if event.fin:
            self.send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        if self.close_sent and self.handshake_complete:
            raise ClientDisconnected
        await super().send(message)
        self.handshake_complete |= self.close_sent


def most_connections(settings: ServeSettings) -> int:
    """As the setting has it, or as many as the system's limit of open files leaves room for."""
    if sys.platform == "win32":
        return settings.connections
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = settings.connections if files < 0 else min(settings.connections, int(SHARE * files))
    if most < settings.connections:
        log("fewer_connections", logging.WARNING, most=most, wanted=settings.connections, open_files=files)
    return most
