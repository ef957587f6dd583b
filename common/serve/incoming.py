"""What comes from a caller: a body within limits, and the news that it has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager, suppress
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import BinaryIO, ClassVar, TypeVar, cast

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from melforge.common.serve.errors import ApiError, overloaded

BODY_SECONDS = 30.0  # in which a request's body must have come
IN_MEMORY = 1 << 16  # bytes of a recording that comes, of many perhaps; more are on disk

# Bytes in memory of what has come and is not whole, or not begun: of all callers together, and of each who is
# not counted.
HELD_BY_ALL, HELD_BY_EACH = 32 << 20, 1 << 14

T = TypeVar("T")


class Left(Exception):
    """The client disconnected before the end of its answer."""


class Held:
    """What is held in memory for one caller until it is whole, or its turn comes."""

    _all: ClassVar[int] = 0

    def __init__(self) -> None:
        self._size = 0

    def note(self, size: int) -> None:
        """It has so many bytes now; 503 if all callers' together are too many, and it is to be given up."""
        size = size if size > HELD_BY_EACH else 0
        Held._all += size - self._size
        self._size = size
        if size and Held._all > HELD_BY_ALL:
            self.note(0)
            raise overloaded("too much of what callers send waits in memory: try again later")

    def __del__(self) -> None:
        self.note(0)


def recording_file(size: int = 0) -> BinaryIO:
    """An empty file for a recording that comes, of so many bytes at least. It goes with its last user."""
    return cast(BinaryIO, TemporaryFile() if size > IN_MEMORY else SpooledTemporaryFile(IN_MEMORY))


async def read_json(request: Request, most: int) -> bytes:
    """A body that says that it is JSON, as `read_body`; 415 otherwise.

    A page of another site can send what is not JSON without asking first (CORS' simple requests).
    """
    require_type(request, "application/json")
    return await read_body(request, most)


def require_type(request: Request, wanted: str) -> None:
    """415 if the body is of another media type, or compressed."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != wanted:
        message = f"the body must be {wanted}, and its Content-Type is {given[:50] or 'missing'!r}"
        raise ApiError(415, message, code="unsupported_media_type")
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        message = f"the body must be sent as it is, without Content-Encoding: {coding[:50]}"
        raise ApiError(415, message, code="unsupported_media_type", headers={"Accept-Encoding": "identity"})


async def read_body(request: Request, most: int) -> bytes:
    """The body, which must have come within BODY_SECONDS; see `body_chunks`."""
    async with in_time(BODY_SECONDS):
        return b"".join([chunk async for chunk in body_chunks(request, most)])


@asynccontextmanager
async def in_time(seconds: float) -> AsyncGenerator[None, None]:
    """408 if reading a body takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ApiError(408, f"the body did not come in {seconds:g} seconds", code="timeout") from None


async def body_chunks(request: Request, most: int, in_memory: bool = True) -> AsyncGenerator[bytes, None]:
    """The body as it comes, and is kept; 413 if it is longer than `most` bytes."""
    too_large = ApiError(413, f"the body has more than {most} bytes", code="request_too_large")
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > most:
        raise too_large
    size, held = 0, Held()
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise too_large
            held.note(size if in_memory else 0)
            yield chunk
    except ClientDisconnect:
        raise ApiError(400, "the client left before the end of its request") from None


async def unless_left(receive: Receive, working: Awaitable[T], seconds: float | None, done: str) -> T:
    """The result of work for a client. The work is cancelled if it takes more than `seconds` (503) or the
    client disconnects (Left).

    `done` is what the message calls the work, such as "spoken".
    """
    work, leaving = asyncio.ensure_future(working), asyncio.ensure_future(left(receive))
    try:
        await asyncio.wait({work, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        if leaving.done():
            raise Left
        raise ApiError(503, f"not {done} within {seconds:g} seconds", code="timeout")
    finally:
        work.cancel()
        leaving.cancel()
        await asyncio.gather(work, leaving, return_exceptions=True)


async def left(receive: Receive) -> None:
    """Returns when the client has gone."""
    with suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
