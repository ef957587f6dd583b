"""An ASGI application that forwards requests to replicas; if one dies, another continues its answer.

The same request has the same answer on every replica of a kind, so what was sent already is left out of the
second answer. It is compared: where it differs, the connection is closed without HTTP's end of an answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from melforge.common.serve.errors import TAKEN_SECONDS, ApiError, overloaded
from melforge.common.serve.gate import ID, POLICY
from melforge.common.serve.incoming import Left, read_body, unless_left

# Seconds before each attempt: a dead replica stays listed for some time.
DELAYS = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2)
LEAVING_SECONDS = 1.0  # for the application to end after its client has left
START, BODY = "http.response.start", "http.response.body"
TAKEN = "melforge.taken"  # a replica's first message, and its sign that it works on
SIGN_SECONDS = TAKEN_SECONDS / 4  # without another message
WANTS_TAKEN = (b"x-melforge-wants-taken", b"1")  # the header of proxies that are told of it
READ_WHOLE = (b"content-type", b"application/json")  # the header of answers whose parts are of no use


@dataclass(frozen=True)
class Asked:
    """A request as it goes to a replica."""

    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    http_version: str

    @property
    def scope(self) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": self.http_version,
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "query_string": self.query,
            "headers": list(self.headers),
            "client": None,
            "server": None,
        }


class ReplicaAnswer(Protocol):
    """TAKEN, and then messages of ASGI from a replica; `cancel` ends its work."""

    def __aiter__(self) -> AsyncIterator[Message]: ...

    def cancel(self) -> Any: ...


class ReplicaLost(Exception):
    """A replica died before the end of its answer."""


class Forward:
    """`ask` returns a replica's answer, whose iterator raises ReplicaLost, or ApiError if none has room."""

    def __init__(self, ask: Callable[[Asked], ReplicaAnswer], body_bytes: int):
        self._ask, self._body_bytes = ask, body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": POLICY})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = _Sent(send, WANTS_TAKEN in scope["headers"])
        try:
            body = await read_body(Request(scope, receive), self._body_bytes)
            with suppress(Left):
                await unless_left(receive, self._forward(asked(scope, body), sent), None, "forwarded")
        except ApiError as error:
            if sent.began:
                raise
            await error.response(scope, receive, send)

    async def _forward(self, request: Asked, sent: _Sent) -> None:
        loop = asyncio.get_running_loop()
        deadline = sent.at + TAKEN_SECONDS
        for delay in DELAYS:
            answer = None
            try:
                async with asyncio.timeout_at(deadline) as waiting:
                    await asyncio.sleep(delay)
                    answer = self._ask(request)
                    messages = aiter(answer)
                    await anext(messages)
                    waiting.reschedule(sent.late)
                    await sent.again()
                    try:
                        async for message in messages:
                            await sent.pass_on(message)
                            waiting.reschedule(sent.late)
                        return
                    finally:  # However long it worked, another may take its work, in little time.
                        little = loop.time() + TAKEN_SECONDS / 4
                        deadline = sent.late or max(sent.at + TAKEN_SECONDS, little)
            except ReplicaLost:
                continue
            except TimeoutError:
                if not waiting.expired():
                    raise
                break
            finally:
                if answer is not None:
                    with suppress(Exception):
                        answer.cancel()
        if sent.began:
            raise ReplicaLost("no replica finished in time what one had begun")
        raise overloaded("no replica could take the request: try again")


class _Sent:
    """What the client has received of an answer; another replica's answer is passed on from there."""

    def __init__(self, send: Send, wants_taken: bool):
        self._send, self._wants_taken, self._was_told = send, wants_taken, False
        self.began = self._is_heard = False
        self.at = asyncio.get_running_loop().time()  # when it received something last, or could have soon
        self._status = 0
        self._hash, self._count = hashlib.sha256(), 0  # of the bytes sent
        self._other, self._left = hashlib.sha256(), 0  # of those of a further answer, which are left out

    @property
    def late(self) -> float | None:
        """When an answer that is heard as it comes has been silent for too long."""
        return self.at + TAKEN_SECONDS if self._is_heard else None

    async def again(self) -> None:
        self._other, self._left = hashlib.sha256(), self._count
        if self._wants_taken and not self._was_told:
            self._was_told = True
            await self._send({"type": TAKEN})

    async def pass_on(self, message: Message) -> None:
        if message["type"] == TAKEN:
            if self._is_heard and not self._left:
                self.at = asyncio.get_running_loop().time()
                if self._wants_taken:
                    await self._send(message)
            return
        if message["type"] == START:
            if not self.began:
                self.began, self._status = True, message["status"]
                self._is_heard = READ_WHOLE not in message["headers"]
                # Ray's proxy has given the request its id, and says it itself.
                headers = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
                await self._send({**message, "headers": headers})
                self.at = asyncio.get_running_loop().time()
            elif message["status"] != self._status:
                raise ReplicaLost(f"another replica answers {message['status']}, not {self._status}")
            return
        data = message.get("body", b"")
        known, new = data[: self._left], data[self._left :]
        if known:
            self._other.update(known)
            self._left -= len(known)
            if not self._left and self._other.digest() != self._hash.digest():
                raise ValueError("another replica makes other bytes: the answer cannot go on")
        more = message.get("more_body", False)
        if not more and self._left:
            raise ValueError("another replica makes fewer bytes: the answer cannot go on")
        if new or not more:
            self._hash.update(new)
            self._count += len(new)
            await self._send({"type": BODY, "body": new, "more_body": more})
            self.at = asyncio.get_running_loop().time()


def asked(scope: Scope, body: bytes) -> Asked:
    """The request with an id, so that all attempts are one request in the replicas' logs too."""
    headers = tuple((bytes(name), bytes(value)) for name, value in scope["headers"])
    if not ID.fullmatch(dict(headers).get(b"x-request-id", b"")):
        own = (b"x-request-id", os.urandom(8).hex().encode())
        headers = (*(pair for pair in headers if pair[0] != own[0]), own)
    return Asked(
        scope["method"], scope["path"], scope["query_string"], headers, body, scope.get("http_version", "1.1")
    )


async def answer(app: ASGIApp, request: Asked) -> AsyncIterator[Message]:
    """Runs in a replica: TAKEN, and the application's messages, with signs where these are slow. Closing the
    iterator: the client has left.
    """
    yield {"type": TAKEN}
    messages: asyncio.Queue[Message | None] = asyncio.Queue()
    given, gone = False, asyncio.Event()

    async def receive() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": request.body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def run() -> None:
        try:
            await app(request.scope, receive, messages.put)
        finally:
            messages.put_nowait(None)

    running = asyncio.create_task(run())
    try:
        while True:
            message: Message | None = {"type": TAKEN}
            with suppress(TimeoutError):
                async with asyncio.timeout(SIGN_SECONDS):
                    message = await messages.get()
            if message is None:
                break
            yield message
        await running
    finally:
        gone.set()  # of which the application makes a line in its log
        await asyncio.wait({running}, timeout=LEAVING_SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _live(receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})
