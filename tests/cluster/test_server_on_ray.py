"""`melforge serve --ray` with two replicas, one of which is killed while both speak."""

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from melforge.common.runner import TextToSpeech
from melforge.common.serve.client import Address, Connection, ServerError
from melforge.common.serve.errors import TAKEN_SECONDS
from tests.cluster.conftest import PATIENCE, melforge, no_other_cluster, ray_processes
from tests.flood import IN_TIME, Found, flood, post, seconds_from_now
from tests.serve.conftest import SPEECH, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow, IN_TIME]
REPLICA, INGRESS = "ray::ServeReplica:melforge:Speech", "ray::ServeReplica:melforge:Ingress"
CONTROLLER = "ray::ServeController"
CALLERS, QUEUE = 4, 8


@dataclass
class Running:
    """The server, and where its processes are found."""

    url: str
    environment: dict[str, str]

    @property
    def session(self) -> Path:
        return Path(self.environment["RAY_TMPDIR"]) / "ray" / "session_latest"

    def has_answered(self, replica: int) -> bool:
        logs = self.session.glob(f"logs/worker-*-{replica}.err")
        return any('"event": "request"' in log.read_text() for log in logs)


@pytest.fixture(scope="module")
def server(environment, tiny_voice, tmp_path_factory) -> Iterator[Running]:
    with no_other_cluster(tmp_path_factory):
        words = ("--replicas", 2, "--port", 0, "--voice", tiny_voice, "--device", "cpu", "--queue", QUEUE)
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
    assert len(made) >= 6, "it is sent as it is made"  # a read may have several sentences
    assert is_spoken(b"".join(made), direct, text)
    with pytest.raises(ServerError, match="no audio made: the text is empty") as error:
        asyncio.run(chunks(""))
    assert error.value.status == 400
    with pytest.raises(ServerError, match="the body has more than 1048576 bytes") as error:
        asyncio.run(chunks("x" * (1 << 20)))
    assert error.value.status == 413


def test_ray_shows_the_figures_of_every_replica(server):
    (port,) = [path.read_text() for path in server.session.glob("metrics_export_port_*")]
    pattern = re.compile(r'^ray_melforge_models_loaded\{.*replica="([^"]+)".*\} [1-9]', re.MULTILINE)
    end, replicas = time.monotonic() + PATIENCE, set()
    while len(replicas) < 2:
        assert time.monotonic() < end, "the figures of both replicas"
        time.sleep(0.5)
        replicas = set(pattern.findall(get(f"http://127.0.0.1:{port}/metrics")[1].decode()))


@pytest.fixture(scope="module")
def found_by(server, direct):
    """What `clients` find until `until`; texts are long enough for a kill to hit their answers."""

    def longer(text: str) -> str:
        return f"{text} " * 6

    async def ask(connection: Connection, text: str) -> tuple[int, bytes]:
        body = json.dumps(request(longer(text))).encode()
        status, headers, content = await post(connection, SPEECH, body)
        assert (status == 503) == ("retry-after" in headers)
        return status, content

    def found_by(clients: int, until: Callable[[], bool], heard: list[str]) -> Found:
        def is_whole(text: str, content: bytes) -> bool:
            heard.append(text)
            return is_spoken(content, direct, longer(text))

        return flood(server.url, ask, is_whole, until, clients)

    return found_by


def test_a_flood_is_refused_and_whom_it_takes_gets_the_whole_text(server, found_by):
    found = found_by(8 * QUEUE, seconds_from_now(), [])
    print(found)
    assert not found.failed and not found.wrong, found
    assert len(found.answered) >= QUEUE and len(found.refused) >= 2 * QUEUE, found
    assert get(f"{server.url}/ready")[0] == 200


def test_what_is_killed_again_and_again_under_load_costs_nobody_an_answer(server, found_by):
    """Unless it was all replicas at once, or an ingress: then whose answer is lost sees an error."""
    turns = itertools.cycle(("replica", "replica", "controller", "all replicas", "ingress", "all ingresses"))
    is_over, kills, heard, killed = seconds_from_now(), [], [], set()

    def is_up() -> bool:
        parts = [ray_processes(server.environment, name) for name in (REPLICA, INGRESS, CONTROLLER)]
        alive = list(map(len, parts)) == [2, 2, 1] and not killed.intersection(itertools.chain(*parts))
        return alive and all(map(server.has_answered, parts[0]))

    def kill() -> None:
        while not is_over() or not kills:
            wait_for(lambda: len(heard) > CALLERS, "answers")
            kills.append(next(turns))
            parts = {"controller": CONTROLLER, "ingress": INGRESS, "all ingresses": INGRESS}
            name = parts.get(kills[-1], REPLICA)
            some = ray_processes(server.environment, name)
            for process in some[: None if kills[-1].startswith("all") else 1]:
                os.kill(process, signal.SIGKILL)
                killed.add(process)
            wait_for(is_up, f"another {kills[-1]}")
            heard.clear()

    with ThreadPoolExecutor(1) as aside:
        killing = aside.submit(kill)
        found = found_by(CALLERS, killing.done, heard)
        killing.result()
    print(f"{len(kills)} killed: {Counter(kills)}\n{found}\n{Counter(found.failed)}")
    assert not found.wrong and len(found.answered) > CALLERS, found
    assert not any("nothing came" in one for one in found.failed), "nobody waits for who is dead"
    if set(kills) <= {"replica", "controller"}:
        # On a very busy machine an answer may fall silent for so long that it breaks off.
        assert found.soonest_failure >= TAKEN_SECONDS, found.failed
    assert get(f"{server.url}/ready")[0] == 200
