"""OpenAI's realtime API over a WebSocket, as far as a server that speaks and hears has it.

There is no language model: a response speaks its `input`, else its `instructions`, else the text items that
no response has spoken yet. Recordings are transcribed when they are committed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing
from functools import partial
from typing import Any, BinaryIO

from fastapi import APIRouter, Request, WebSocket

from melforge.common.audio import pcm
from melforge.common.serve.answer import answer_for, each, pieces
from melforge.common.serve.errors import ApiError
from melforge.common.serve.gate import RECORD, TOKEN, caller_of
from melforge.common.serve.incoming import read_json
from melforge.common.serve.keys import refused
from melforge.common.serve.protocols.live import Sentence, Session, ended, in_turn, request_of, serve_session
from melforge.common.serve.protocols.openai_api import body_schema
from melforge.common.serve.protocols.realtime_beta import BETA_HEADER, BETA_PROTOCOL, from_beta, to_beta
from melforge.common.serve.protocols.realtime_fields import (
    PCM,
    AudioOutput,
    MessageItem,
    RealtimeFields,
    ResponseFields,
    SecretFields,
    Truncation,
    merged,
    valid,
)
from melforge.common.serve.protocols.realtime_items import Conversation, Item, SpokenResponse, new_id
from melforge.common.serve.protocols.transcriptions import note_heard
from melforge.common.serve.requests import parse
from melforge.common.serve.service import Service, Speaking
from melforge.common.serve.tokens import MOST_CHARACTERS, Token, write_token

SHORTEST = 0.1  # seconds of a recording
CODINGS = {PCM: pcm.PCM, "audio/pcmu": pcm.MU_LAW, "audio/pcma": pcm.A_LAW}
LONGEST_EVENT_ID = 512
HEAD = len(pcm.wav_header(1))  # bytes


def bytes_a_second(format: Any) -> int:
    return format.hertz * (2 if format.type == PCM else 1)


class RealtimeSession(Session):
    """OpenAI's events. One response is spoken at a time, by the same pipeline as the live socket's text."""

    def __init__(self, service: Service, socket: WebSocket, fields: RealtimeFields) -> None:
        super().__init__(service, socket)
        self.fields, self.id = fields, new_id("sess")
        self.beta = (
            socket.headers.get("openai-beta") == BETA_HEADER or BETA_PROTOCOL in socket.scope["subprotocols"]
        )
        self.conversation = Conversation()
        self.waiting: asyncio.Queue[SpokenResponse] = asyncio.Queue()
        self.response: SpokenResponse | None = None  # that is spoken, or will be next
        self._record()
        self.hearing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await self._event("session.created", session=self._session())
        await super().run()

    @property
    def busy(self) -> bool:
        return super().busy or bool(self.hearing)

    async def be_silent(self) -> None:
        await ended(self.speaker, *self.hearing)

    async def refuse(self, error: ApiError, message: Any) -> None:
        asked = message.get("event_id")
        asked = asked[:LONGEST_EVENT_ID] if isinstance(asked, str) else None
        await self._event("error", error={**error.content["error"], "event_id": asked})

    async def take(self, message: dict[str, Any]) -> None:
        if self.beta:
            message = from_beta(message)
        kind = message.get("type")
        if not isinstance(kind, str) or kind not in ACTIONS:
            raise ApiError(400, f"type: one of {', '.join(ACTIONS)} is wanted", "type", "invalid_value")
        await ACTIONS[kind](self, message)

    async def _event(self, kind: str, **fields: Any) -> None:
        message: dict[str, Any] | None = {"type": kind, "event_id": new_id("event"), **fields}
        if self.beta:
            message = to_beta(message)
        if message is not None:
            await self.send(message)

    def _session(self) -> dict[str, Any]:
        return {"id": self.id, "object": "realtime.session", **self.fields.as_json()}

    # The session, and its conversation

    async def update(self, message: dict[str, Any]) -> None:
        self.fields = checked(self.service, self.fields.updated(object_of(message, "session")))
        await self._event("session.updated", session=self._session())

    async def create_item(self, message: dict[str, Any]) -> None:
        asked = valid(MessageItem, object_of(message, "item"), "item")
        for part in asked.content:
            self._require_short(part.text, "item.content")
        place = self.conversation.place_for(asked.id, message.get("previous_item_id"))
        kind = "output_text" if asked.role == "assistant" else "input_text"
        content = [{"type": kind, "text": part.text} for part in asked.content]
        texts = [] if asked.role == "system" else asked.texts
        await self._add(Item(asked.id or new_id("item"), asked.role, content, texts), place)

    async def _add(self, item: Item, place: int | None = None) -> None:
        self.conversation.add(item, place)
        await self._item_event("added", item)
        if item.status != "in_progress":
            await self._item_event("done", item)

    async def _item_event(self, kind: str, item: Item) -> None:
        before = self.conversation.before(item)
        await self._event(f"conversation.item.{kind}", previous_item_id=before, item=item.as_json)

    async def retrieve_item(self, message: dict[str, Any]) -> None:
        item = self.conversation.find(message.get("item_id"))
        await self._event("conversation.item.retrieved", item=item.as_json)

    async def delete_item(self, message: dict[str, Any]) -> None:
        item = self.conversation.find(message.get("item_id"))
        self.conversation.items.remove(item)
        await self._event("conversation.item.deleted", item_id=item.id)

    async def truncate_item(self, message: dict[str, Any]) -> None:
        """What of a response's audio was heard, of one that was interrupted: its transcript says too much."""
        asked = valid(Truncation, message, "")
        item = self.conversation.find(asked.item_id)
        if item.seconds is None or asked.audio_end_ms > math.ceil(1000 * item.seconds):
            there = "no audio" if item.seconds is None else f"{1000 * item.seconds:.0f} ms of audio"
            raise ApiError(400, f"audio_end_ms: this item has {there}", "audio_end_ms", "invalid_value")
        item.seconds, item.truncated = asked.audio_end_ms / 1000, True
        item.content = [{"type": "output_audio"}]
        await self._event("conversation.item.truncated", **asked.model_dump())

    def _require_short(self, text: str, param: str) -> None:
        if len(text) > (most := self.service.settings.max_characters):
            too_long = f"{param}: {len(text)} characters, of {most} at most in a text"
            raise ApiError(400, too_long, param, "string_above_max_length")

    # Responses

    async def create_response(self, message: dict[str, Any]) -> None:
        if self.response is not None:
            words = f"{self.response.id} is being spoken: wait for response.done, or cancel it"
            raise ApiError(400, words, code="conversation_already_has_active_response")
        if self.fields.type == "transcription":
            raise ApiError(400, "a transcription session has no responses", code="invalid_value")
        asked = valid(ResponseFields, object_of(message, "response", {}), "response")
        known = self.fields.audio.output.model_dump()
        output = valid(AudioOutput, merged(known, asked.audio.output), "response.audio.output")
        speech = checked_speech(self.service, self.fields, output, "response")
        items: list[Item] = []
        if asked.input is not None:
            texts, param = [text for item in asked.input for text in item.texts], "response.input"
        elif asked.instructions.strip():
            texts, param = [asked.instructions], "response.instructions"
        else:
            items, param = self.conversation.items, "response"
            texts = [text for item in items for text in item.texts]
        if not texts:
            words = (
                "nothing is to be spoken: this server has no language model, and speaks response.input, "
                "response.instructions, or the text items that no response has spoken yet"
            )
            raise ApiError(400, words, "response", "nothing_to_speak")
        for text in texts:
            self._require_short(text, param)
        for item in items:
            item.texts = []
        self.response = SpokenResponse(asked, output, speech, texts)
        self.waiting.put_nowait(self.response)

    async def cancel_response(self, message: dict[str, Any]) -> None:
        response, name = self.response, message.get("response_id")
        if response is None or name not in (None, response.id) or response.status != "in_progress":
            raise ApiError(400, "no such response is being spoken", code="response_cancel_not_active")
        response.cancelled = True
        if response.saying is not None:
            response.saying.cancel()

    async def speak(self) -> None:
        """One response after the other. All events of one are sent here, in their order."""
        while True:
            response = await self.waiting.get()
            await self._announce(response)
            if not response.cancelled:
                saying = response.saying = asyncio.create_task(self._say_each(response))
                try:
                    await asyncio.wait({saying})
                finally:
                    await ended(saying)
                response.cancelled = saying.cancelled()
                response.error = None if response.cancelled else saying.result()
            await self._conclude(response)

    async def _announce(self, response: SpokenResponse) -> None:
        item = response.item
        await self._event("response.created", response=response.as_json)
        await self._of(response, "output_item.added", content=False, item=item.as_json)
        if response.asked.conversation == "auto":
            await self._add(item)
        await self._of(response, "content_part.added", part={"type": "audio", "transcript": ""})

    async def _say_each(self, response: SpokenResponse) -> ApiError | None:
        begin = partial(self._begin, response)
        async with aclosing(in_turn(each(response.texts), begin, self.begun)) as sentences:
            async for sentence in sentences:
                if error := await self.say(sentence):
                    return error
        return None

    async def _begin(self, response: SpokenResponse, sentence: Sentence) -> None:
        await self.begin(sentence, response.speech)

    async def send_audio(self, spoken: Speaking) -> None:
        response = self.response
        assert response is not None and response.item.seconds is not None
        response.characters += len(spoken.wanted.input)
        rate, sent = bytes_a_second(response.output.format), 0
        async for data in spoken.job:
            begun = len(spoken.stream.durations)
            for utterance in spoken.stream.utterances[sent:begun]:
                delta = f" {utterance.text}" if response.transcript else utterance.text
                response.transcript += delta
                await self._of(response, "output_audio_transcript.delta", delta=delta)
            sent = begun
            for piece in pieces(data):
                response.seconds += len(piece) / rate
                response.item.seconds += len(piece) / rate
                await self._of(response, "output_audio.delta", delta=base64.b64encode(piece).decode())
                await asyncio.sleep(0)  # a fast reader never lets `send` wait

    async def _conclude(self, response: SpokenResponse) -> None:
        response.status = "failed" if response.error else "cancelled" if response.cancelled else "completed"
        item, transcript = response.item, response.transcript
        item.status = "completed" if response.status == "completed" else "incomplete"
        item.content = [{"type": "output_audio"} | ({} if item.truncated else {"transcript": transcript})]
        await self._of(response, "output_audio.done")
        await self._of(response, "output_audio_transcript.done", transcript=transcript)
        await self._of(response, "content_part.done", part={"type": "audio", "transcript": transcript})
        if item in self.conversation.items:
            await self._item_event("done", item)
        await self._of(response, "output_item.done", content=False, item=item.as_json)
        self.response = None  # who hears of the end may ask for the next one
        await self._event("response.done", response=response.as_json)

    async def _of(self, response: SpokenResponse, kind: str, content: bool = True, **fields: Any) -> None:
        place: dict[str, Any] = {"response_id": response.id, "output_index": 0}
        if content:
            place |= {"item_id": response.item.id, "content_index": 0}
        await self._event(f"response.{kind}", **place, **fields)

    # Hearing

    async def append(self, message: dict[str, Any]) -> None:
        audio = message.get("audio")
        try:
            data = base64.b64decode(audio, validate=True)  # type: ignore[arg-type]
        except (ValueError, TypeError):
            raise ApiError(400, "audio: base64 is wanted", "audio", "invalid_value") from None
        if self.recorded.tell() - HEAD + len(data) > (most := self.service.settings.recording_bytes):
            words = f"audio: a recording has at most {most} bytes: commit or clear it"
            raise ApiError(400, words, "audio", "request_too_large")
        self.service.hearing.require_space(len(data))
        self.recorded.write(data)

    def _record(self) -> None:
        """Begins a wav file, whose header is written when it is whole."""
        self.recorded = self.service.hearing.coming_file()
        self.recorded.write(bytes(HEAD))

    async def clear(self, message: dict[str, Any]) -> None:
        self._record()
        await self._event("input_audio_buffer.cleared")

    async def commit(self, message: dict[str, Any]) -> None:
        asked = self.fields.audio.input
        file, size = self.recorded, self.recorded.tell() - HEAD
        if size < SHORTEST * bytes_a_second(asked.format):
            words = f"the buffer has less than {SHORTEST:g} s of audio"
            raise ApiError(400, words, code="input_audio_buffer_commit_empty")
        coding, rate = CODINGS[asked.format.type], asked.format.hertz
        file.seek(0)
        file.write(pcm.wav_header(rate, size, 1, coding))
        self._record()
        item = Item(new_id("item"), "user", [{"type": "input_audio", "transcript": None}])
        before = self.conversation.before(item)
        await self._event("input_audio_buffer.committed", previous_item_id=before, item_id=item.id)
        await self._add(item)
        if asked.transcription is None:
            return
        admission = ExitStack()
        try:
            admission.enter_context(self.service.admitted(self.key, [None]))
            admission.enter_context(self.service.hearing.admitted())
        except ApiError as error:
            admission.close()
            await self._not_heard(item, error)
            return
        hearing = asyncio.create_task(self._transcribe(item, file, admission))
        self.hearing.add(hearing)
        hearing.add_done_callback(self.hearing.discard)

    async def _transcribe(self, item: Item, file: BinaryIO, admission: ExitStack) -> None:
        service, place = self.service, {"item_id": item.id, "content_index": 0}
        with admission:
            begun = service.scheduler.clock()
            try:
                heard = await service.hearing.transcribe(file)
            except Exception as error:
                await self._not_heard(item, answer_for(error))
                return
            note_heard(service, self.socket.scope[RECORD], heard, begun)
            item.content = [{"type": "input_audio", "transcript": heard.text}]
            usage = {"type": "duration", "seconds": math.ceil(heard.seconds)}
            kind = "conversation.item.input_audio_transcription"
            if heard.text:
                await self._event(f"{kind}.delta", **place, delta=heard.text)
            await self._event(f"{kind}.completed", **place, transcript=heard.text, usage=usage)

    async def _not_heard(self, item: Item, error: ApiError) -> None:
        kind = "conversation.item.input_audio_transcription.failed"
        await self._event(kind, item_id=item.id, content_index=0, error=error.content["error"])


ACTIONS: dict[str, Callable[[RealtimeSession, dict[str, Any]], Awaitable[None]]] = {
    "session.update": RealtimeSession.update,
    "conversation.item.create": RealtimeSession.create_item,
    "conversation.item.retrieve": RealtimeSession.retrieve_item,
    "conversation.item.delete": RealtimeSession.delete_item,
    "conversation.item.truncate": RealtimeSession.truncate_item,
    "response.create": RealtimeSession.create_response,
    "response.cancel": RealtimeSession.cancel_response,
    "input_audio_buffer.append": RealtimeSession.append,
    "input_audio_buffer.commit": RealtimeSession.commit,
    "input_audio_buffer.clear": RealtimeSession.clear,
}


def object_of(message: dict[str, Any], name: str, default: Any = None) -> dict[str, Any]:
    """An object of an event; 400 if it is none."""
    found = message.get(name)
    if not isinstance(found := default if found is None else found, dict):
        raise ApiError(400, f"{name}: an object is wanted", name, "invalid_type")
    return found


def checked(service: Service, fields: RealtimeFields) -> RealtimeFields:
    """A session's fields; 400 if this server does not speak or hear so."""
    checked_speech(service, fields, fields.audio.output, "session")
    if (asked := fields.audio.input.transcription) is not None:
        try:
            service.hearing.require(asked.model, asked.language)
        except ApiError as error:
            raise placed(error, f"session.audio.input.transcription.{error.param}") from None
    return fields


def checked_speech(
    service: Service, fields: RealtimeFields, output: AudioOutput, where: str
) -> dict[str, Any]:
    """The fields of requests for speech; 400 if they cannot be had."""
    speech = fields.speech(output)
    try:
        service.require(request_of(speech, ""))
    except ApiError as error:
        name = {"response_format": "format.type", "sample_rate": "format.rate"}.get(
            error.param or "", error.param
        )
        place = ".".join(filter(None, (where, "audio.output", name)))
        raise placed(error, "session.model" if name == "model" else place) from None
    return speech


def placed(error: ApiError, param: str) -> ApiError:
    """The same of a field that stands elsewhere."""
    return ApiError(error.status, f"{param}: {error}", param, error.code)


def make_router(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.websocket("/realtime")
    async def realtime(socket: WebSocket) -> None:
        fields = RealtimeFields()
        model = socket.query_params.get("model")
        if socket.query_params.get("intent") == "transcription":
            heard = {"model": model} if model else {}
            fields = fields.updated({"type": "transcription", "audio": {"input": {"transcription": heard}}})
        elif model:
            fields = fields.updated({"model": model})
        if token := socket.scope.get(TOKEN):
            fields = fields.updated(token.session)
        fields = checked(service, fields)
        await serve_session(socket, partial(RealtimeSession, service, socket, fields))

    @router.post("/realtime/client_secrets", openapi_extra=body_schema(SecretFields))
    async def client_secrets(request: Request) -> dict[str, Any]:
        """A short-lived token, with which a browser opens WebSockets of this server."""
        wanted: SecretFields = parse(await read_json(request, service.settings.body_bytes), SecretFields)
        fields = checked(service, RealtimeFields().updated(wanted.session))
        expires = int(time.time()) + wanted.expires_after.seconds
        key = caller_of(request)
        if (secret := service.token_secret(key)) is None:
            raise refused(f"the API key {key!r} has ended")
        value = write_token(Token(key, expires, wanted.session), secret)
        if len(value) > MOST_CHARACTERS:
            size = len(json.dumps(wanted.session))
            raise ApiError(400, f"session: {size} bytes are too many for a token", "session", "invalid_value")
        session = {"id": new_id("sess"), "object": "realtime.session", **fields.as_json()}
        return {"value": value, "expires_at": expires, "session": session}

    return router
