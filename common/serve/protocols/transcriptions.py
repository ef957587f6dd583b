"""OpenAI's route that transcribes recordings, and the formats of its answers."""

from __future__ import annotations

import math
import zlib
from typing import Any, BinaryIO, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from melforge.common.recognition.captions import Caption, captions
from melforge.common.recognition.transcript import Transcript
from melforge.common.serve.answer import event
from melforge.common.serve.errors import ApiError
from melforge.common.serve.gate import caller_of, record_of
from melforge.common.serve.hearing import LANGUAGES, Transcriber
from melforge.common.serve.incoming import body_chunks, in_time, require_type, unless_left
from melforge.common.serve.metrics import milliseconds
from melforge.common.serve.requests import ignored_header, parse
from melforge.common.serve.service import Service
from melforge.common.synthesis.subtitles import srt_of, vtt_of

LISTS = ("timestamp_granularities", "timestamp_granularities[]")
USED = ("file", "model", "response_format", "language", "stream", *LISTS)
STREAMED = ("json", "text")
FORM = "multipart/form-data"
FORM_BYTES = 1 << 16  # of a form without its file
MOST_FIELDS = 64
UPLOAD_SECONDS = 120.0  # in which a recording must have arrived


class TranscriptionFields(BaseModel):
    """OpenAI's fields beside the file."""

    model: str = Field(description="the ear's name, or one of OpenAI's")
    language: str = Field("", description="ISO 639-1")
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    timestamp_granularities: set[Literal["segment", "word"]] = Field(
        default_factory=set, description="with verbose_json"
    )
    stream: bool = Field(False, description="server-sent events, with json or text")
    temperature: float = Field(0.0, ge=0, le=1, description="accepted and not used")
    prompt: str = Field("", description="accepted and not used")

    @classmethod
    def body_schema(cls) -> dict[str, Any]:
        """The form for /openapi.json."""
        schema = cls.model_json_schema()
        file = {"type": "string", "format": "binary", "description": "a sound file"}
        properties = {"file": file, **schema["properties"]}
        properties[LISTS[1]] = properties.pop(LISTS[0])
        form = {"type": "object", "required": ["file", "model"], "properties": properties}
        return {"requestBody": {"required": True, "content": {FORM: {"schema": form}}}}


def make_router(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1")
    hearing, settings = service.hearing, service.settings

    described = {"openapi_extra": TranscriptionFields.body_schema(), "response_class": Response}

    @router.post("/audio/translations", **described)  # the words of English speech are English
    @router.post("/audio/transcriptions", **described)
    async def transcriptions(request: Request) -> Response:
        """Transcribes a recording."""
        arrived = service.scheduler.clock()
        record = record_of(request)
        with service.admitted(caller_of(request), [None]), hearing.admitted():
            form = await read_form(request, settings.recording_bytes + FORM_BYTES, FORM_BYTES, with_file=True)
            try:
                wanted = fields_of(form, hearing)
                ignored = sorted(name for name, value in form.items() if value and name not in USED)
                hears = hearing.transcribe(file_of(form, settings.recording_bytes))
                transcript = await unless_left(request.receive, hears, settings.seconds, "transcribed")
            finally:
                await form.close()
        record |= {"model": wanted.model, "format": wanted.response_format}
        note_heard(service, record, transcript, arrived)
        answer = answer_of(transcript, wanted, LANGUAGES.get(hearing.language, hearing.language))
        if ignored:
            answer.headers["x-melforge-ignored"] = ignored_header(ignored)
        return answer

    return router


def note_heard(service: Service, record: dict[str, Any], transcript: Transcript, since: float) -> None:
    """Counts a recording, or a part of one, and adds it to the request's entry in the log."""
    taken = service.scheduler.clock()
    service.metrics.heard.inc(transcript.seconds)
    service.metrics.hearing.observe(taken - since)
    record["heard_s"] = round(record.get("heard_s", 0.0) + transcript.seconds, 3)
    record["words"] = record.get("words", 0) + len(transcript.words)
    record["heard_ms"] = milliseconds(since, taken)


class WholeForm(MultiPartParser):
    """Starlette's parser, which keeps large files on disk, and whether a form has its end."""

    ended = False

    def on_end(self) -> None:
        self.ended = True


async def read_form(request: Request, most: int, of_field: int, with_file: bool) -> FormData:
    """A form of at most `most` bytes, and `of_field` of a field; 415 or 400 if it is not one.

    What comes is in memory, but for a file.
    """
    require_type(request, FORM)
    chunks = body_chunks(request, most, in_memory=not with_file)
    limits = {"max_files": 1, "max_fields": MOST_FIELDS, "max_part_size": of_field}
    parser = WholeForm(request.headers, chunks, **limits)
    try:
        async with in_time(UPLOAD_SECONDS):
            form = await parser.parse()
    except MultiPartException as error:
        raise ApiError(400, f"the form cannot be read: {error.message}", "file") from None
    if not parser.ended:
        await form.close()
        raise ApiError(400, "the form breaks off: the boundary that ends it is missing", "file")
    return form


def fields_of(form: FormData, hearing: Transcriber) -> TranscriptionFields:
    """The fields of a form, of which an empty one is unset; 400 names the one that is wrong."""
    given: dict[str, Any] = {name: value for name, value in form.items() if isinstance(value, str) and value}
    if "language" in given and hearing.names:  # NVIDIA's clients name one or the other
        given.setdefault("model", hearing.names[0])
    given[LISTS[0]] = [one for name in LISTS for one in form.getlist(name) if one]
    wanted: TranscriptionFields = parse(given, TranscriptionFields)
    hearing.require(wanted.model, wanted.language)
    if wanted.timestamp_granularities and wanted.response_format != "verbose_json":
        raise ApiError(400, f"{LISTS[0]}: they are in verbose_json only", LISTS[0], "invalid_value")
    if wanted.stream and wanted.response_format not in STREAMED:
        message = f"response_format: events have no {wanted.response_format}, only {' and '.join(STREAMED)}"
        raise ApiError(400, message, "response_format", "unsupported_value")
    return wanted


def file_of(form: FormData, most: int) -> BinaryIO:
    """The recording; 413 if it has more than `most` bytes."""
    if "file" not in form:
        raise ApiError(400, "file is missing", "file", "missing")
    file = form["file"]
    if not isinstance(file, UploadFile):
        raise ApiError(400, "file: send it as a file, with a file name", "file", "invalid_value")
    if not file.size:
        raise ApiError(400, "file: it is empty", "file", "invalid_value")
    if file.size > most:
        message = f"file: {file.size} bytes, of {most} at most"
        raise ApiError(413, message, "file", "request_too_large")
    return file.file


def answer_of(transcript: Transcript, wanted: TranscriptionFields, language: str) -> Response:
    """The transcript in the format that was asked for; `language` as Whisper names it."""
    form = wanted.response_format
    if wanted.stream:
        parts = [{"type": "transcript.text.delta", "delta": transcript.text}] if transcript.text else []
        events = [*parts, {"type": "transcript.text.done", "text": transcript.text}]
        return Response(b"".join(map(event, events)), media_type="text/event-stream")
    if form == "text":
        return PlainTextResponse(transcript.text + "\n")
    if form in ("srt", "vtt"):
        write, kind = (srt_of, "application/x-subrip") if form == "srt" else (vtt_of, "text/vtt")
        return Response(write(one.cue for one in captions(transcript)), media_type=f"{kind}; charset=utf-8")
    usage = {"type": "duration", "seconds": math.ceil(transcript.seconds)}
    if form == "json":
        return JSONResponse({"text": transcript.text, "usage": usage})
    content: dict[str, Any] = {
        "task": "transcribe",
        "language": language,
        "duration": round(transcript.seconds, 3),
        "text": transcript.text,
    }
    asked = wanted.timestamp_granularities or {"segment"}
    if "segment" in asked:
        content["segments"] = [segment(n, one) for n, one in enumerate(captions(transcript))]
    if "word" in asked:
        content["words"] = [
            {"word": one.word, "start": round(one.start, 3), "end": round(one.end, 3)}
            for one in transcript.words
        ]
    return JSONResponse({**content, "usage": usage})


def segment(number: int, caption: Caption) -> dict[str, Any]:
    """A caption with OpenAI's keys; those that only Whisper can fill are empty."""
    cue, text = caption.cue, caption.text.encode()
    return {
        "id": number,
        "seek": round(cue.start * 100),
        "start": round(cue.start, 3),
        "end": round(cue.end, 3),
        "text": f" {cue.text}",
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": round(caption.log_score, 4),
        "compression_ratio": round(len(text) / len(zlib.compress(text)), 4),
        "no_speech_prob": 0.0,
    }
