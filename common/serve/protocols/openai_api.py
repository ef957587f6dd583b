"""OpenAI's routes, and those that other clients commonly expect beside them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from melforge.common.errors import InputError
from melforge.common.serve.answer import SpeechAnswer
from melforge.common.serve.errors import ApiError
from melforge.common.serve.gate import caller_of, record_of
from melforge.common.serve.incoming import read_json
from melforge.common.serve.pairs import OPENAI_MODELS, Pairs
from melforge.common.serve.protocols.batch import BatchAnswer
from melforge.common.serve.requests import BatchFields, PhonemizeRequest, SpeechFields, SpeechRequest, parse
from melforge.common.serve.service import Service
from melforge.common.serve.usage import Used
from melforge.common.text import spoken_by, with_own_words
from melforge.common.text.readings import phonemized


def make_router(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1")
    settings, pairs = service.settings, service.pairs

    @router.post(
        "/audio/speech",
        openapi_extra=body_schema(SpeechRequest),
        response_class=Response,
        responses={200: {"content": {"audio/*": {}, "text/event-stream": {}, "application/json": {}}}},
    )
    async def speech(request: Request) -> Response:
        """Speaks a text; the answer begins with the first sound."""
        arrived = service.scheduler.clock()
        body = await read_json(request, settings.body_bytes)
        wanted: SpeechFields = parse(body, SpeechRequest)
        return SpeechAnswer(service, wanted, caller_of(request), arrived, record_of(request))

    @router.post("/audio/speech/batch", openapi_extra=body_schema(BatchFields), response_class=Response)
    async def batch(request: Request) -> Response:
        """Speaks several texts: an answer of JSON with each one's audio in base64, or its error."""
        arrived = service.scheduler.clock()
        wanted: BatchFields = parse(await read_json(request, settings.body_bytes), BatchFields)
        if len(wanted.items) > settings.batch_items:
            raise ApiError(
                400, f"items: {len(wanted.items)} texts, of {settings.batch_items} at most", "items"
            )
        return BatchAnswer(service, wanted, caller_of(request), arrived, record_of(request))

    @router.post("/audio/phonemize", openapi_extra=body_schema(PhonemizeRequest))
    async def phonemize(request: Request) -> Response:
        """How a text would be said: symbols and words, with their places in the text."""
        wanted: SpeechFields = parse(await read_json(request, settings.body_bytes), PhonemizeRequest)
        with service.admitted(caller_of(request), [wanted.input]):
            pair, controls = service.require(wanted)
            tts = await service.load(pair)
            analysed = await service.analyse(tts, wanted, controls)
            frontend = with_own_words(tts.frontend, wanted.own_words)
            frontend = spoken_by(frontend, tts.name_of(controls.speaker))

            def found() -> bytes:
                about = {"model": pair.name, "voice": pair.voice}
                said = phonemized(frontend, wanted.text, analysed)
                return json.dumps({**about, **said}, ensure_ascii=False).encode()

            answer = Response(await asyncio.to_thread(found), media_type="application/json")
            used = Used(requests=1, characters=len(wanted.input))
            await service.count(pair.name, pair.voice, used).wait()
        return answer

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """The pairs and the ear, and OpenAI's names for the first pair and the ear."""
        names = (*pairs.names, *OPENAI_MODELS, *service.hearing.names)
        return {"object": "list", "data": [model_object(name) for name in names]}

    @router.get("/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        """One of them."""
        try:
            if name not in service.hearing.names:
                pairs.find(name, pairs.voices[0])
        except InputError as error:
            raise ApiError(404, str(error), "model", "model_not_found") from None
        return model_object(name)

    @router.get("/audio/models")
    async def speaking_models() -> dict[str, Any]:
        """The same, as Open WebUI asks for them."""
        return {"models": [{"id": name, "name": name} for name in (*pairs.names, *OPENAI_MODELS)]}

    @router.get("/audio/voices")
    async def voices(legacy: bool = False) -> dict[str, Any]:
        """The voices, their speakers, and OpenAI's names; with `legacy` as plain names."""
        if legacy:
            return {"voices": pairs.voice_names}
        return {"voices": [voice_object(pairs, name) for name in pairs.voice_names]}

    return router


def model_object(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "melforge"}


def voice_object(pairs: Pairs, name: str) -> dict[str, Any]:
    """A voice; with its speakers where it has several."""
    described = {"id": name, "name": name, "description": pairs.descriptions.get(name, "")}
    speakers = pairs.speakers_of(name) if name in pairs.voices else ()
    return {**described, "speakers": speakers} if speakers else described


def body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """The request's body for /openapi.json, whose own definitions are elsewhere: the schema's are put in."""
    schema = kind.model_json_schema()
    known = schema.pop("$defs", {})

    def whole(part: Any) -> Any:
        if isinstance(part, list):
            return [whole(one) for one in part]
        if not isinstance(part, dict):
            return part
        named = known[part["$ref"].rpartition("/")[2]] if "$ref" in part else {}
        return {name: whole(value) for name, value in {**named, **part}.items() if name != "$ref"}

    content = {"application/json": {"schema": whole(schema)}}
    return {"requestBody": {"required": True, "content": content}}
