"""A client of the speech server, and of others that have OpenAI's audio API: HTTP/1.1 on asyncio, no more.

It passes on each chunk as it arrives, at little cost: measuring a server must not slow it down.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from melforge.common.errors import InputError

LONGEST_HEAD = 1 << 16  # bytes of an answer's status and headers
AT_ONCE = 1 << 16  # bytes per read of an answer that is not chunked
NO_SPEECH = ("text/html", "text/plain", "application/json")
SHOWN = 200  # characters of an error that is not in OpenAI's form


@dataclass(frozen=True)
class Address:
    """Where a server is: http://HOST:PORT, with a path in front of /v1 if it has one."""

    host: str
    port: int
    path: str
    secure: bool

    @classmethod
    def parse(cls, url: str) -> Address:
        way_out = "give http://HOST:PORT"
        try:
            parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        except ValueError:
            raise InputError(f"{url!r} is no server's address (its brackets hold none): {way_out}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is no server's address: {way_out}")
        try:
            port = parts.port
        except ValueError:
            port = 0
        if port == 0:
            why = "its port is no number from 1 to 65535"
            raise InputError(f"{url!r} is no server's address ({why}): {way_out}")
        try:
            parts.hostname.encode("idna")  # as looking it up does
        except UnicodeError:
            why = f"{parts.hostname!r} cannot be a host's name"
            raise InputError(f"{url!r} is no server's address ({why}): {way_out}") from None
        secure = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if secure else 80), path, secure)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}{self.path}"


class ServerError(Exception):
    """An error answer; `status` 0 means that no answer came, or only a part."""

    def __init__(self, status: int, message: str, retry_after: str = ""):
        super().__init__(status, message, retry_after)
        self.status, self.retry_after = status, retry_after

    def __str__(self) -> str:
        return self.args[1]

    @property
    def is_the_callers(self) -> bool:
        """Whether the request itself is at fault; too many requests (429) are not: later it may succeed."""
        return 400 <= self.status < 500 and self.status != 429


class Connection:
    """One connection, for one request at a time; it is opened, and reopened, when needed."""

    def __init__(self, address: Address, key: str | None = None, timeout: float = 300.0):
        """`timeout`: the longest wait for the next bytes, in seconds."""
        self.address, self.timeout = address, timeout
        host = f"[{address.host}]" if ":" in address.host else address.host
        head = {"Host": f"{host}:{address.port}", "Content-Type": "application/json"}
        if key:
            head["Authorization"] = f"Bearer {key}"
        self._head = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def speech(self, request: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Asks for speech; its bytes as they come. Raises ServerError, with status 0 if the server breaks
        off, and OSError if there is no server.
        """
        reader, head = await self._ask("/v1/audio/speech", json.dumps(request).encode())
        try:
            status, headers = _parsed(head)
            body = self._body(reader, headers)
            if status != 200:
                raise _error(status, headers, b"".join([data async for data in body]))
            kind = headers.get("content-type", "audio").partition(";")[0]
            if kind in NO_SPEECH:
                raise ServerError(0, f"what answers is no speech server: its answer is {kind}")
            async for data in body:
                yield data
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            self.close()
            raise ServerError(0, "the server broke off before the end of its answer") from None
        except BaseException:  # the unread rest of this answer would be taken for the next one
            self.close()
            raise
        if headers.get("connection", "").lower() == "close":
            self.close()

    def close(self) -> None:
        if self._streams:
            with suppress(Exception):
                self._streams[1].close()
            self._streams = None

    async def _ask(self, path: str, body: bytes) -> tuple[asyncio.StreamReader, bytes]:
        """Sends a request; returns the reader, and the head of the answer."""
        kept = self._streams is not None
        try:
            return await self._send(path, body)
        except asyncio.LimitOverrunError:
            self.close()
            raise ServerError(0, "what answers is no HTTP server") from None
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.close()
            if not kept and not isinstance(error, asyncio.IncompleteReadError):
                raise
        if kept:  # servers close connections that were idle for a while
            with suppress(asyncio.IncompleteReadError):
                return await self._send(path, body)
        raise ServerError(0, "the server closed the connection without an answer")

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection, opened where it is not; an OSError where there is no server."""
        if self._streams is None:
            address = self.address
            context = ssl.create_default_context() if address.secure else None
            opening = asyncio.open_connection(address.host, address.port, ssl=context, limit=LONGEST_HEAD)
            self._streams = await self._soon(opening)
        assert self._streams
        return self._streams

    async def _send(self, path: str, body: bytes) -> tuple[asyncio.StreamReader, bytes]:
        reader, writer = await self.open()
        line = f"POST {self.address.path}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        writer.write(line.encode("latin-1") + body)
        await writer.drain()
        return reader, await self._soon(reader.readuntil(b"\r\n\r\n"))

    async def _body(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The body, in the server's own chunks if it has any."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._soon(reader.readuntil(b"\r\n"))).partition(b";")[0], 16):
                data = await self._soon(reader.readexactly(size + 2))
                yield data[:-2]
            while await self._soon(reader.readuntil(b"\r\n")) != b"\r\n":  # trailers
                pass
        elif "content-length" in headers:
            left = int(headers["content-length"])
            while left:
                data = await self._soon(reader.read(min(left, AT_ONCE)))
                if not data:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(data)
                yield data
        else:
            while data := await self._soon(reader.read(AT_ONCE)):
                yield data
            self.close()

    async def _soon(self, awaited: Any) -> Any:
        try:
            async with asyncio.timeout(self.timeout):
                return await awaited
        except TimeoutError:
            self.close()
            raise ServerError(0, f"nothing came from the server for {self.timeout:g} s") from None


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers, by their names in lower case."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdecimal():
        raise ServerError(0, f"what answers is no HTTP server: {first[:SHOWN]!r}")
    pairs = (line.partition(":") for line in lines if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _error(status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
    """The message of OpenAI's or FastAPI's form, else the first characters of the answer."""
    text = body.decode(errors="replace")
    message = " ".join(text.split())[:SHOWN] or "it says nothing more"
    with suppress(ValueError, KeyError, TypeError):
        found = json.loads(text)
        message = str(found["error"]["message"] if "error" in found else found["detail"])
    return ServerError(status, message, headers.get("retry-after", ""))
