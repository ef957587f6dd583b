"""The Wyoming protocol, by which Home Assistant and Rhasspy speak and hear: events over TCP.

An event is a line of JSON, with more JSON and bytes behind it where the line says so. Its types are those of
the package `wyoming`: describe, synthesize, synthesize-start, -chunk and -stop, transcribe, ping.
"""

from __future__ import annotations

import asyncio
import io
import json
import wave
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from wyoming.asr import Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import (
    AsrModel,
    AsrProgram,
    Attribution,
    Describe,
    Info,
    TtsProgram,
    TtsVoice,
    TtsVoiceSpeaker,
)
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from melforge.common.errors import InputError
from melforge.common.files import version
from melforge.common.serve.answer import answer_for, described
from melforge.common.serve.errors import ApiError
from melforge.common.serve.live import DEFAULTS, GrowingText, Sentence, coming, in_turn, request_of
from melforge.common.serve.metrics import log
from melforge.common.serve.scheduler import Cancelled
from melforge.common.serve.service import Service, Speaking

LONGEST_LINE = 1 << 16  # bytes
LONGEST_CHUNK = 1 << 20  # bytes of the audio of one event
WIDTH = 2  # bytes of a sample that is sent
ABOUT = Attribution("Melforge", "https://pypi.org/project/melforge")


async def serve_wyoming(service: Service, host: str, port: int) -> asyncio.Server:
    """Listens; an OSError where that is impossible."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = WyomingClient(service, reader, writer)
        try:
            if len(open_connections) >= service.settings.connections:
                await connection.send(Error("too many connections: try again later", "overloaded"))
                return
            open_connections.add(connection)
            await connection.run()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            open_connections.discard(connection)
            connection.be_silent()
            writer.close()

    open_connections: set[WyomingClient] = set()
    return await asyncio.start_server(connected, host, port, limit=LONGEST_LINE)


def info_of(service: Service) -> Info:
    """What there is to hear and who listens."""
    pairs, ear = service.pairs, service.hearing.ear
    about: Any = {"attribution": ABOUT, "installed": True, "version": version()}
    voices = [
        TtsVoice(
            name=name,
            description=pairs.descriptions[name] or name,
            languages=[pairs.languages[name] or "en"],
            speakers=[TtsVoiceSpeaker(one) for one in pairs.speakers_of(name)] or None,
            **about,
        )
        for name in pairs.voices
    ]
    speaks = TtsProgram(
        name="melforge", description="Melforge", voices=voices, supports_synthesize_streaming=True, **about
    )
    hears = []
    if ear:
        language = service.hearing.language
        model = AsrModel(
            name=ear.name, description=ear.description or ear.name, languages=[language], **about
        )
        hears = [AsrProgram(name="melforge", description="Melforge", models=[model], **about)]
    return Info(tts=[speaks], asr=hears)


class WyomingClient:
    """One client. A text, or each sentence of one that comes in parts, is a request like any other."""

    def __init__(self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.service, self.reader, self.writer = service, reader, writer
        self.text = GrowingText(service.settings.max_characters)
        self.sentences: asyncio.Queue[str | None] = asyncio.Queue()
        self.speaker: asyncio.Task[None] | None = None  # of a text that comes in parts
        self.format: AudioStart | None = None  # of a recording that comes
        self.recorded = bytearray()

    async def run(self) -> None:
        while (event := await self.next_event()) is not None:
            try:
                await self.take(event)
            except (KeyError, TypeError, ValueError) as error:
                await self.send(Error(f"{event.type}: {error or type(error).__name__}", "invalid_event"))
            except ApiError as error:
                await self.send_error(error)

    async def next_event(self) -> Event | None:
        """None at the end; an event that is none, or too large, ends the connection."""
        async with asyncio.timeout(self.service.settings.seconds):
            try:
                line = await self.reader.readline()
            except ValueError:
                line = b"too long"
            if not line:
                return None
            try:
                head = json.loads(line)
                more, payload = (int(head.get(key) or 0) for key in ("data_length", "payload_length"))
                kind = str(head["type"])
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                await self.send(Error("this is no event of Wyoming's", "invalid_event"))
                return None
            if not (0 <= more <= self.service.settings.body_bytes and 0 <= payload <= LONGEST_CHUNK):
                await self.send(Error(f"{kind}: too many bytes", "too_large"))
                return None
            data = dict(head.get("data") or {})
            if more:
                data |= json.loads(await self.reader.readexactly(more))
            return Event(kind, data, await self.reader.readexactly(payload) if payload else None)

    async def take(self, event: Event) -> None:
        kind = event.type
        if Describe.is_type(kind):
            await self.send(info_of(self.service))
        elif Ping.is_type(kind):
            await self.send(Pong(text=event.data.get("text")))
        elif Synthesize.is_type(kind):
            if self.speaker is None:  # in Home Assistant's stream the whole text follows its parts
                asked = Synthesize.from_event(event)
                await self.speak(one_text(asked.text), asked.voice)
        elif SynthesizeStart.is_type(kind):
            self.be_silent()
            voice = SynthesizeStart.from_event(event).voice
            self.speaker = asyncio.create_task(self.speak_parts(voice))
        elif SynthesizeChunk.is_type(kind) and self.speaker is not None:
            for sentence in self.text.add(SynthesizeChunk.from_event(event).text):
                self.sentences.put_nowait(sentence)
        elif SynthesizeStop.is_type(kind) and self.speaker is not None:
            for sentence in self.text.rest():
                self.sentences.put_nowait(sentence)
            self.sentences.put_nowait(None)
            await self.speaker
            self.speaker = None
        elif AudioStart.is_type(kind):
            self.format, self.recorded = AudioStart.from_event(event), bytearray()
        elif AudioChunk.is_type(kind) and self.format is not None:
            self.recorded += event.payload or b""
            if len(self.recorded) > (most := self.service.settings.recording_bytes):
                self.format = None
                raise ApiError(413, f"the recording has more than {most} bytes", code="too_large")
        elif AudioStop.is_type(kind) and self.format is not None:
            format, self.format = self.format, None
            await self.transcribe(format)

    # Speaking

    async def speak_parts(self, voice: SynthesizeVoice | None) -> None:
        try:
            await self.speak(coming(self.sentences), voice)
        except ApiError as error:
            await self.send_error(error)
        await self.send(SynthesizeStopped())

    async def speak(self, texts: AsyncIterator[str], voice: SynthesizeVoice | None) -> None:
        """Sends the audio of texts one after the other, as that of one."""
        format: dict[str, Any] = {}
        try:
            async with aclosing(in_turn(texts, partial(self.begin, voice), [])) as sentences:
                async for sentence in sentences:
                    if sentence.spoken is None:
                        raise sentence.error or ApiError(500, "nothing was spoken")
                    if not format:
                        format = {"rate": sentence.spoken.wanted.sample_rate, "width": WIDTH, "channels": 1}
                        await self.send(AudioStart(**format))
                    await self.send_audio(sentence.spoken, format)
        except (Cancelled, InputError) as error:
            raise answer_for(error) from None
        finally:
            if format:
                with suppress(ConnectionError):
                    await self.send(AudioStop())

    async def begin(self, voice: SynthesizeVoice | None, sentence: Sentence) -> None:
        service = self.service
        fields: dict[str, Any] = dict(DEFAULTS)
        if voice is not None and voice.name:
            fields["voice"] = voice.speaker or voice.name
        sentence.admission.enter_context(service.admitted("", [sentence.text]))
        pair, _ = service.require(request_of(fields, sentence.text))
        rate = service.pairs.mel(pair).sampling_rate
        wanted = request_of({**fields, "sample_rate": rate}, sentence.text)
        sentence.spoken = await service.speak(wanted, service.scheduler.clock())

    async def send_audio(self, spoken: Speaking, format: dict[str, Any]) -> None:
        try:
            async for data in spoken.job:
                await self.send(AudioChunk(audio=data, **format))
        finally:
            spoken.job.cancel()
            self.service.metrics.spoken(spoken.job.progress, len(spoken.wanted.input), "")
            log("wyoming", **described(spoken))

    def be_silent(self) -> None:
        """Ends a text that comes in parts, and forgets it."""
        if self.speaker is not None:
            self.speaker.cancel()
        self.speaker, self.sentences = None, asyncio.Queue()
        self.text.rest()

    # Hearing

    async def transcribe(self, format: AudioStart) -> None:
        file = io.BytesIO()
        with wave.open(file, "wb") as writer:
            writer.setparams((format.channels, format.width, format.rate, 0, "NONE", ""))
            writer.writeframes(self.recorded)
        hearing = self.service.hearing
        hearing.require(hearing.names[0] if hearing.names else "")
        with hearing.admitted():
            heard = await hearing.transcribe(file)
        await self.send(Transcript(text=heard.text, language=hearing.language))

    async def send(self, event: Eventable) -> None:
        await async_write_event(event.event(), self.writer)

    async def send_error(self, error: ApiError) -> None:
        await self.send(Error(str(error), error.code))


async def one_text(text: str) -> AsyncIterator[str]:
    yield text
