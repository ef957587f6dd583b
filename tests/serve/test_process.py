"""`melforge serve` as a process: signals, keys, and what it does not start with."""

import concurrent.futures
import contextlib
import json
import shutil
import signal
import subprocess
import sys

import httpx
import pytest

from melforge.common.cli.serve import main, parse, settings_from
from melforge.common.errors import InputError
from melforge.common.serve.server import listen
from melforge.common.serve.settings import ServeSettings
from tests.serve.conftest import PATIENCE, ROOT, SPEECH, own_pcm, samples_of, serving, speech, wait_for

TEXT = "The first sentence is here. The second one follows."


@pytest.fixture
def no_log(monkeypatch):
    """The command in this process leaves its loggers alone."""
    monkeypatch.setattr("melforge.common.serve.server.set_up_logging", lambda: None)


@pytest.mark.serve
@pytest.mark.usefixtures("not_under_nohup")
def test_a_signal_lets_what_runs_end_and_the_status_is_0(direct):
    book = TEXT * 8
    with serving() as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        wait_for(lambda: client.get("/ready").status_code == 200, "readiness")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            with client.stream("POST", SPEECH, json=own_pcm(book)) as answer:
                pieces = answer.iter_raw()
                data = next(pieces)
                others = [pool.submit(client.post, SPEECH, json=own_pcm(book)) for _ in range(3)]
                wait_for(lambda: "running 4.0" in client.get("/metrics").text, "all four")
                server.process.send_signal(signal.SIGHUP)
                wait_for(lambda: client.get("/ready").status_code == 503, "the end of readiness")
                server.process.send_signal(signal.SIGHUP)  # a terminal that closes may send two
                refused = client.post(SPEECH, json=speech())
                assert refused.status_code == 503 and refused.json()["error"]["code"] == "overloaded"
                data += b"".join(pieces)
            answers = [other.result() for other in others]
        assert server.process.wait(PATIENCE) == 0
        lines = [json.loads(line) for line in server.process.stderr]
    wanted = len(direct.speak(book).samples)
    assert len(samples_of(data)) == wanted
    assert all(len(samples_of(answer.content)) == wanted for answer in answers)
    assert lines[-1]["event"] == "stopped"
    spoken = [line for line in lines if line.get("route") == SPEECH and line["status"] == 200]
    assert len(spoken) == 4 and TEXT not in json.dumps(lines)
    assert all(line["characters"] == len(book) and line["end"] == "whole" for line in spoken)
    assert all(0 < line["first_audio_ms"] <= line["total_ms"] and line["audio_s"] > 1 for line in spoken)


def end_while_it_speaks(*options, once_more=False):
    """Sends a server SIGTERM, which a long text must not survive whole; gives the exit status.

    `once_more`: a second signal follows when the first has taken effect.
    """
    with serving(*options) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        wait_for(lambda: client.get("/ready").status_code == 200, "readiness")
        with (
            pytest.raises(httpx.RemoteProtocolError),
            client.stream("POST", SPEECH, json=own_pcm(TEXT * 70)) as answer,
        ):
            pieces = answer.iter_raw()
            next(pieces)
            server.process.send_signal(signal.SIGTERM)
            if once_more:
                wait_for(lambda: client.get("/ready").status_code == 503, "the end of readiness")
                server.process.send_signal(signal.SIGTERM)
            list(pieces)
        return server.process.wait(PATIENCE)


@pytest.mark.serve
def test_a_second_signal_stops_at_once():
    assert end_while_it_speaks(once_more=True) == 128 + signal.SIGTERM


@pytest.mark.serve
def test_what_is_not_done_in_time_is_cut_off():
    assert end_while_it_speaks("--grace", "0") == 0


@pytest.mark.serve
def test_what_a_killed_process_spoke_looks_whole_to_nobody_and_another_takes_its_address(direct):
    from websockets.exceptions import ConnectionClosedError
    from websockets.sync.client import connect

    book = TEXT * 40
    forms = ({}, {"stream_format": "sse"}, {"stream_format": "json"})
    with serving() as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        wait_for(lambda: client.get("/ready").status_code == 200, "readiness")
        live = f"{server.url.replace('http', 'ws')}{SPEECH}/live"
        with contextlib.ExitStack() as answers, connect(live) as socket:
            socket.send(json.dumps({"type": "text", "text": book}))
            socket.recv(PATIENCE)
            requests = (client.stream("POST", SPEECH, json=own_pcm(book, **form)) for form in forms)
            begun = [answers.enter_context(request).iter_raw() for request in requests]
            for pieces in begun:
                next(pieces)
            server.process.kill()
            for pieces in begun:
                with pytest.raises(httpx.TransportError):
                    list(pieces)
            with pytest.raises(ConnectionClosedError):
                while True:
                    socket.recv(PATIENCE)
        port = server.url.rpartition(":")[2]
        with serving("--port", port) as again, httpx.Client(base_url=again.url, timeout=PATIENCE) as client:
            answer = client.post(SPEECH, json=own_pcm(TEXT))
    assert again.url == server.url
    assert len(samples_of(answer.content)) == len(direct.speak(TEXT).samples)


@pytest.mark.serve
def test_a_port_in_use_is_a_sentence(no_log):
    with listen("127.0.0.1", 0) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(OSError, match=f"in use: 127.0.0.1 port {port}"):
            main(["--port", port])


@pytest.mark.serve
def test_a_pair_that_cannot_be_loaded_ends_the_start_with_a_sentence(tmp_path, no_log, caplog):
    unused = shutil.ignore_patterns("tacotron2", "waveglow", "fastspeech", "inner_generator.onnx")
    voice = shutil.copytree(ROOT / "voices" / "hazel", tmp_path / "voice", ignore=unused)
    caplog.set_level("INFO", "melforge")
    with pytest.raises(InputError, match=r"generator.onnx is missing: export the graph again"):
        main(["--voice", str(voice), "--device", "cpu", "--port", "0"])
    assert "listening" in caplog.messages and "stopped" not in caplog.messages, "the error is its last word"


@pytest.mark.serve
def test_keys_are_asked_for_where_others_can_call(tmp_path):
    from melforge.common.serve.keys import Keys, read_access, read_keys

    file = tmp_path / "keys"
    first, second = 16 * "1", 24 * "2"
    file.write_text(f"# mine\n{first}\n\n {second}  Ann Lee\n")
    keys = Keys(read_keys(ServeSettings(keys=str(file)), {}))
    assert [keys.caller(f"Bearer {key}".encode()) for key in (first, second)] == ["1", "Ann Lee"]
    assert read_keys(ServeSettings(), {}) == []
    assert read_keys(ServeSettings(host="0.0.0.0", without_keys=True), {}) == []
    with pytest.raises(InputError, match="there are no API keys: give --keys FILE"):
        read_keys(ServeSettings(host="0.0.0.0"), {})
    with pytest.raises(InputError, match=r"\$MELFORGE_API_KEYS holds no API key"):
        read_keys(ServeSettings(), {"MELFORGE_API_KEYS": " "})
    with pytest.raises(
        InputError, match=r"^\$MELFORGE_API_KEYS 2: a key of 5 characters can be guessed: 16 are"
    ):
        read_keys(ServeSettings(), {"MELFORGE_API_KEYS": f"{first},short"})
    file.write_text(f"# mine\n{first}\n1 Ann\n")
    with pytest.raises(
        InputError, match="keys line 3: a key of 1 character can be guessed: 16 are the least"
    ):
        read_keys(ServeSettings(keys=str(file)), {})
    with pytest.raises(InputError, match=r"\$MELFORGE_TOKEN_SECRET has 5 characters, of 32 at least"):
        read_access(ServeSettings(), {"MELFORGE_TOKEN_SECRET": "short"})
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"latin\.txt line 1 is not UTF-8"):
        read_keys(ServeSettings(keys=str(tmp_path / "latin.txt")), {})
    with pytest.raises(FileNotFoundError):
        read_keys(ServeSettings(keys=str(tmp_path / "none")), {})


def test_settings_come_from_files_options_and_set(tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text("port: 9000\nqueue: 3\nseconds: 20\n")
    args = parse(["--hparam", str(file), "--queue", "5", "--set", "grace=1.5"])
    settings = settings_from(args, ServeSettings)
    assert (settings.port, settings.queue, settings.seconds, settings.grace) == (9000, 5, 20.0, 1.5)
    file.write_text("queue: 0\n")
    with pytest.raises(InputError, match=r"serve.yaml, line 1: queue must be at least 1, not 0"):
        settings_from(parse(["--hparam", str(file)]), ServeSettings)
    for words, message in (
        (["--recording-seconds", "nan"], "--recording-seconds must be a number, not 'nan'"),
        (["--seconds", "inf"], "--seconds must be a number, not 'inf'"),
        (["--port", "65536"], "port must be at most 65535, not 65536"),
        (["--workers", "1000000"], "workers must be at most 1024, not 1000000"),
    ):
        with pytest.raises(InputError, match=message):
            settings_from(parse(words), ServeSettings)
    with pytest.raises(InputError, match=r"unknown key 'quue'; did you mean 'queue'"):
        parse(["--set", "quue=3"])


FAULTS_OF_CHUNKS = """
import resource
import numpy as np
from melforge.common.audio.pcm import to_pcm16
from melforge.common.serve.server import keep_little_freed_memory

def faults(chunks):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(chunks):
        to_pcm16(samples)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_little_freed_memory()
samples = np.zeros(200_000, np.float32)
faults(20)
print(faults(100))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux, which counts pages that are cleared")
def test_the_memory_of_a_chunk_serves_the_next():
    done = subprocess.run(
        [sys.executable, "-c", FAULTS_OF_CHUNKS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1000  # 26,000 where each is given back
