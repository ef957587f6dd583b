"""What keys used: counted by day, kept through every end of the process, and read by their owners."""

import contextlib
import csv
import json
import os
import resource
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import openai
import pytest
from websockets.sync.client import connect

from melforge.common.errors import InputError
from melforge.common.serve.usage import COLUMNS, Asking, Database, Usage, Used
from tests.serve.conftest import PATIENCE, SPEECH, own_pcm, running, serving, speech, wait_for
from tests.serve.test_api import require_error
from tests.serve.test_callers import sha256, table  # noqa: F401  (a fixture)

pytestmark = pytest.mark.serve
ALL = date(2000, 1, 1), date(2999, 1, 1)
RATE = 22050
PASSWORD = "a word/with a slash"


def rows_of(place):
    return Database(str(place)).read(*ALL)


def sums(rows, *names):
    return tuple(round(sum(row[name] for row in rows), 6) for name in names)


@pytest.fixture(scope="session")
def postgres_server():
    """The URL of a server that was made for it, which does not run as root."""
    root = os.getuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="melforge-postgres-"))  # pytest's are for their owner alone
    programs = next(Path("/usr/lib/postgresql").glob("*/bin/initdb")).parent
    how = {"user": "nobody", "cwd": folder} if root else {"cwd": folder}
    try:
        (folder / "password").write_text(PASSWORD)
        if root:
            shutil.chown(folder, "nobody")
            shutil.chown(folder / "password", "nobody")
        command = [programs / "initdb", "-D", "data", "-U", "melforge", "-A", "scram-sha-256"]
        subprocess.run([*command, "--pwfile=password"], check=True, capture_output=True, **how)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["-k", "", "-h", "127.0.0.1", "-p", str(port)]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen([programs / "postgres", "-D", "data", *options], stderr=log, **how)
        try:
            url = f"postgresql://melforge:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
            wait_for(lambda: _answers(url), "Postgres")
            yield url
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(PATIENCE)
    finally:
        shutil.rmtree(folder)


def _answers(url):
    with contextlib.suppress(Exception), Database(url).connected():
        return True
    return False


@pytest.fixture
def postgres(postgres_server):
    """The URL of a database without a table."""
    with Database(postgres_server).connected() as connection:
        connection.cursor().execute("DROP TABLE IF EXISTS melforge_usage, melforge_usage_writers")
        connection.commit()
    return postgres_server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request, tmp_path):
    return str(tmp_path / "usage") if request.param == "sqlite" else request.getfixturevalue("postgres")


def test_rows_are_sums_of_what_several_write_at_the_same_time(place):
    writers = [Usage(place) for _ in range(3)]
    written = threading.Semaphore(0)
    for number in range(90):
        asking = Asking(f"key {number % 3}", "speech")
        writers[number % 2].add(asking, "a-b", "c", Used(1, 10, 0.5, number % 2), written.release)
    for _ in range(90):
        assert written.acquire(timeout=PATIENCE)
    rows = rows_of(place)
    assert [row["key"] for row in rows] == ["key 0", "key 1", "key 2"]
    assert {row["day"] for row in rows} == {datetime.now(UTC).date().isoformat()}
    assert [sums([row], "requests", "characters", "audio_seconds", "errors") for row in rows] == [
        (30, 300, 15.0, 15)
    ] * 3
    for writer in writers:
        writer.close(PATIENCE)


def test_each_kind_of_request_is_counted_for_its_key(place, table, direct):  # noqa: F811
    path = table(Ann={"sha256": sha256("one")}, Boss={"sha256": sha256("two"), "admin": True})
    seconds = len(direct.speak("Hello.").samples) / RATE
    with running(str(path), usage=place) as server, server.client("one") as client:
        assert client.post(SPEECH, json=own_pcm("Hello.")).status_code == 200
        assert client.post(SPEECH, json=own_pcm("Hello.", stream_format="json")).status_code == 200
        body = {"items": [{"input": "Hello."}, {"input": "()"}], "defaults": own_pcm()}
        assert client.post(f"{SPEECH}/batch", json=body).json()["failed"] == 1
        require_error(client.post(SPEECH, json=speech(voice="nobody")), 400)
        assert client.post("/v1/audio/phonemize", json={"input": "Hello."}).status_code == 200
        wav = client.post(SPEECH, json=speech("Hello.", response_format="wav", stream=False)).content
        form = {"data": {"model": "whisper-1"}, "files": {"file": ("a.wav", wav)}}
        assert client.post("/v1/audio/transcriptions", **form).status_code == 200
        form["files"] = {"file": ("a.wav", b"no sound")}
        require_error(client.post("/v1/audio/transcriptions", **form), 400)
        headers = {"Authorization": "Bearer one"}
        with connect(f"{server.url.replace('http', 'ws')}{SPEECH}/live", additional_headers=headers) as live:
            live.send(json.dumps({"type": "text", "text": "Hello."}))
            live.send(json.dumps({"type": "end"}))
            while not isinstance(message := live.recv(PATIENCE), str) or "done" not in message:
                pass
        with client.stream("POST", SPEECH, json=own_pcm("Hello there. " * 300)) as answer:
            next(answer.iter_raw())
        wait_for(lambda: not server.service.scheduler.jobs, "the one that was left")

        def used():
            rows = client.get("/v1/usage").json()["data"]
            return {
                row["kind"]: sums([row], "requests", "characters", "errors", "cancelled")
                for row in rows
                if row["model"]
            }, rows

        wait_for(lambda: used()[0].get("speech") == (4, 18 + 3900, 0, 1), "the one that was left")
        found, rows = used()
        assert found == {
            "speech": (4, 18 + 3900, 0, 1),
            "batch": (1, 6, 0, 0),
            "phonemize": (1, 6, 0, 0),
            "transcriptions": (2, 0, 1, 0),
            "live": (1, 6, 0, 0),
        }
        assert {(row["kind"], row["errors"]) for row in rows if not row["model"]} == {
            ("speech", 1),
            ("batch", 1),
        }
        (batch,) = [row for row in rows if row["kind"] == "batch" and row["model"]]
        assert batch["audio_seconds"] == pytest.approx(seconds)
        assert (batch["model"], batch["voice"], batch["key"]) == ("fastpitch-hifigan", "hazel", "Ann")
        require_error(client.get("/v1/usage?key=Boss"), 403)
        require_error(client.get("/v1/usage?start=someday"), 400)
        assert client.get("/v1/usage?end=2020-01-01").json() == {"object": "list", "data": []}
        assert client.get("/v1/usage?end=0001-01-01").json() == {"object": "list", "data": []}
        with server.client("two") as boss:
            assert (
                boss.get("/v1/usage?key=Ann").json()["data"] == rows == boss.get("/v1/usage").json()["data"]
            )
            lines = list(csv.reader(boss.get("/v1/usage?format=csv").text.splitlines()))
            assert tuple(lines[0]) == COLUMNS and len(lines) == 1 + len(rows)


def test_openai_s_client_counts_and_sees_what_is_left_of_the_minute(table, tmp_path):  # noqa: F811
    path = table(Ann={"sha256": sha256("one"), "requests": 2, "characters": 100, "audio_seconds": 0.5})
    with running(str(path), usage=str(tmp_path / "usage")) as server:
        scheduler, clock = server.service.scheduler, server.service.scheduler.clock()
        scheduler.clock = lambda: clock
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="one", max_retries=0)
        ask = client.audio.speech.with_raw_response.create
        answer = ask(model="tts-1", voice="alloy", input="Hello there, all of you.")
        limits = {
            name.removeprefix("x-ratelimit-"): value
            for name, value in answer.headers.items()
            if name.startswith("x-ratelimit-")
        }
        assert limits == {
            "limit-requests": "2",
            "remaining-requests": "1",
            "reset-requests": "30s",
            "limit-characters": "100",
            "remaining-characters": "76",
            "reset-characters": "14.4s",
            "limit-audio-seconds": "0.5",
            "remaining-audio-seconds": "0",
            "reset-audio-seconds": "0s",
        }
        (row,) = rows_of(tmp_path / "usage")
        made = row["audio_seconds"]
        with pytest.raises(
            openai.RateLimitError, match=r"had its 0\.5 seconds of audio of the minute"
        ) as caught:
            ask(model="tts-1", voice="alloy", input="Hello.")
        wait = (made - 0.5) * 120
        assert 0 <= int(caught.value.response.headers["retry-after"]) - wait < 1
        assert caught.value.response.headers["x-ratelimit-remaining-requests"] == "1"
        clock += wait + 1e-3
        ask(model="tts-1", voice="alloy", input="Hello.")
        assert [row["requests"] for row in rows_of(tmp_path / "usage")] == [2]


@pytest.mark.parametrize(
    ("place", "processes"),
    [("sqlite", 2), pytest.param("postgres", 1, marks=pytest.mark.postgres)],
    indirect=["place"],
)
def test_what_was_answered_in_full_is_in_the_table_after_kill_9(place, processes):
    texts = ["Hello.", "Hello there.", "One, two, three."]
    answered, asked, turn = [], [], threading.Lock()
    words = ("--usage", place, "--workers", "1", "--processes", str(processes))
    with serving(*words, MELFORGE_API_KEYS=f"{24 * '1'} Ann") as server:
        threading.Thread(target=server.process.stderr.read, daemon=True).start()

        def ask(text):
            headers = {"Authorization": f"Bearer {24 * '1'}"}
            with contextlib.suppress(httpx.TransportError):
                while True:
                    with turn:
                        asked.append(text)
                    body = httpx.post(
                        server.url + SPEECH, json=own_pcm(text), headers=headers, timeout=PATIENCE
                    )
                    assert body.status_code == 200
                    with turn:
                        answered.append(text)

        callers = [threading.Thread(target=ask, args=(text,)) for text in texts * 2]
        for caller in callers:
            caller.start()
        wait_for(lambda: len(answered) > 60, "answers")
        if processes > 1:
            from tests.serve.test_processes import children_of

            for child in children_of(server.process.pid):
                os.kill(child, signal.SIGKILL)
        server.process.kill()
        for caller in callers:
            caller.join(PATIENCE)
    requests, characters = sums(rows_of(place), "requests", "characters")
    assert len(answered) <= requests <= len(asked)
    assert sum(map(len, answered)) <= characters <= sum(map(len, asked))


def test_speech_goes_on_where_usage_cannot_be_written_and_it_is_written_later(tmp_path):
    place, limit = tmp_path / "usage", resource.RLIMIT_FSIZE
    with serving("--usage", str(place)) as server:
        lines: list[dict] = []
        threading.Thread(
            target=lambda: lines.extend(map(json.loads, server.process.stderr)), daemon=True
        ).start()

        def ask():
            assert (
                httpx.post(server.url + SPEECH, json=own_pcm("Hello."), timeout=PATIENCE).status_code == 200
            )

        def unwritten():
            page = httpx.get(server.url + "/metrics").text.splitlines()
            (line,) = [one for one in page if one.startswith("melforge_usage_unwritten ")]
            return float(line.split()[1])

        ask()
        most = resource.prlimit(server.process.pid, limit)
        resource.prlimit(server.process.pid, limit, (1, most[1]))  # as a full disk: nothing can be written
        for _ in range(5):
            ask()
        assert unwritten() == 5.0
        assert sums(rows_of(place), "requests") == (1,)
        assert [line["unwritten"] for line in lines if line["event"] == "usage is not written"] == [1]
        resource.prlimit(server.process.pid, limit, most)
        wait_for(lambda: unwritten() == 0.0, "another attempt")
        assert sums(rows_of(place), "requests") == (6,)
        assert [line["requests"] for line in lines if line["event"] == "usage is written again"] == [5]


@contextlib.contextmanager
def cutting(place, monkeypatch, ended):
    """A way to the database that is cut at each COMMIT, after it if it `ended`, until the event is set."""
    healed = threading.Event()
    if "://" not in place:

        class Connection(sqlite3.Connection):
            def commit(self):
                if ended or healed.is_set():
                    super().commit()
                if not healed.is_set():
                    raise sqlite3.OperationalError("disk I/O error")

        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3, "connect", lambda *how, **more: connect(*how, factory=Connection, **more)
        )
        yield place, healed
        return
    url = urlsplit(place)

    def passing(client):
        with client, socket.create_connection((url.hostname, url.port)) as server:
            while ready := select.select([client, server], [], [])[0]:
                source, other = (client, server) if ready[0] is client else (server, client)
                data = source.recv(1 << 16)
                # What the client sends first, and what the server says when it is done.
                cut = b"commit\0" in data if not ended else source is server and b"COMMIT\0" in data
                if not data or (cut and not healed.is_set()):
                    return
                other.sendall(data)

    def accepting():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=passing, args=listening.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accepting, daemon=True).start()
        port = listening.getsockname()[1]
        yield place.replace(f":{url.port}/", f":{port}/"), healed
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "not-ended"])
def test_a_connection_lost_at_commit_counts_nothing_twice(place, monkeypatch, ended):
    monkeypatch.setattr("melforge.common.serve.usage.RETRY", 0.01)
    Database(place).create()
    asking = Asking("Ann", "speech")
    monkeypatch.setattr(Database, "create", lambda self: None)
    with cutting(place, monkeypatch, ended) as (way, healed):
        usage, tried = Usage(way), threading.Semaphore(0)
        for _ in range(3):
            usage.add(asking, "a-b", "c", Used(requests=1), tried.release)
            assert tried.acquire(timeout=PATIENCE)
        assert usage.unwritten == 3
        healed.set()
        wait_for(lambda: not usage.unwritten, "another attempt")
        usage.add(asking, "a-b", "c", Used(requests=1), lambda: None)
        usage.close(PATIENCE)
        assert sums(rows_of(place), "requests") == (4,)


@pytest.mark.postgres
def test_connections_that_postgres_ends_cost_no_row(postgres):
    usage, written = Usage(postgres), threading.Event()
    usage.add(Asking("Ann", "speech"), "a-b", "c", Used(requests=1), written.set)
    assert written.wait(PATIENCE)
    with Database(postgres).connected() as connection:
        connection.cursor().execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
    for _ in range(3):
        usage.add(Asking("Ann", "speech"), "a-b", "c", Used(requests=1), lambda: None)
    usage.close(PATIENCE)
    assert sums(rows_of(postgres), "requests") == (4,)


def test_a_place_that_cannot_be_is_a_sentence(tmp_path):
    (tmp_path / "text").write_text("no database, but a text of some length" * 100)
    for place, message in (
        (tmp_path / "no" / "usage", "the folder .*no does not exist"),
        (tmp_path / "text", "usage: .*text: file is not a database"),
        ("mysql://host/base", "a file's name or a postgresql:// URL, not mysql://"),
    ):
        with pytest.raises((InputError, OSError), match=message):
            Usage(str(place))


@pytest.mark.postgres
def test_a_postgres_that_is_not_there_is_a_sentence_without_the_password():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://me:s3cret@127.0.0.1:{taken.getsockname()[1]}/base"
        with pytest.raises(InputError, match=r"usage: 127\.0\.0\.1/base: ") as caught:
            Usage(url)
    assert "s3cret" not in str(caught.value)


def test_usage_is_not_kept_unasked(server):
    assert require_error(httpx.get(f"{server.url}/v1/usage"), 404)["message"].endswith("with --usage FILE")


def test_the_end_of_an_answer_waits_until_it_is_written(tmp_path):
    place = tmp_path / "usage"
    with running(usage=str(place)) as server, ThreadPoolExecutor(1) as caller:
        with Database(str(place)).connected() as connection:
            connection.execute("BEGIN IMMEDIATE")  # nobody else can write
            answer = caller.submit(server.speak)
            wait_for(lambda: server.service.scheduler.waiting == 0 and server.service.running, "the request")
            wait_for(lambda: not server.service.scheduler.jobs, "its speech")
            for _ in range(10):  # rounds of the event loop, which would have sent it
                assert httpx.get(f"{server.url}/health").status_code == 200
            assert server.service.running == 1 and not answer.done()
            connection.rollback()
        assert answer.result().status_code == 200
        assert sums(rows_of(place), "requests") == (1,)
