"""A WebSocket that takes text as it is written, such as an LLM's tokens, and speaks it by sentences.

The client sends JSON: {"type": "session", ...} with the fields of a request for speech (but for its input),
then any number of {"type": "text", "text": "..."}, {"type": "flush"} to have an unfinished sentence spoken
as it is, {"type": "cancel"} for silence at once, and {"type": "end"}.

The server answers each sentence with {"type": "sentence", ...}, its audio in binary messages, and
{"type": "sentence.done", ...}. Other answers are "cancelled", "error" and "done".
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof
from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from fastapi.websockets import WebSocketState
from pydantic_core import from_json

from melforge.common.serve.annotations import Annotations
from melforge.common.serve.answer import answer_for, in_order, pieces
from melforge.common.serve.errors import ApiError, overloaded
from melforge.common.serve.gate import CALLER, KEY_PROTOCOL, RECORD
from melforge.common.serve.incoming import Held
from melforge.common.serve.metrics import log
from melforge.common.serve.requests import (
    SpeechFields,
    SpeechRequest,
    given,
    known_fields,
    parse,
    require_few_parts,
)
from melforge.common.serve.service import Service, Speaking, takes_much_memory
from melforge.common.text.markup import is_ssml
from melforge.common.text.split import MARK, split_sentences

AHEAD = 2  # sentences in progress: the next one is begun while one is sent
ROOM_CHECK = 0.1  # seconds after which a sentence that found no room tries again
SSML_END = "</speak>"
DEFAULTS = {"model": "tts-1", "voice": "alloy", "response_format": "pcm"}
MOST_WAITING = 256  # sentences


class GrowingText:
    """Collects text and splits it once a sentence is surely complete, i.e. when the next word has begun."""

    def __init__(self, most: int) -> None:
        self.text, self.most = "", most

    def add(self, text: str) -> list[str]:
        """The sentences that are complete now; text beyond `most` characters is cut at its last blank."""
        self.text += text
        if is_ssml(self.text):  # which is spoken as a whole
            end = self.text.find(SSML_END) + len(SSML_END)
            if end >= len(SSML_END):
                document, self.text = self.text[:end], self.text[end:]
                return [document, *self.add("")]
            if len(self.text) <= self.most:
                return []
        known = max(self.text.rfind(" "), self.text.rfind("\n"))
        found = split_sentences(self.text[:known]) if MARK.search(self.text, 0, max(known, 0)) else []
        whole = [sentence for sentence, _ in found[:-1]]
        if whole:
            self.text = self.text[found[-1][1] :]
        while len(self.text) > self.most:
            cut = self.text.rfind(" ", 1, self.most)
            cut = cut if cut > 0 else self.most
            whole.append(self.text[:cut].strip())
            self.text = self.text[cut:].lstrip()
        return whole

    def rest(self) -> list[str]:
        text, self.text = self.text.strip(), ""
        return [text] if text else []


@dataclass(eq=False)
class Sentence:
    """A sentence being spoken: its speech, or why there is none."""

    text: str
    number: int = 0  # from 1
    admission: ExitStack = field(default_factory=ExitStack)
    spoken: Speaking | None = None
    error: ApiError | None = None

    async def leave_room(self) -> None:
        """Until the next one may begin: where one takes much memory, until its audio is made."""
        if self.spoken and takes_much_memory(self.spoken.wanted):
            await self.spoken.job.complete.wait()

    def release(self) -> None:
        if self.spoken is not None:
            self.spoken.job.cancel()
        self.admission.close()


class Sentences(asyncio.Queue[str | None]):
    """Those that wait to be spoken; None is the end."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes, self._held = 0, Held()

    def _put(self, item: str | None) -> None:
        super()._put(item)
        self._bytes += getsizeof(item)

    def _get(self) -> str | None:
        item = super()._get()
        self._bytes -= getsizeof(item)
        return item

    def require_room(self) -> None:
        """503 if a further text cannot be taken."""
        if self.qsize() > MOST_WAITING:
            raise overloaded(f"{self.qsize()} sentences wait: this text was not taken")
        self._held.note(self._bytes)


async def coming(texts: asyncio.Queue[str | None]) -> AsyncIterator[str]:
    """Up to None, which is the end."""
    while (text := await texts.get()) is not None:
        yield text


async def in_turn(
    texts: AsyncIterator[str], begin: Callable[[Sentence], Awaitable[None]], begun: list[Sentence]
) -> AsyncGenerator[Sentence, None]:
    """Each text as a sentence that `begin` has begun to speak, or that has an error.

    The next one is begun while one is sent. `begun` are those in progress: each is released behind its turn,
    and what is left at the end. What the texts raise, this raises behind those that came before.
    """
    ready: asyncio.Queue[Sentence | None] = asyncio.Queue(AHEAD - 1)

    async def begin_each() -> None:
        try:
            async for text in texts:
                sentence = Sentence(text)
                begun.append(sentence)
                try:
                    await begin(sentence)
                except Exception as error:
                    sentence.error = answer_for(error)
                await ready.put(sentence)
                await sentence.leave_room()
        except Exception:
            await ready.put(None)
            raise
        await ready.put(None)

    beginning = asyncio.create_task(begin_each())
    try:
        while (sentence := await ready.get()) is not None:
            yield sentence
            begun.remove(sentence)
            sentence.release()
        await beginning
    finally:
        beginning.cancel()
        try:
            await asyncio.gather(beginning, return_exceptions=True)
        finally:  # who is closed may be cancelled meanwhile
            for sentence in begun:
                sentence.release()
            begun.clear()


async def wait_for_room(service: Service, key: str, sentence: Sentence, begun: bool = False) -> None:
    """For a session that is open already: its text is not refused in the middle because others came, or
    because the server is about to stop if it is part of what was `begun`.
    """
    while True:
        try:
            sentence.admission.enter_context(service.admitted(key, [sentence.text], begun))
        except ApiError:
            if service.draining and not begun:
                raise
            await asyncio.sleep(ROOM_CHECK)
        else:
            return


class Session(ABC):
    """One WebSocket. Each sentence is a request like any other; their audio is sent in order.

    `speak` runs beside the messages that come, as the task `speaker`; the socket is closed behind it.
    """

    def __init__(self, service: Service, socket: WebSocket) -> None:
        self.service, self.socket, self.key = service, socket, socket.scope[CALLER]
        self.begun: list[Sentence] = []
        self.speaker: asyncio.Task[None]

    @abstractmethod
    async def speak(self) -> None:
        """Sends what is spoken, until the end."""

    @abstractmethod
    async def take(self, message: dict[str, Any]) -> None:
        """Does as a message says, or raises an ApiError."""

    @abstractmethod
    async def send_audio(self, spoken: Speaking) -> None: ...

    async def refuse(self, error: ApiError, message: Mapping[str, Any]) -> None:
        """Says what is wrong with a message."""
        await self.send({"type": "error", **error.content})

    @property
    def busy(self) -> bool:
        """Whether the client, who is silent, waits for something."""
        return bool(self.begun)

    async def run(self) -> None:
        """Serves the client until it has heard the end, leaves, or is silent and has nothing to hear."""
        self.speaker = asyncio.create_task(self.speak())
        receiving = asyncio.create_task(self.socket.receive())
        how: Any = {"timeout": self.service.settings.seconds, "return_when": asyncio.FIRST_COMPLETED}
        try:
            while True:
                done, _ = await asyncio.wait({receiving, self.speaker}, **how)
                if not done and self.busy:
                    continue
                if not done:
                    silent = f"no message came in {how['timeout']:g} seconds"
                    await self.refuse(ApiError(408, silent, code="timeout"), {})
                    break
                if not receiving.done():
                    await self.speaker
                    break
                if (received := receiving.result())["type"] == "websocket.disconnect":
                    break
                message: dict[str, Any] = {}
                try:
                    message = message_of(received.get("text"))
                    await self.take(message)
                except ApiError as error:
                    await self.refuse(error, message)
                receiving = asyncio.create_task(self.socket.receive())
                del done, received, message  # which is large perhaps, and the next one may not come for long
        finally:
            receiving.cancel()
            await self.be_silent()
            del self.speaker  # whose end refers to this: a cycle, with all that has come

    async def be_silent(self) -> None:
        await ended(self.speaker)

    async def begin(self, sentence: Sentence, fields: Mapping[str, Any]) -> None:
        await wait_for_room(self.service, self.key, sentence)
        wanted = request_of(fields, sentence.text)
        sentence.spoken = await self.service.speak(wanted, self.service.scheduler.clock())

    async def say(self, sentence: Sentence) -> ApiError | None:
        """Sends the audio of a sentence that is begun; why there is none, or not all of it."""
        if (spoken := sentence.spoken) is None:
            return sentence.error
        record = self.socket.scope[RECORD]
        try:
            await self.send_audio(spoken)
        except WebSocketDisconnect:
            raise
        except Exception as error:
            return answer_for(error, record)
        finally:
            log("sentence", id=record["id"], **self.service.conclude(spoken, self.key))
        return None

    async def send(self, message: dict[str, Any]) -> None:
        if self.socket.application_state is WebSocketState.CONNECTED:  # and was not closed meanwhile
            await self.socket.send_text(json.dumps(message))


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancels tasks and waits for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class LiveSession(Session):
    """The messages of this module."""

    def __init__(self, service: Service, socket: WebSocket) -> None:
        super().__init__(service, socket)
        self.fields: dict[str, Any] = dict(DEFAULTS)
        self.text = GrowingText(service.settings.max_characters)
        self.waiting = Sentences()
        self.number = 0

    async def take(self, message: dict[str, Any]) -> None:
        kind = message.pop("type", None)
        if kind == "session":
            fields = {**DEFAULTS, **given(message)}
            self.service.require(request_of(fields, ""))
            self.fields = known_fields(fields)
        elif kind == "text":
            if not isinstance(text := message.get("text"), str):
                raise ApiError(400, "text: a text is wanted", "text", "invalid_value")
            if len(text) > (most := self.service.settings.max_characters):
                too_long = f"text: {len(text)} characters, of {most} at most in a message"
                raise ApiError(400, too_long, "text", "string_above_max_length")
            self.waiting.require_room()
            self._enqueue(await asyncio.to_thread(self.text.add, text))
        elif kind in ("flush", "end"):
            self._enqueue(self.text.rest())
            if kind == "end":
                self.waiting.put_nowait(None)
        elif kind == "cancel":
            await self.be_silent()
            self.text.rest()
            self.waiting = Sentences()
            self.speaker = asyncio.create_task(self.speak())
            await self.send({"type": "cancelled"})
        else:
            raise ApiError(
                400, "type: session, text, flush, cancel or end is wanted", "type", "invalid_value"
            )

    def _enqueue(self, sentences: list[str]) -> None:
        for sentence in sentences:
            self.waiting.put_nowait(sentence)

    async def speak(self) -> None:
        """Sends one sentence after the other."""
        async with aclosing(in_turn(coming(self.waiting), self._begin, self.begun)) as sentences:
            async for sentence in sentences:
                await self._send_sentence(sentence)
        await self.send({"type": "done"})

    async def _begin(self, sentence: Sentence) -> None:
        self.number += 1
        sentence.number = self.number
        await self.begin(sentence, self.fields)

    async def _send_sentence(self, sentence: Sentence) -> None:
        spoken = sentence.spoken
        if spoken is not None:
            await self.send({"type": "sentence", "number": sentence.number, "text": sentence.text})
        if error := await self.say(sentence):
            await self.send({"type": "error", "number": sentence.number, **error.content})
        elif spoken is not None:
            seconds = round(spoken.job.progress.made, 6)
            await self.send({"type": "sentence.done", "number": sentence.number, "seconds": seconds})

    async def send_audio(self, spoken: Speaking) -> None:
        annotations = Annotations(spoken)
        async for data in in_order(spoken.job, self.service.settings.answer_bytes):
            for row in await annotations.since():
                await self.send(row)
            for piece in pieces(data):
                await self.socket.send_bytes(piece)
                await asyncio.sleep(0)  # a fast reader never lets it wait


def request_of(fields: Mapping[str, Any], text: str) -> SpeechFields:
    return parse({**fields, "input": text}, SpeechRequest)


def message_of(text: str | None) -> dict[str, Any]:
    """A client's message; 400 if it is not one. None: it was binary."""
    if text is None:
        raise ApiError(400, "a message is text, not binary", code="invalid_json")
    require_few_parts(text.encode())
    try:
        message = from_json(text, allow_inf_nan=False)  # no halves of characters, and no endless depth
    except ValueError:
        raise ApiError(400, "the message is no JSON", code="invalid_json") from None
    if not isinstance(message, dict):
        raise ApiError(400, "a message is a JSON object", code="invalid_json")
    return message


async def serve_session(socket: WebSocket, make: Callable[[], Session]) -> None:
    """Accepts a socket, by the subprotocol that a browser wants to hear of, and serves it."""
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(next((one for one in offered if not one.startswith(KEY_PROTOCOL)), None))
    with suppress(WebSocketDisconnect):
        await make().run()
        if socket.application_state is WebSocketState.CONNECTED:
            await socket.close()


def make_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.websocket("/v1/audio/speech/live")
    async def live(socket: WebSocket) -> None:
        await serve_session(socket, partial(LiveSession, service, socket))

    return router
