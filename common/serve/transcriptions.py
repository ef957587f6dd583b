"""OpenAI's route for transcripts of recordings, and the forms that they have."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from melforge.common.recognition.captions import Caption, captions
from melforge.common.recognition.transcript import Transcript
from melforge.common.serve.errors import ApiError
from melforge.common.serve.gate import caller_of, record_of
from melforge.common.serve.hearing import Transcriber
from melforge.common.serve.incoming import body_chunks, in_time, unless_left
from melforge.common.serve.metrics import milliseconds
from melforge.common.serve.requests import ignored_header
from melforge.common.serve.service import Service
from melforge.common.synthesis.subtitles import srt_of, vtt_of

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
GRANULARITIES = ("segment", "word")
LISTS = ("timestamp_granularities", "timestamp_granularities[]")
USED = ("file", "model", "response_format", "language", *LISTS)
FORM_BYTES = 1 << 16  # of a form beside its file
MOST_FIELDS = 64
UPLOAD_SECONDS = 120.0  # in which a recording must have come
LANGUAGES = {"en": "english"}


@dataclass(frozen=True)
class TranscriptionFields:
    """OpenAI's fields."""

    file: UploadFile
    model: str
    language: str  # its name, as Whisper gives it
    response_format: str
    granularities: frozenset[str]
    ignored: list[str]  # fields that change nothing


def make_router(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1")
    hearing, settings = service.hearing, service.settings

    @router.post("/audio/transcriptions", openapi_extra=SCHEMA, response_class=Response)
    async def transcriptions(request: Request) -> Response:
        """Transcribes a recording."""
        arrived = service.scheduler.clock()
        record = record_of(request)
        with service.admitted(caller_of(request)), hearing.admitted():
            form = await read_form(request, settings.recording_bytes + FORM_BYTES)
            try:
                wanted = fields_of(form, hearing)
                if (size := wanted.file.size or 0) > settings.recording_bytes:
                    message = f"file: {size} bytes, of {settings.recording_bytes} at most"
                    raise ApiError(413, message, "file", "request_too_large")
                hears = hearing.transcribe(wanted.file.file)
                transcript = await unless_left(request.receive, hears, settings.seconds, "transcribed")
            finally:
                await form.close()
        taken = service.scheduler.clock()
        service.metrics.heard.inc(transcript.seconds)
        service.metrics.hearing.observe(taken - arrived)
        record |= {"model": wanted.model, "format": wanted.response_format}
        record |= {"heard_s": round(transcript.seconds, 3), "words": len(transcript.words)}
        record["heard_ms"] = milliseconds(arrived, taken)
        answer = answer_of(transcript, wanted)
        if wanted.ignored:
            answer.headers["x-melforge-ignored"] = ignored_header(wanted.ignored)
        return answer

    return router


class WholeForm(MultiPartParser):
    """Starlette's parser, which keeps large files on disk, and whether a form has its end."""

    ended = False

    def on_end(self) -> None:
        self.ended = True


async def read_form(request: Request, most: int) -> FormData:
    """A form, multipart/form-data, of so many bytes at most. A 400 where it is none."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind.strip().lower() != "multipart/form-data":
        raise ApiError(400, "the body must be a form, multipart/form-data with its boundary", "file")
    parser = WholeForm(request.headers, body_chunks(request, most), max_files=1, max_fields=MOST_FIELDS)
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
    """The fields of a form. A 400 names the one that is wrong."""
    for name in ("file", "model"):
        if name not in form:
            raise ApiError(400, f"{name} is missing", name, "missing")
    texts = {name: value for name, value in form.items() if isinstance(value, str)}
    file = form["file"]
    model = texts.get("model", "")
    hearing.require(model)
    if not isinstance(file, UploadFile) or not file.size:
        what = "it is empty" if isinstance(file, UploadFile) else "send it as a file, with a file name"
        raise ApiError(400, f"file: {what}", "file", "invalid_value")
    format = chosen("response_format", texts.get("response_format", "json"), FORMATS)
    asked = frozenset(
        chosen(LISTS[0], str(one), GRANULARITIES) for name in LISTS for one in form.getlist(name)
    )
    if asked and format != "verbose_json":
        raise ApiError(400, f"{LISTS[0]}: they are in verbose_json only", LISTS[0], "invalid_value")
    check_temperature(texts.get("temperature", "0"))
    return TranscriptionFields(
        file,
        model,
        language_of(texts.get("language", ""), hearing),
        format,
        asked or frozenset({"segment"}),
        sorted(name for name in form if name not in USED),
    )


def language_of(asked: str, hearing: Transcriber) -> str:
    """The language's name; a 400 where it is asked for one that the ear was not trained on."""
    known = (hearing.ear and hearing.ear.language) or "en"
    if asked.strip().lower() not in ("", known, LANGUAGES.get(known)):
        message = f"language: the ear hears {known}, not {asked[:50]!r}"
        raise ApiError(400, message, "language", "unsupported_value")
    return LANGUAGES.get(known, known)


def chosen(name: str, value: str, known: Sequence[str]) -> str:
    """A field's value, which must be one of those known."""
    if value not in known:
        raise ApiError(
            400, f"{name}: use one of {', '.join(known)}, not {value[:50]!r}", name, "invalid_value"
        )
    return value


def check_temperature(text: str) -> None:
    """It changes nothing, but one that OpenAI refuses is refused."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        message = f"temperature: it must be from 0 to 1, not {text[:50]!r}"
        raise ApiError(400, message, "temperature", "invalid_value")


def answer_of(transcript: Transcript, wanted: TranscriptionFields) -> Response:
    """The transcript in the form that was asked for."""
    form = wanted.response_format
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
        "language": wanted.language,
        "duration": round(transcript.seconds, 3),
        "text": transcript.text,
    }
    if "segment" in wanted.granularities:
        content["segments"] = [segment(n, one) for n, one in enumerate(captions(transcript))]
    if "word" in wanted.granularities:
        content["words"] = [
            {"word": one.word, "start": round(one.start, 3), "end": round(one.end, 3)}
            for one in transcript.words
        ]
    return JSONResponse({**content, "usage": usage})


def segment(number: int, caption: Caption) -> dict[str, Any]:
    """A caption with the keys of OpenAI's, those that only Whisper knows among them."""
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


SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "model"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "a sound file"},
                        "model": {"type": "string", "description": "the ear's name, or one of OpenAI's"},
                        "language": {"type": "string", "description": "ISO 639-1"},
                        "response_format": {"type": "string", "enum": list(FORMATS), "default": "json"},
                        "timestamp_granularities[]": {
                            "type": "array",
                            "items": {"type": "string", "enum": list(GRANULARITIES)},
                        },
                        "temperature": {"type": "number", "description": "accepted and not used"},
                        "prompt": {"type": "string", "description": "accepted and not used"},
                    },
                }
            }
        },
    }
}
