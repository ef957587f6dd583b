"""Load on a Triton Inference Server: texts or recordings in a request, requests at a time, and streams."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from melforge.common.bench.server_load import Answer, run_parts
from melforge.common.serve.client import Address, ServerError
from melforge.common.triton.client import CLIENTS, Client
from melforge.common.triton.tensors import ACOUSTIC, DECODER, FEATURES, FRONTEND, VOCODER

STATIC, DYNAMIC, STREAM = "static batching", "dynamic batching", "stream"


@dataclass(frozen=True)
class TritonTarget:
    """What is asked of whom."""

    address: Address
    protocol: str
    texts: tuple[str, ...]
    rate: int  # Hz
    parameters: Mapping[str, Any]  # controls
    timeout: float = 300.0

    def client(self) -> Client:
        return CLIENTS[self.protocol](self.address, self.timeout)

    @property
    def steps(self) -> tuple[str, ...]:
        """The models of the ensemble that is asked."""
        return FRONTEND, ACOUSTIC, VOCODER

    def prepare(self, client: Client) -> None:
        """Opens the connection; what is wrong, the first request says."""
        with suppress(ServerError, OSError):
            client.sampling_rate()

    def ask(self, client: Client, first: int, load: TritonLoad) -> Reply:
        """One request, to the last byte of its answer or its error; `first` is its first text's number."""
        reply = Reply(time.perf_counter())
        with reply.recorded():
            self.fill(reply, client, first, load)
        return reply

    def fill(self, reply: Reply, client: Client, first: int, load: TritonLoad) -> None:
        texts = [self.texts[(first + i) % len(self.texts)] for i in range(load.texts)]
        if load.kind == STREAM:
            for chunk in client.stream(texts[0], self.parameters):
                reply.chunks.append((time.perf_counter(), len(chunk.audio) / self.rate))
        else:
            made = client.speak(texts, self.parameters)
            seconds = sum(len(one.audio) for one in made) / self.rate
            reply.chunks.append((time.perf_counter(), seconds))
            reply.frames = sum(one.frames for one in made)


@dataclass(frozen=True)
class HearingTarget(TritonTarget):
    """Recordings of noise for an ensemble around a recogniser, `seconds` long each."""

    model: str = ""
    seconds: float = 0.0

    @property
    def steps(self) -> tuple[str, ...]:
        return FEATURES, self.model.removesuffix("-ensemble"), DECODER

    def prepare(self, client: Client) -> None:
        with suppress(ServerError, OSError):
            client.sampling_rate(self.model)

    def fill(self, reply: Reply, client: Client, first: int, load: TritonLoad) -> None:
        audio = noise(first, round(self.seconds * self.rate))
        client.hear([audio] * load.texts, self.model)
        reply.chunks.append((time.perf_counter(), load.texts * self.seconds))


@lru_cache(maxsize=64)
def noise(seed: int, samples: int) -> np.ndarray:
    """Float32 [samples], about as loud as speech."""
    return (0.1 * np.random.default_rng(seed % 16).standard_normal(samples)).astype(np.float32)


@dataclass(frozen=True)
class TritonLoad:
    """How it is asked: by one client a `number` of texts in each request, or by so many clients one text.

    Each client makes `runs` requests one after the other.
    """

    kind: str
    number: int
    runs: int

    @property
    def clients(self) -> int:
        return 1 if self.kind == STATIC else self.number

    @property
    def texts(self) -> int:
        """In a request."""
        return self.number if self.kind == STATIC else 1


@dataclass
class Reply(Answer):
    """The answer to one request."""

    frames: int = 0  # of all its mels; unknown in a stream


def run_load(target: TritonTarget, load: TritonLoad, processes: int = 1) -> list[Reply]:
    """All answers; `processes` share the clients, where one Python process is too slow for them."""
    return run_parts(partial(_run_part, target, load), min(processes, load.clients))


def _run_part(target: TritonTarget, load: TritonLoad, part: int, parts: int, begin: float) -> list[Reply]:
    numbers = range(part, load.clients, parts)
    with ThreadPoolExecutor(len(numbers)) as threads:
        replies = threads.map(lambda number: _client(target, load, number, begin), numbers)
        return [reply for some in replies for reply in some]


def _client(target: TritonTarget, load: TritonLoad, number: int, begin: float) -> list[Reply]:
    """One client's requests. Each begins with another text."""
    client = target.client()
    target.prepare(client)
    time.sleep(max(0.0, begin - time.perf_counter()))
    replies = []
    for run in range(load.runs):
        replies.append(target.ask(client, number + run * load.texts, load))
    client.close()
    return replies
