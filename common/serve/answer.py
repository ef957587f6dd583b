"""The answer to a request for speech: bytes, or server-sent events, as they are made."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from melforge.common.errors import InputError
from melforge.common.serve.annotations import Annotations, utterance_alignments
from melforge.common.serve.errors import ApiError, bad_request, overloaded
from melforge.common.serve.incoming import unless_left
from melforge.common.serve.metrics import milliseconds
from melforge.common.serve.requests import SpeechFields, SpeechRequest, ignored_header
from melforge.common.serve.scheduler import LOG, Cancelled
from melforge.common.serve.service import Service, Speaking
from melforge.common.synthesis.subtitles import srt, vtt
from melforge.common.synthesis.timestamps import as_rows, timestamps

FAULT = "this text could not be spoken: the fault is the server's"


class SpeechAnswer(Response):
    """Starts when the first bytes are there; a client that disconnects stops the work.

    A failure before the first byte is answered with an error in OpenAI's form. After it the connection is
    closed without HTTP's end of a chunked answer, so that no client takes a part for the whole. HTTP/1.0 has
    no such end, only a stated length: there the answer is sent once it is complete.
    """

    def __init__(
        self, service: Service, wanted: SpeechFields, key: str, arrived: float, record: dict[str, Any]
    ):
        self.service, self.wanted, self.key, self.arrived = service, wanted, key, arrived
        self.record = record  # of the request, for the log
        self.background = None
        self.spoken: Speaking | None = None
        self.began = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.service.admitted(self.key):
            at_once = scope["http_version"] == "1.0" or not self.wanted.stream
            try:
                await unless_left(
                    receive, self._speak(send, at_once), self.service.settings.seconds, "spoken"
                )
            except ApiError as error:
                if error.code == "timeout":
                    self.record["end"] = "timeout"
                if not self.began:
                    raise
            finally:
                if self.spoken is not None:
                    self.spoken.job.cancel()
                    self.service.metrics.spoken(self.spoken.job.progress, len(self.wanted.input))
                    self.record |= described(self.spoken)

    async def _speak(self, send: Send, at_once: bool) -> None:
        form = self.wanted.stream_format
        whole = at_once or form == "json"
        self.spoken = spoken = await self.service.speak(self.wanted, self.arrived, whole)
        parts = {"audio": lambda _: spoken.job, "sse": events, "json": document}[form](spoken)
        try:
            async for data in joined(parts) if whole else parts:
                if not self.began:
                    self.began = True
                    await send(self._start(spoken, len(data) if whole else None))
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except Exception as error:
            self._fail(error)
        else:
            if not self.began:
                await send(self._start(spoken))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            self.record["end"] = "whole"

    def _fail(self, error: Exception) -> None:
        self.record["end"] = type(error).__name__
        answer = answer_for(error)
        if answer.status == 500:
            LOG.error("fault", exc_info=error, extra={"fields": {"id": self.record["id"]}})
        if not self.began:
            raise answer from None

    def _start(self, spoken: Speaking, length: int | None = None) -> MutableMapping[str, Any]:
        types = {"sse": "text/event-stream", "json": "application/json"}
        headers = {
            "content-type": types.get(self.wanted.stream_format, spoken.job.encoder.content_type),
            "cache-control": "no-store",
            "x-accel-buffering": "no",  # tells proxies to pass chunks on as they come
            "x-sample-rate": str(self.wanted.sample_rate),
        }
        if length is not None:
            headers["content-length"] = str(length)
        if ignored := ignored_header(self.wanted.ignored):
            headers["x-melforge-ignored"] = ignored
        if unspoken := spoken.unspoken:
            headers["x-melforge-unspoken"] = str(unspoken)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        return {"type": "http.response.start", "status": 200, "headers": raw}


def answer_for(error: Exception) -> ApiError:
    """400 if the text or the controls cannot be spoken; anything else is the server's fault."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Cancelled):
        return overloaded("the server is about to stop")
    if isinstance(error, InputError):
        return bad_request(str(error), SpeechRequest.model_fields)
    return ApiError(500, FAULT, code="internal_error")


def described(spoken: Speaking) -> dict[str, Any]:
    """What the log says of a spoken text: everything but the text itself."""
    progress, wanted = spoken.job.progress, spoken.wanted
    return {
        "model": wanted.model,
        "voice": wanted.voice_name,
        "format": wanted.response_format,
        "characters": len(wanted.input),
        "unspoken": spoken.unspoken,
        "audio_s": round(progress.made, 3),
        "queue_ms": milliseconds(progress.arrived, progress.started),
        "first_audio_ms": milliseconds(progress.arrived, progress.first_audio),
        "underruns": progress.underruns,
    }


async def events(spoken: Speaking) -> AsyncIterator[bytes]:
    """OpenAI's server-sent events: audio in base64, then the usage.

    If they were asked for, an utterance's words and alignment are events before its first audio.
    """
    annotations = Annotations(spoken)
    async for data in spoken.job:
        for row in annotations.since():
            yield event({**row, "type": f"speech.audio.{row['type']}"})
        yield event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
    characters, seconds = len(spoken.wanted.input), round(spoken.job.progress.made)
    usage = {"input_tokens": characters, "output_tokens": seconds, "total_tokens": characters + seconds}
    yield event({"type": "speech.audio.done", "usage": usage})


def event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


async def document(spoken: Speaking) -> AsyncIterator[bytes]:
    """The whole answer as JSON: audio in base64, words with their times, and subtitles."""
    job, stream = spoken.job, spoken.stream
    audio = b"".join([data async for data in job])
    content = {
        "audio": base64.b64encode(audio).decode(),
        "media_type": job.encoder.content_type,
        "sample_rate": spoken.wanted.sample_rate,
        "seconds": round(job.progress.made, 6),
        "words": as_rows(timestamps(stream)),
        "srt": srt(stream),
        "vtt": vtt(stream),
    }
    if spoken.wanted.alignment:
        content["alignments"] = utterance_alignments(stream)
    yield json.dumps(content).encode()


async def joined(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """All parts as one."""
    yield b"".join([data async for data in parts])
