"""A load on a server of the Wyoming protocol: this one, or another for Home Assistant."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from wyoming.audio import AudioChunk, AudioStop
from wyoming.error import Error
from wyoming.event import async_read_event, async_write_event
from wyoming.tts import Synthesize, SynthesizeVoice

from melforge.common.bench.load import Load, TimedAnswer
from melforge.common.bench.targets import HttpTarget
from melforge.common.serve.client import ServerError


@dataclass(frozen=True)
class WyomingTarget(HttpTarget):
    """The same by `synthesize`, which knows no models; the rate is the voice's."""

    def __str__(self) -> str:
        voice = f"voice {self.fields['voice']}, {len(self.texts)} texts"
        return f"tcp://{self.address.host}:{self.address.port}: {voice}"

    def connect(self) -> WyomingCaller:  # type: ignore[override]
        return WyomingCaller(self)


class WyomingCaller:
    def __init__(self, target: WyomingTarget):
        self._target = target
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, answer: TimedAnswer, first: int, load: Load) -> None:
        target = self._target
        text = target.texts[first % len(target.texts)]
        asked = Synthesize(text=text, voice=SynthesizeVoice(name=target.fields["voice"]))
        if self._streams is None:
            self._streams = await asyncio.open_connection(target.address.host, target.address.port)
        reader, writer = self._streams
        await async_write_event(asked.event(), writer)
        while True:
            async with asyncio.timeout(target.timeout):
                event = await async_read_event(reader)
            if event is None or Error.is_type(event.type):
                self.close()
                raise ServerError(0, event.data["text"] if event else "the server broke off")
            if AudioStop.is_type(event.type):
                return
            if AudioChunk.is_type(event.type):
                answer.chunks.append((time.perf_counter(), AudioChunk.from_event(event).seconds))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
