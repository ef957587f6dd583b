"""What a load is put on: a speech server, or a Triton Inference Server that speaks or hears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from melforge.common.bench.load import STREAM, Load, TimedAnswer
from melforge.common.bench.report import Row
from melforge.common.serve.client import Address, Connection, ServerError
from melforge.common.triton.client import CLIENTS, Client
from melforge.common.triton.tensors import ACOUSTIC, DECODER, FEATURES, FRONTEND, VOCODER


@dataclass(frozen=True)
class HttpTarget:
    """A server of OpenAI's audio API. The sound is pcm, so that every chunk has a length in seconds."""

    address: Address
    key: str | None
    fields: dict[str, Any]  # of a request, beside its text
    rate: int  # Hz
    texts: tuple[str, ...]
    timeout: float = 300.0
    label: Row = field(default_factory=dict)

    def __str__(self) -> str:
        fields = ", ".join(f"{name} {value}" for name, value in self.fields.items())
        return f"{self.address}: {fields}, pcm at {self.rate} Hz, {len(self.texts)} texts"

    def connect(self) -> HttpCaller:
        return HttpCaller(self)

    def request(self, number: int) -> dict[str, Any]:
        text = self.texts[number % len(self.texts)]
        return {**self.fields, "input": text, "response_format": "pcm"}

    def warm_up(self) -> None:
        """Each text once, one after the other. Raises ServerError or OSError where one is not spoken."""

        async def speak() -> None:
            caller = self.connect()
            for number in range(len(self.texts)):
                await caller.ask(TimedAnswer(0.0), number, Load("", 1))
            caller.close()

        asyncio.run(speak())


class HttpCaller:
    def __init__(self, target: HttpTarget):
        self._target = target
        self._connection = Connection(target.address, target.key, target.timeout)

    async def ask(self, answer: TimedAnswer, first: int, load: Load) -> None:
        try:
            async for data in self._connection.speech(self._target.request(first)):
                answer.chunks.append((time.perf_counter(), len(data) / 2 / self._target.rate))
        except OSError:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class TritonTarget:
    """The models that speak in a Triton Inference Server."""

    address: Address
    protocol: str
    rate: int  # Hz
    texts: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)  # controls
    timeout: float = 300.0
    label: Row = field(default_factory=dict)

    def __str__(self) -> str:
        controls = "".join(f", {name} {value}" for name, value in self.parameters.items())
        texts = f": {len(self.texts)} texts, {self.rate} Hz" if self.texts else ""
        return f"{self.address} ({self.protocol}){texts}{controls}"

    @property
    def models(self) -> tuple[str, ...]:
        """Those of the ensemble that is asked."""
        return FRONTEND, ACOUSTIC, VOCODER

    def connect(self) -> TritonCaller:
        return TritonCaller(self)

    def open(self, client: Client) -> None:
        """Opens the connection."""
        client.sampling_rate()

    def fill(self, answer: TimedAnswer, client: Client, first: int, load: Load) -> None:
        """One request, whose chunks are added to the answer."""
        texts = [self.texts[(first + i) % len(self.texts)] for i in range(load.items)]
        if load.kind == STREAM:
            for chunk in client.stream(texts[0], self.parameters):
                answer.chunks.append((time.perf_counter(), len(chunk.audio) / self.rate))
        else:
            made = client.speak(texts, self.parameters)
            seconds = sum(len(one.audio) for one in made) / self.rate
            answer.chunks.append((time.perf_counter(), seconds))
            answer.frames = sum(one.frames for one in made)


@dataclass(frozen=True)
class HearingTarget(TritonTarget):
    """Recordings of noise for an ensemble around a recogniser, `seconds` long each."""

    model: str = ""
    seconds: float = 0.0

    @property
    def models(self) -> tuple[str, ...]:
        return FEATURES, self.model.removesuffix("-ensemble"), DECODER

    def open(self, client: Client) -> None:
        client.sampling_rate(self.model)

    def fill(self, answer: TimedAnswer, client: Client, first: int, load: Load) -> None:
        audio = noise(first % 16, round(self.seconds * self.rate))
        client.hear([audio] * load.items, self.model)
        answer.chunks.append((time.perf_counter(), load.items * self.seconds))


@lru_cache(maxsize=64)
def noise(seed: int, samples: int) -> np.ndarray:
    """Float32 [samples], about as loud as speech."""
    return (0.1 * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


class TritonCaller:
    """Triton's clients wait for their answers, and stay in the thread that made them: each has its own."""

    def __init__(self, target: TritonTarget):
        self._target, self._thread = target, ThreadPoolExecutor(1)
        self._client = self._thread.submit(self._open).result()

    def _open(self) -> Client:
        client: Client = CLIENTS[self._target.protocol](self._target.address, self._target.timeout)
        with suppress(ServerError, OSError):  # what is wrong, the first request says
            self._target.open(client)
        return client

    async def ask(self, answer: TimedAnswer, first: int, load: Load) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._target.fill, answer, self._client, first, load)

    def close(self) -> None:
        self._thread.submit(self._client.close).result()
        self._thread.shutdown()
