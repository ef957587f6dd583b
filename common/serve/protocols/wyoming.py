"""The Wyoming protocol, by which Home Assistant and Rhasspy speak and hear: events over TCP.

An event is a line of JSON, with more JSON and bytes behind it where the line says so. Its types are those of
the package `wyoming`: describe, synthesize, synthesize-start, -chunk and -stop, transcribe, ping. Home
Assistant waits for the end of the audio, also behind an error: what cannot be answered ends the connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import urllib.parse
import wave
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, BinaryIO

from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_get_stdin, async_get_stdout, async_write_event
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
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from melforge.common.errors import InputError
from melforge.common.files import version
from melforge.common.serve.answer import answer_for, each
from melforge.common.serve.errors import ApiError
from melforge.common.serve.incoming import IN_MEMORY, Held, recording_file
from melforge.common.serve.metrics import log
from melforge.common.serve.protocols.live import (
    DEFAULTS,
    GrowingText,
    Sentence,
    Sentences,
    coming,
    ended,
    in_turn,
    request_of,
)
from melforge.common.serve.protocols.nim import require_language
from melforge.common.serve.requests import require_few_parts
from melforge.common.serve.service import Service, Speaking
from melforge.common.serve.settings import LOOPBACK
from melforge.common.serve.usage import ASKING, Asking

LONGEST_LINE = 1 << 15  # bytes, of which asyncio keeps twice as many
LONGEST_CHUNK = 1 << 18  # bytes of the audio of one event
WIDTH = 2  # bytes of a sample that is sent
ABOUT = Attribution("Melforge", "https://pypi.org/project/melforge")
CLOSING_SECONDS = 2  # for connections to close behind the last answer
WAY_OUT = "give tcp://HOST:PORT, unix://PATH or stdio://"
ANNOUNCED = "_wyoming._tcp.local."
MULTICAST = ("224.0.0.251", 5353)  # of mDNS


@asynccontextmanager
async def serving_wyoming(
    service: Service, uri: str, over: asyncio.Event
) -> AsyncIterator[asyncio.Server | None]:
    """Listens at tcp://HOST:PORT or unix://PATH, or answers the one client at stdio:// (None), whose end
    is `over`. An InputError for another address, an OSError where listening is impossible.
    """
    clients: dict[WyomingClient, asyncio.Task[Any]] = {}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = WyomingClient(service, reader, writer)
        try:
            if len(clients) >= service.settings.connections:
                await client.send(Error("too many connections: try again later", "overloaded"))
                return
            task = asyncio.current_task()
            assert task is not None
            clients[client] = task
            await client.run()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            clients.pop(client, None)
            client.be_silent()
            writer.close()

    async def answer_stdio() -> None:
        await connected(await async_get_stdin(), await async_get_stdout())
        over.set()

    parts = urllib.parse.urlsplit(uri)
    async with AsyncExitStack() as stack:
        server = None
        if parts.scheme == "stdio":
            answering = asyncio.create_task(answer_stdio())
            stack.callback(answering.cancel)
        else:
            server = await listen(parts, uri, connected)
            stack.callback(server.close)
        port = None
        if server is not None and parts.scheme == "tcp":
            host, port = server.sockets[0].getsockname()[:2]
            if parts.hostname not in LOOPBACK:
                announcing = asyncio.create_task(announce(host, port))
                stack.push_async_callback(ended, announcing)
        log("listening", url=uri if port is None else f"tcp://{parts.hostname}:{port}", protocol="wyoming")
        try:
            yield server
        finally:
            for client, task in list(clients.items()):
                client.ending = True
                if not client.busy:
                    task.cancel()
            if clients:
                await asyncio.wait(clients.values(), timeout=CLOSING_SECONDS)


async def listen(parts: urllib.parse.SplitResult, uri: str, connected: Any) -> asyncio.Server:
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    try:
        if parts.scheme == "tcp" and host and port is not None:
            return await asyncio.start_server(connected, host, port, limit=LONGEST_LINE)
        if parts.scheme == "unix" and (path := f"{parts.netloc}{parts.path}"):
            return await asyncio.start_unix_server(connected, path, limit=LONGEST_LINE)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen at {uri}: {error.strerror or error}") from None
    raise InputError(f"{uri!r} is no address for Wyoming: {WAY_OUT}")


async def announce(host: str, port: int) -> None:
    """Tells Home Assistant that a server is there (zeroconf), until this is cancelled."""
    try:
        from zeroconf import Error as ZeroconfError
        from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf
    except ImportError:
        log("not announced", reason="the package zeroconf is not installed")
        return
    name = f"{socket.gethostname().partition('.')[0]}-{port}"
    try:
        # Where it listens everywhere, the address by which others on this network reach it.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect(MULTICAST)
            address = asking.getsockname()[0] if host in ("0.0.0.0", "::") else host
        async with AsyncZeroconf() as zeroconf:
            about = AsyncServiceInfo(ANNOUNCED, f"{name}.{ANNOUNCED}", port, parsed_addresses=[address])
            await zeroconf.async_register_service(about, allow_name_change=True)
            log("announced", name=about.name, address=address)
            await asyncio.Event().wait()
    except (OSError, ZeroconfError) as error:
        log("not announced", logging.WARNING, reason=str(error) or type(error).__name__)


def info_of(service: Service) -> Info:
    """What there is to hear and who listens."""
    pairs, ear = service.pairs, service.hearing.ear
    about: Any = {"attribution": ABOUT, "installed": True, "version": version()}
    voices = []
    for name in pairs.voices:
        about_voice = {"languages": [pairs.languages[name] or "en"], **about}
        speakers = pairs.speakers_of(name)
        described = pairs.descriptions[name] or name
        told = [TtsVoiceSpeaker(one) for one in speakers] or None
        voices.append(TtsVoice(name=name, description=described, speakers=told, **about_voice))
        # Home Assistant lets its users choose among voices only.
        voices += [
            TtsVoice(name=one, description=f"{one} ({name})", speakers=None, **about_voice)
            for one in speakers
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
        self.sentences = Sentences()
        self.speaker: asyncio.Task[None] | None = None  # of a text that comes in parts
        self.language = ""  # of what is recorded
        self.format: AudioStart | None = None  # of a recording that comes
        self.recorded: BinaryIO  # its samples
        self.busy = False  # with an event
        self.ending = False  # behind it

    async def run(self) -> None:
        """Answers events until the client leaves, or one cannot be answered."""
        ASKING.set(Asking("", "wyoming"))
        kind = ""
        try:
            while not self.ending and (event := await self.next_event()) is not None:
                kind, self.busy = event.type, True
                await self.take(event)
                self.busy = False
                del event  # which is large perhaps, and the next one may not come for long
                await asyncio.sleep(0)  # many events may be there already
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            raise
        except (ApiError, InputError) as error:
            await self.send_error(error)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, wave.Error) as error:
            await self.send(Error(f"{kind}: {error or type(error).__name__}", "invalid_event"))
        except Exception as error:
            await self.send_error(error)

    async def next_event(self) -> Event | None:
        """None at the end."""
        async with asyncio.timeout(self.service.settings.seconds):
            line = await self.reader.readline()
            if not line:
                return None
            require_few_parts(line)
            head, held = json.loads(line), Held()
            more, payload = (int(head.get(key) or 0) for key in ("data_length", "payload_length"))
            if not (0 <= more <= self.service.settings.body_bytes and 0 <= payload <= LONGEST_CHUNK):
                raise ApiError(413, "an event has too many bytes", code="too_large")
            held.note(more + payload)
            data = dict(head.get("data") or {})
            if more:
                require_few_parts(written := await self.reader.readexactly(more))
                data |= json.loads(written)
            return Event(str(head["type"]), data, await self.reader.readexactly(payload) if payload else None)

    async def take(self, event: Event) -> None:
        kind = event.type
        if Describe.is_type(kind):
            await self.send(info_of(self.service))
        elif Ping.is_type(kind):
            await self.send(Pong(text=event.data.get("text")))
        elif Synthesize.is_type(kind):
            if self.speaker is None:  # in Home Assistant's stream the whole text follows its parts
                asked = Synthesize.from_event(event)
                await self.speak(each([asked.text]), fields_of(asked))
        elif SynthesizeStart.is_type(kind):
            self.be_silent()
            fields = fields_of(SynthesizeStart.from_event(event))
            self.speaker = asyncio.create_task(self.speak_parts(fields))
        elif SynthesizeChunk.is_type(kind) and self.speaker is not None:
            self.sentences.require_room()
            text = SynthesizeChunk.from_event(event).text
            if len(text) > (longest := self.service.settings.max_characters):
                raise ApiError(400, f"text: {len(text)} characters, of {longest} at most in a part", "text")
            for sentence in await asyncio.to_thread(self.text.add, text):
                self.sentences.put_nowait(sentence)
        elif SynthesizeStop.is_type(kind) and self.speaker is not None:
            for sentence in self.text.rest():
                self.sentences.put_nowait(sentence)
            self.sentences.put_nowait(None)
            await self.speaker
            self.speaker = None
        elif Transcribe.is_type(kind):
            self.language = Transcribe.from_event(event).language or ""
        elif AudioStart.is_type(kind):
            self.format = AudioStart.from_event(event)
            self.recorded = self.service.hearing.coming_file()
        elif AudioChunk.is_type(kind) and self.format is not None:
            self.service.hearing.require_space(len(event.payload or b""))
            self.recorded.write(event.payload or b"")
            if self.recorded.tell() > (most := self.service.settings.recording_bytes):
                raise ApiError(413, f"the recording has more than {most} bytes", code="too_large")
        elif AudioStop.is_type(kind) and self.format is not None:
            format, self.format = self.format, None
            with self.recorded as samples:
                file = await asyncio.to_thread(wav_of, samples, format)
            await self.transcribe(file)

    # Speaking

    async def speak_parts(self, fields: dict[str, Any]) -> None:
        """A sentence that cannot be spoken, such as a lone emoji, does not end the others."""
        try:
            await self.speak(coming(self.sentences), fields, self.send_error)
            await self.send(SynthesizeStopped())
        except ConnectionError:
            pass
        except Exception as error:
            with suppress(ConnectionError):
                await self.send_error(error)
            self.writer.close()

    async def speak(self, texts: AsyncIterator[str], fields: dict[str, Any], pass_over: Any = None) -> None:
        """Sends the audio of texts one after the other, as that of one; only a whole one has an end.

        `pass_over` is told why a text cannot be spoken; without it that is raised.
        """
        format: dict[str, Any] = {}
        async with aclosing(in_turn(texts, partial(self.begin, fields), [])) as sentences:
            async for sentence in sentences:
                if sentence.spoken is None:
                    error = sentence.error or ApiError(500, "nothing was spoken")
                    if pass_over is None:
                        raise error
                    await pass_over(error)
                    continue
                if not format:
                    format = {"rate": sentence.spoken.wanted.sample_rate, "width": WIDTH, "channels": 1}
                    await self.send(AudioStart(**format))
                await self.send_audio(sentence.spoken, format)
        if format:
            await self.send(AudioStop())

    async def begin(self, fields: dict[str, Any], sentence: Sentence) -> None:
        service = self.service
        sentence.admission.enter_context(service.admitted("", [sentence.text]))
        pair, _ = service.require(request_of(fields, sentence.text))
        require_language(service.pairs.languages[pair.voice] or "en", fields.get("language", ""))
        rate = service.pairs.mel(pair).sampling_rate
        wanted = request_of({**fields, "sample_rate": rate}, sentence.text)
        sentence.spoken = await service.speak(wanted, service.scheduler.clock())

    async def send_audio(self, spoken: Speaking, format: dict[str, Any]) -> None:
        try:
            async for data in spoken.job:
                await self.send(AudioChunk(audio=data, **format))
                await asyncio.sleep(0)  # a fast reader never lets `send` wait
        finally:
            log("wyoming", **self.service.conclude(spoken, ""))

    def be_silent(self) -> None:
        """Ends a text that comes in parts, and forgets it."""
        if self.speaker is not None:
            self.speaker.cancel()
        self.speaker, self.sentences = None, Sentences()
        self.text.rest()

    # Hearing

    async def transcribe(self, file: BinaryIO) -> None:
        hearing = self.service.hearing
        hearing.require(hearing.names[0] if hearing.names else "", self.language)
        with hearing.admitted():
            heard = await hearing.transcribe(file)
        await self.send(Transcript(text=heard.text, language=hearing.language))

    async def send(self, event: Eventable) -> None:
        """ConnectionError if the client has left, or reads nothing for too long."""
        try:
            async with asyncio.timeout(self.service.settings.seconds):
                await async_write_event(event.event(), self.writer)
        except TimeoutError:
            self.writer.transport.abort()
            raise ConnectionAbortedError from None

    async def send_error(self, error: Exception) -> None:
        told = answer_for(error)
        await self.send(Error(str(told), told.code))


def wav_of(samples: BinaryIO, format: AudioStart) -> BinaryIO:
    """A wav file of samples."""
    samples.seek(0)
    file = recording_file()
    with wave.open(file, "wb") as writer:
        writer.setparams((format.channels, format.width, format.rate, 0, "NONE", ""))
        while data := samples.read(IN_MEMORY):
            writer.writeframesraw(data)
    return file


def fields_of(asked: Synthesize | SynthesizeStart) -> dict[str, Any]:
    """Those of a request for speech."""
    fields: dict[str, Any] = dict(DEFAULTS)
    if asked.voice is not None and asked.voice.name:
        fields["voice"] = asked.voice.speaker or asked.voice.name
    elif asked.voice is not None and asked.voice.language:
        fields["language"] = asked.voice.language
    if asked.text_format == "ssml":
        fields["markup"] = "ssml"
    return fields
