"""examples/litserve: the server in a process of its own, asked by its client."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile

from melforge.common.audio.wire import encode

pytestmark = [pytest.mark.serve, pytest.mark.litserve, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "litserve"
PATIENCE = 60.0  # seconds
TEXT = "The first sentence is here. The second one follows it, after a short pause."


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def is_ready(url: str) -> bool:
    try:
        return urllib.request.urlopen(f"{url}/health", timeout=5).status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def process():
    """The server's process, with `url`; the whole session of processes is gone afterwards."""
    port = free_port()
    command = [sys.executable, str(FOLDER / "server.py"), "--port", str(port)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.DEVNULL, start_new_session=True
    )
    process.url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE
        while not is_ready(process.url):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.1)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def post(url: str, body: bytes) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture(scope="module")
def direct():
    from melforge.common.runner import TextToSpeech

    return TextToSpeech.load("fastpitch", "hifigan", device="cpu").speak(TEXT)


@pytest.mark.parametrize("words", [(), ("--whole",)])
def test_the_client_writes_what_speak_gives(process, direct, tmp_path, words):
    file = tmp_path / "x.wav"
    client = [sys.executable, FOLDER / "client.py", TEXT, "-o", file, "--server", process.url]
    result = subprocess.run([*client, *words], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    samples, rate = soundfile.read(file, dtype="int16")
    whole = encode(direct.samples, "pcm", direct.sampling_rate, rate)
    expected = np.frombuffer(whole, "<i2").astype(int)
    assert rate == 24000 and len(samples) == len(expected)
    noise = samples.astype(float) - expected
    assert 10 * np.log10(np.sum(np.square(expected)) / max(np.sum(np.square(noise)), 1)) >= 45
    assert f"{len(samples) / rate:.2f} s, first audio" in result.stdout


def test_streams_are_spoken_side_by_side_and_each_is_its_own(process):
    texts = [f"This is number {number}, and no other." + " And so on." * number for number in range(6)]
    bodies = [json.dumps({"input": text}).encode() for text in texts]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda body: post(f"{process.url}/speech/stream", body), bodies))
    for body, (status, wav) in zip(bodies, together, strict=True):
        assert status == 200
        _, alone = post(f"{process.url}/speech", body)
        samples = soundfile.read(io.BytesIO(wav), dtype="int16")[0]
        assert len(samples) == len(soundfile.read(io.BytesIO(alone))[0])


@pytest.mark.parametrize("route", ["/speech", "/speech/stream"])
@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"input": " ... "}, "input: nothing in it can be spoken"),
        ({"input": "x" * 5000}, "input: String should have at most 4096 characters"),
        ({"input": 5}, "input: Input should be a valid string"),
        ({}, "input: Field required"),
        ({"input": "Hello.", "speed": 9}, "speed: Input should be less than or equal to 4"),
        ("{broken", "the body is no JSON"),
    ],
)
def test_bad_input_is_a_400_that_says_why(process, route, body, detail):
    data = body if isinstance(body, str) else json.dumps(body)
    status, answer = post(process.url + route, data.encode())
    assert (status, json.loads(answer)) == (400, {"detail": detail})


def test_the_client_says_what_the_server_says(process, tmp_path):
    command = [sys.executable, str(FOLDER / "client.py"), "Hello.", "--speed", "9", "--server"]
    result = subprocess.run([*command, process.url], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "error: speed: Input should be less than or equal to 4\n"
    result = subprocess.run([*command, "http://127.0.0.1:1"], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 2 and result.stderr.startswith("error: no server at http://127.0.0.1:1")


def test_sigterm_ends_all_of_it(process):
    """The last test of the file: the server is gone then."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    end = time.monotonic() + PATIENCE
    while is_ready(process.url) or has_processes(process.pid):
        assert time.monotonic() < end
        time.sleep(0.1)


def has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
