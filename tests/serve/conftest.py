"""A server of the shipped voice in a thread of the test's process, on a free port."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SPEECH = "/v1/audio/speech"
JSON = {"Content-Type": "application/json"}
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
PATIENCE = 200.0  # seconds that a test waits for what must come, on a machine that is busy with other things


@dataclass
class Running:
    """A server and its parts."""

    url: str
    service: Any
    wyoming: int | None = None  # ports
    riva: int | None = None

    def client(self, key: str = "") -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, timeout=PATIENCE, headers=headers)

    def speak(self, text: str = "Hello there.", **fields: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(SPEECH, json=speech(text, **fields))


def speech(text: str = "Hello there.", **fields: Any) -> dict[str, Any]:
    return {"model": "fastpitch-hifigan", "voice": "hazel", "input": text, **fields}


def own_pcm(text: str = "Hello there.", **fields: Any) -> dict[str, Any]:
    """A request for samples that are not resampled."""
    return speech(text, response_format="pcm", sample_rate=22050, **fields)


def samples_of(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2").astype(np.int64)


def at_24_khz(direct: Any, text: str) -> np.ndarray:
    """What the server should send in its default rate, float64 (S,)."""
    import soxr

    return soxr.resample(direct.speak(text).samples.astype(np.float64), direct.sampling_rate, 24000)


def ratio_db(wanted: np.ndarray, got: np.ndarray) -> float:
    """Of signal to noise, as far as both go."""
    length = min(len(wanted), len(got))
    noise = np.mean((wanted[:length] - got[:length]) ** 2)
    with np.errstate(divide="ignore"):
        return 10 * np.log10(np.mean(wanted[:length] ** 2) / noise)


def wait_for(condition: Callable[[], object], what: str = "") -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"still waiting: {what}"
        time.sleep(0.005)


@contextmanager
def running(
    keys: tuple[bytes, ...] | str = (),
    voice: str | None = "hazel",
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """A server with these keys, or those of a file, a voice, or all shipped ones, and these settings.

    Its first pair is loaded.
    """
    from melforge.common.serve.keys import ApiKey, digest_of, read_access
    from melforge.common.serve.pairs import LoadOptions, Pairs
    from melforge.common.serve.server import listen, make_server, serving_riva, wyoming_uri
    from melforge.common.serve.service import Service
    from melforge.common.serve.settings import ServeSettings

    listening = listen("127.0.0.1", 0)
    options = LoadOptions(voice=voice and str(ROOT / "voices" / voice), device="cpu", threads=1)
    made: dict[str, Any] = {}

    async def serve() -> None:
        told = ServeSettings(keys=keys if isinstance(keys, str) else None, **settings)
        access = read_access(told, environment or {})
        if not isinstance(keys, str):
            given = [ApiKey(f"owner {number}", digest_of(key)) for number, key in enumerate(keys, start=1)]
            access = replace(access, keys=given)
        pairs = Pairs(options, told.pairs, told.memory_limit)
        service = Service(told, pairs, told.workers or 2, access)
        async with AsyncExitStack() as stack:
            stack.callback(service.stop)
            wyoming = None
            if (uri := wyoming_uri(told)) is not None:
                from melforge.common.serve.protocols.wyoming import serving_wyoming

                listens = await stack.enter_async_context(serving_wyoming(service, uri, asyncio.Event()))
                wyoming = listens.sockets[0].getsockname()[1]
            made["riva"] = await stack.enter_async_context(serving_riva(service))
            made.update(service=service, wyoming=wyoming, server=make_server(service))
            await made["server"].serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        wait_for(lambda: "server" in made and made["server"].started, "the server")
        service = made["service"]
        wait_for(lambda: service.pairs.is_ready(service.pairs.first), "the first pair")
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield Running(url, service, made["wyoming"], made["riva"])
    finally:
        if "server" in made:
            made["server"].should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as one:
        yield one


@pytest.fixture(scope="session")
def direct():
    """The same voice without a server."""
    from melforge.common.runner import TextToSpeech

    return TextToSpeech.load(voice=ROOT / "voices" / "hazel", device="cpu", threads=1)


@dataclass
class Process:
    """`melforge serve` in a process of its own."""

    process: subprocess.Popen
    url: str


@contextmanager
def serving(*words: str, module: str = "melforge", **environment: str) -> Iterator[Process]:
    """Once it says where it listens."""
    import json

    command = [sys.executable, "-m", module, "serve", "--port", "0", "--device", "cpu", *words]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )
    try:
        assert process.stderr is not None
        line: dict[str, Any] = {}
        while line.get("event") != "listening":  # with several processes each is ready before
            line = json.loads(process.stderr.readline())
        yield Process(process, line["url"])
    finally:
        process.kill()
        process.communicate()
