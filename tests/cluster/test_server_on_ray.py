"""`melforge serve --ray` with two replicas, one of which is killed while both speak."""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from melforge.common.runner import TextToSpeech
from melforge.common.serve.client import Address, Connection, ServerError
from tests.cluster.conftest import PATIENCE, melforge, no_other_cluster, ray_processes

pytestmark = [pytest.mark.ray, pytest.mark.slow]
REPLICA = "ray::ServeReplica:melforge:Speech"
CALLERS = 8
RETRIES = 5


@dataclass
class Running:
    """The server, and where its processes are found."""

    url: str
    environment: dict[str, str]

    @property
    def replicas(self) -> list[int]:
        return ray_processes(self.environment, REPLICA)


@pytest.fixture(scope="module")
def server(environment, tiny_voice, tmp_path_factory) -> Iterator[Running]:
    with no_other_cluster(tmp_path_factory):
        words = ("--replicas", 2, "--port", 0, "--voice", tiny_voice, "--device", "cpu")
        log = tmp_path_factory.mktemp("ray") / "log"
        with log.open("w") as output:
            process = subprocess.Popen(melforge("serve", "--ray", *words), env=environment, stderr=output)
        try:
            end, listening = time.monotonic() + PATIENCE, []
            while not listening:
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.2)
                listening = [line for line in log.read_text().splitlines() if '"event": "listening"' in line]
            yield Running(json.loads(listening[0])["url"], environment)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, log.read_text()
            end = time.monotonic() + PATIENCE
            while ray_processes(environment, "ray::"):  # they end with the cluster, a moment later
                assert time.monotonic() < end
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def direct(tiny_voice):
    return TextToSpeech.load(voice=tiny_voice, device="cpu", threads=1)


def request(text: str) -> dict:
    how = {"model": "tts-1", "voice": "alloy", "response_format": "pcm", "sample_rate": 22050}
    return {**how, "input": text}


def is_spoken(data: bytes, direct, text: str) -> bool:
    """Whether it is all of this text; the environments may have other versions of ONNX Runtime."""
    wanted, got = direct.speak(text).samples, np.frombuffer(data, "<i2") / 32768
    return len(got) == len(wanted) and bool(np.allclose(got, wanted, atol=1e-4))


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_it_answers_as_the_server_of_one_machine(server, direct):
    assert get(f"{server.url}/ready") == (200, b'{"status":"ready"}')
    assert get(f"{server.url}/")[1].startswith(b"<!doctype html>")
    status, content = get(f"{server.url}/v1/nothing")
    assert status == 404 and json.loads(content)["error"]["code"] == "not_found"

    async def chunks(text: str) -> list[bytes]:
        connection = Connection(Address.parse(server.url), timeout=PATIENCE)
        try:
            return [data async for data in connection.speech(request(text))]
        finally:
            connection.close()

    text = " ".join(f"Sentence number {number} is here." for number in range(24))
    made = asyncio.run(chunks(text))
    assert len(made) >= 12, "it is sent as it is made"  # a read may have two sentences
    assert is_spoken(b"".join(made), direct, text)
    with pytest.raises(ServerError, match="no audio made: the text is empty") as error:
        asyncio.run(chunks(""))
    assert error.value.status == 400
    with pytest.raises(ServerError, match="the body has more than 1048576 bytes") as error:
        asyncio.run(chunks("x" * (1 << 20)))
    assert error.value.status == 413


def test_ray_shows_the_figures_of_every_replica(server):
    session = Path(server.environment["RAY_TMPDIR"]) / "ray" / "session_latest"
    (port,) = [path.read_text() for path in session.glob("metrics_export_port_*")]
    pattern = re.compile(r'^ray_melforge_models_loaded\{.*replica="([^"]+)".*\} [1-9]', re.MULTILINE)
    end, replicas = time.monotonic() + PATIENCE, set()
    while len(replicas) < 2:
        assert time.monotonic() < end, "the figures of both replicas"
        time.sleep(0.5)
        replicas = set(pattern.findall(get(f"http://127.0.0.1:{port}/metrics")[1].decode()))


async def speak_until(stop: asyncio.Event, server: Running, caller: int) -> list[tuple[str, bytes, int]]:
    """Texts one after the other, each asked for again after a 503; text, answer and number of 503s."""
    connection = Connection(Address.parse(server.url), timeout=PATIENCE)
    answers = []
    number = 0
    while not stop.is_set():
        text = f"Caller {caller} asks for {number}. " + "And more of it. " * (number % 3 * 8)
        for attempt in range(RETRIES):
            try:
                data = b"".join([data async for data in connection.speech(request(text))])
                answers.append((text, data, attempt))
                break
            except ServerError as error:
                assert error.status == 503 and error.retry_after, f"{error.status}: {error}"
                await asyncio.sleep(0.2 * 2**attempt)
        else:
            raise AssertionError(f"{RETRIES} times 503")
        number += 1
    connection.close()
    return answers


def test_a_replica_that_is_killed_under_load_costs_nobody_an_answer(server, direct):
    async def run() -> list[list[tuple[str, bytes, int]]]:
        before = server.replicas
        assert len(before) == 2
        stop = asyncio.Event()
        callers = [asyncio.create_task(speak_until(stop, server, number)) for number in range(CALLERS)]
        await asyncio.sleep(2)
        os.kill(before[0], signal.SIGKILL)
        end = time.monotonic() + PATIENCE
        while len(now := server.replicas) < 2 or before[0] in now:
            assert time.monotonic() < end, "the replica did not come back"
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)
        stop.set()
        return await asyncio.gather(*callers)

    answers = [one for some in asyncio.run(run()) for one in some]
    assert len(answers) > CALLERS
    wrong = [text for text, data, _ in answers if not is_spoken(data, direct, text)]
    assert not wrong
    assert get(f"{server.url}/ready")[0] == 200
