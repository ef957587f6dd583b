"""Answers that are written as they are made, piece by piece: speech as bytes, server-sent events or JSON.

No piece is large and none is made of much: what an event loop does between two pieces, all clients wait for.
"""

from __future__ import annotations

import asyncio
import base64
import json
from abc import abstractmethod
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from tempfile import TemporaryFile
from typing import Any, BinaryIO, ClassVar, TypeVar, cast
from weakref import WeakSet

from fastapi import Response
from starlette.types import Receive, Scope, Send

from melforge.common.errors import InputError
from melforge.common.serve.annotations import Annotations, utterance_alignments
from melforge.common.serve.errors import ApiError, bad_request, overloaded
from melforge.common.serve.incoming import unless_left
from melforge.common.serve.requests import SpeechFields, SpeechRequest, ignored_header, warnings_header
from melforge.common.serve.scheduler import LOG, Cancelled, SpeechJob
from melforge.common.serve.service import Service, Speaking
from melforge.common.synthesis.subtitles import srt, vtt
from melforge.common.synthesis.timestamps import as_rows, bookmark_rows, bookmarks, timestamps

FAULT = "this text could not be spoken: the fault is the server's"
BLOCK = 1 << 20  # bytes, from which on a buffer goes back to the system: `keep_little_freed_memory`
IN_MEMORY = 16 << 20  # bytes of all answers that wait until they are whole; more are on disk
PIECE = 3 << 16  # bytes; of base64's input, which is 3 bytes for each 4 characters

T = TypeVar("T")


class WrittenAnswer(Response):
    """Starts when the first bytes are there; a client that disconnects stops the work.

    A failure before the first byte is answered with an error in OpenAI's form. After it the connection is
    closed without HTTP's end of a chunked answer, so that no client takes a part for the whole. HTTP/1.0 has
    no such end, only a stated length: there the answer is sent once it is complete.
    """

    def __init__(
        self, service: Service, key: str, arrived: float, record: dict[str, Any], texts: Sequence[Any]
    ):
        """`texts`: as the caller sent them; what is no text is refused later."""
        self.service, self.key, self.arrived, self.texts = service, key, arrived, texts
        self.record = record  # of the request, for the log
        self.background = None
        self.began = False

    @abstractmethod
    def parts(self, at_once: bool) -> AsyncGenerator[bytes, None]:
        """The answer's bytes; `at_once`: they are sent together."""

    @abstractmethod
    def headers_of(self) -> dict[str, str]:
        """Those of the answer, when its first bytes are there, or all of its none."""

    def ended(self) -> None:
        """Notes what was spoken, completely or not."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        at_once = scope["http_version"] == "1.0" or self.has_length
        with self.service.admitted(self.key, self.texts):
            try:
                writing = self._write(send, at_once)
                await unless_left(receive, writing, self.service.settings.seconds, "spoken")
            except ApiError as error:
                if error.code == "timeout":
                    self.record["end"] = "timeout"
                if not self.began:
                    raise
            finally:
                self.ended()

    @property
    def has_length(self) -> bool:
        """Whether the answer must state its length, so that all of it is there before it starts."""
        return False

    async def _write(self, send: Send, at_once: bool) -> None:
        try:
            async with aclosing(self.parts(at_once)) as parts:
                if at_once:
                    kept = await kept_parts(parts, self.service.settings.answer_bytes)
                    await self._start(send, kept.size)
                    async for data in kept.taken():
                        await self._send(send, data)
                else:
                    async for data in parts:
                        await self._send(send, data)
        except Exception as error:
            self._fail(error)
        else:
            if not self.began:
                await self._start(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            self.record["end"] = "whole"

    async def _send(self, send: Send, data: bytes) -> None:
        for piece in pieces(data):
            if not self.began:
                await self._start(send)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)  # a fast reader never lets `send` wait

    async def _start(self, send: Send, length: int | None = None) -> None:
        self.began = True
        headers = {"cache-control": "no-store", **self.headers_of()}
        if length is not None:
            headers["content-length"] = str(length)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

    def _fail(self, error: Exception) -> None:
        self.record["end"] = type(error).__name__
        answer = answer_for(error, self.record)
        if not self.began:
            raise answer from None


class SpeechAnswer(WrittenAnswer):
    """One text."""

    def __init__(
        self, service: Service, wanted: SpeechFields, key: str, arrived: float, record: dict[str, Any]
    ):
        super().__init__(service, key, arrived, record, [wanted.input])
        self.wanted = wanted
        self.spoken: Speaking | None = None

    @property
    def has_length(self) -> bool:
        return not self.wanted.stream

    async def parts(self, at_once: bool) -> AsyncGenerator[bytes, None]:
        form = self.wanted.stream_format
        if form == "audio":
            self.wanted.alignment = False  # it would be kept for nobody
        self.spoken = await self.service.speak(self.wanted, self.arrived, at_once or form == "json")
        audio = in_order(self.spoken.job, self.service.settings.answer_bytes)
        written = {"audio": lambda _, audio: audio, "sse": events, "json": document}[form]
        async for data in written(self.spoken, audio):
            yield data

    def ended(self) -> None:
        if self.spoken is not None:
            self.record |= self.service.conclude(self.spoken, self.key)

    def headers_of(self) -> dict[str, str]:
        assert self.spoken is not None
        types = {"sse": "text/event-stream", "json": "application/json"}
        headers = {
            "content-type": types.get(self.wanted.stream_format, self.spoken.job.encoder.content_type),
            "x-accel-buffering": "no",  # tells proxies to pass chunks on as they come
            "x-sample-rate": str(self.wanted.sample_rate),
        }
        if ignored := ignored_header(self.wanted.ignored):
            headers["x-melforge-ignored"] = ignored
        if unspoken := self.spoken.unspoken:
            headers["x-melforge-unspoken"] = str(unspoken)
        if warnings := self.spoken.stream.analysis.warnings:
            headers["x-melforge-warnings"] = warnings_header(warnings)
        return headers


async def in_order(job: SpeechJob, most: int) -> AsyncGenerator[bytes, None]:
    """The audio's bytes, as they come unless the first of them are known last; see `kept_parts`."""
    if not job.encoder.head_comes_last:
        async for data in job:
            yield data
        return
    kept = await kept_parts(job, most)
    async for data in kept.taken(job.encoder.head):
        yield data


async def each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


class KeptBytes:
    """Bytes that wait until all are there, in blocks of which none leaves a hole in memory when it goes.

    Where many answers wait, further blocks are on disk, if they can be.
    """

    _all: ClassVar[WeakSet[KeptBytes]] = WeakSet()

    def __init__(self) -> None:
        self.size = 0
        self._blocks: deque[bytes | int] = deque()  # or how many are next in the file
        self._last: list[bytes] = []  # parts that are no block yet
        self._file: BinaryIO | None = None
        self._all.add(self)

    async def add(self, data: bytes) -> None:
        self.size += len(data)
        self._last.append(data)
        if sum(map(len, self._last)) >= BLOCK:
            block = b"".join(self._last)
            self._last.clear()
            in_memory = sum(len(one) for kept in self._all for one in kept._blocks if isinstance(one, bytes))
            if in_memory + len(block) <= IN_MEMORY or not await asyncio.to_thread(self._write, block):
                self._blocks.append(block)
            else:
                self._blocks.append(len(block))

    def _write(self, block: bytes) -> bool:
        """Whether it is in the file."""
        end = 0
        try:
            self._file = self._file or cast(BinaryIO, TemporaryFile(buffering=0))  # noqa: SIM115
            end, rest = self._file.tell(), memoryview(block)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:  # the disk is full, or there is none
            if self._file is not None:
                self._file.seek(end)
            return False
        return True

    async def taken(self, head: bytes = b"") -> AsyncGenerator[bytes, None]:
        """All of them, behind a head, which are not kept longer."""
        yield head
        if self._file is not None:
            self._file.seek(0)
        self._blocks.extend(self._last)
        self._last.clear()
        while self._blocks:
            block = self._blocks.popleft()
            if isinstance(block, int):
                assert self._file is not None
                block = await asyncio.to_thread(self._file.read, block)
            yield block


async def kept_parts(
    parts: AsyncIterable[bytes], most: int, way_out: str = "a format that is streamed"
) -> KeptBytes:
    """All of them; 413 if they have more than `most` bytes together."""
    kept = KeptBytes()
    async for data in parts:
        await kept.add(data)
        if kept.size > most:
            raise too_large(most, way_out)
    return kept


def too_large(most: int, way_out: str) -> ApiError:
    message = (
        f"the answer has more than {most} bytes, which have to wait until all are there (--answer-bytes): "
        f"ask for less text, a lower sample_rate, or {way_out}"
    )
    return ApiError(413, message, code="answer_too_large")


def pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


def answer_for(error: Exception, record: Mapping[str, Any] | None = None) -> ApiError:
    """400 if the text or the controls cannot be spoken; anything else is the server's fault, which is logged
    with the id in the request's record.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Cancelled):
        return overloaded("the server is about to stop")
    if isinstance(error, InputError):
        return bad_request(str(error), SpeechRequest.model_fields)
    about = {"id": record["id"]} if record else {}
    LOG.error("fault", exc_info=error, extra={"fields": about})
    return ApiError(500, FAULT, code="internal_error")


async def events(spoken: Speaking, audio: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """OpenAI's server-sent events: audio in base64, then the usage.

    If they were asked for, an utterance's words and alignment are events before its first audio.
    """
    annotations = Annotations(spoken)
    async for data in audio:
        for row in await annotations.since():
            yield event({**row, "type": f"speech.audio.{row['type']}"})
        for piece in pieces(data):
            yield event({"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()})
    characters, seconds = len(spoken.wanted.input), round(spoken.job.progress.made)
    usage = {"input_tokens": characters, "output_tokens": seconds, "total_tokens": characters + seconds}
    yield event({"type": "speech.audio.done", "usage": usage})


def event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


async def document(spoken: Speaking, audio: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The whole answer as JSON: audio in base64, words with their times, and subtitles."""
    async for part in json_string("audio", audio):
        yield part
    rest = await asyncio.to_thread(json_of_words, spoken)
    yield b", " + rest[1:-1]
    if spoken.wanted.alignment:
        yield b', "alignments": ['
        for number in range(len(spoken.stream.durations)):
            yield b", " if number else b""
            yield await asyncio.to_thread(json_of_alignment, spoken, number)
        yield b"]"
    yield b"}"


def json_of_words(spoken: Speaking) -> bytes:
    stream = spoken.stream
    content = {
        "media_type": spoken.job.encoder.content_type,
        "sample_rate": spoken.wanted.sample_rate,
        "seconds": round(spoken.job.progress.made, 6),
        "words": as_rows(timestamps(stream)),
        "marks": bookmark_rows(bookmarks(stream)),
        "srt": srt(stream),
        "vtt": vtt(stream),
    }
    return json.dumps(content).encode()


def json_of_alignment(spoken: Speaking, number: int) -> bytes:
    return json.dumps(utterance_alignments(spoken.stream, number, number + 1)[0]).encode()


async def json_string(name: str, parts: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The beginning of a JSON object whose first value is these bytes in base64."""
    before, rest = f'{{"{name}": "'.encode(), b""
    async for data in parts:
        for piece in pieces(data):
            piece = rest + piece
            whole = len(piece) - len(piece) % 3
            yield before + base64.b64encode(piece[:whole])
            before, rest = b"", piece[whole:]
    yield before + base64.b64encode(rest) + b'"'
