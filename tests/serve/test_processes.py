"""Several server processes at one port: all answer, one that ends is replaced, and all end together."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from melforge.common.cli.serve import main
from melforge.common.errors import InputError
from melforge.common.serve.server import listen
from tests.serve.conftest import PATIENCE, SPEECH, own_pcm, ratio_db, samples_of, serving, wait_for

pytestmark = pytest.mark.serve
TEXTS = [f"This is sentence number {number}, which is not very long." for number in range(8)]


def children_of(pid: int) -> list[int]:
    """The server processes, without the helper that multiprocessing starts first."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_there(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def kill_if_there(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def two_processes(*words, **how):
    """A server, its log's lines, and its two processes, which both listen."""
    with serving("--processes", "2", "--workers", "1", *words, **how) as server:
        lines = []

        def read():
            with contextlib.suppress(ValueError):  # it is closed at the end
                for line in server.process.stderr:
                    lines.append(json.loads(line))

        threading.Thread(target=read, daemon=True).start()
        wait_for(lambda: events(lines).count("listening") == 1, "the second one")  # of the first one told
        yield server, lines, children_of(server.process.pid)


def events(lines):
    return [line["event"] for line in lines]


@pytest.mark.slow
def test_one_that_is_killed_is_replaced_and_no_cut_answer_looks_whole(direct):
    wanted = {text: len(direct.speak(text).samples) for text in TEXTS}
    with two_processes() as (server, lines, processes):

        def ask(number):
            text = TEXTS[number % len(TEXTS)]
            try:
                answer = httpx.post(server.url + SPEECH, json=own_pcm(text), timeout=PATIENCE)
            except httpx.TransportError:
                return "cut"
            assert answer.status_code == 200 and len(samples_of(answer.content)) == wanted[text]
            return "whole"

        with concurrent.futures.ThreadPoolExecutor(6) as callers:
            answers = [callers.submit(ask, number) for number in range(24)]
            wait_for(lambda: sum(answer.done() for answer in answers) > 4, "the first answers")
            os.kill(processes[0], signal.SIGKILL)
            found = [answer.result() for answer in answers]
        assert found.count("whole") >= 24 - 6  # of those under way a part was at the one that was killed
        wait_for(lambda: events(lines).count("listening") == 2, "the replacement")
        assert processes[0] not in (after := children_of(server.process.pid)) and processes[1] in after
        assert [line["pid"] for line in lines if line["event"] == "a process ended"] == processes[:1]
        assert ask(0) == "whole"
        token = httpx.post(f"{server.url}/v1/realtime/client_secrets", json={}).json()["value"]
        for _ in range(20):  # connections, of which each process gets some
            answer = httpx.get(f"{server.url}/v1/audio/voices", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 200

        def counted():
            page = httpx.get(server.url + "/metrics").text.splitlines()
            return sum(
                float(line.split()[-1]) for line in page if line.startswith("melforge_requests_total{")
            )

        # An answer counts behind its last byte: the one that was killed may not have come so far.
        wait_for(lambda: counted() >= found.count("whole"), "figures of both, the one that was killed too")


def test_a_signal_ends_all_of_them_behind_what_they_speak(direct):
    book = " ".join(TEXTS * 5)  # which takes longer than to ask how many run
    with two_processes() as (server, lines, processes), concurrent.futures.ThreadPoolExecutor(4) as callers:
        ask = (httpx.post, server.url + SPEECH)
        answers = [callers.submit(*ask, json=own_pcm(book), timeout=PATIENCE) for _ in range(4)]
        page = lambda: httpx.get(server.url + "/metrics").text  # noqa: E731
        wait_for(lambda: "requests_running 4.0" in page(), "all four")
        for process in processes:  # as systemd does
            os.kill(process, signal.SIGTERM)
        wait_for(lambda: events(lines).count("draining") == 2, "both processes' end")
        server.process.send_signal(signal.SIGTERM)
        wanted = len(direct.speak(book).samples)
        assert all(len(samples_of(answer.result().content)) == wanted for answer in answers)
        assert server.process.wait(PATIENCE) == 0
        assert not any(map(is_there, processes)) and events(lines)[-1] == "stopped"


def test_each_request_goes_to_the_process_with_the_fewest(direct):
    book = json.dumps(own_pcm(" ".join(TEXTS * 9)))
    with two_processes() as (server, _, processes), contextlib.ExitStack() as stack:
        port = int(server.url.rpartition(":")[2])
        clients = {}  # who have a book spoken and read nothing of it, by their connection's inode

        def begin():
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            head = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(book)}\r\n\r\n{book}".encode())
            wait_for(lambda: connection_of(client), "the connection's other end")
            clients[connection_of(client)] = client
            wait_for(lambda: sum(map(len, spread())) == len(clients), "a process that takes it")

        def spread():
            return [sockets_of(process) & clients.keys() for process in processes]

        for number in range(1, 7):
            begin()
            assert {len(those) for those in spread()} == {number // 2, (number + 1) // 2}
        for one in spread()[0]:
            clients[one].close()
        wait_for(lambda: not spread()[0], "the end of the first one's")
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
            for text in TEXTS[:3]:  # on one connection, which goes back between them
                answer = client.post(SPEECH, json=own_pcm(text))
                assert len(samples_of(answer.content)) == len(direct.speak(text).samples)
        clients = {one: client for one, client in clients.items() if client.fileno() >= 0}
        begin()
        begin()
        assert list(map(len, spread())) == [2, 3]


def connection_of(client: socket.socket) -> str:
    """The inode of the server's end, as links in /proc have it; "" before it is accepted."""
    ends = [f"0100007F:{name[1]:04X}" for name in (client.getpeername(), client.getsockname())]
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
    return next((f"socket:[{row[9]}]" for row in rows if row[1:3] == ends and row[9] != "0"), "")


def sockets_of(pid: int) -> set[str]:
    with contextlib.suppress(OSError):
        return {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()}
    return set()


@pytest.mark.slow
def test_what_one_had_not_begun_to_answer_another_does(direct):
    with two_processes() as (server, lines, processes), contextlib.ExitStack() as stack:
        connections = []
        os.kill(processes[0], signal.SIGSTOP)  # it was begun first, and is handed the first request
        stack.callback(kill_if_there, processes[0])
        for text in TEXTS[:2]:
            host = server.url.removeprefix("http://")
            one = stack.enter_context(contextlib.closing(http.client.HTTPConnection(host, timeout=PATIENCE)))
            one.request("POST", SPEECH, json.dumps(own_pcm(text)), {"Content-Type": "application/json"})
            connections.append(one)
        answered = select.select([one.sock for one in connections], [], [], PATIENCE)[0]
        assert answered == [connections[1].sock]
        kill_if_there(processes[0])
        for text, one in zip(TEXTS, connections, strict=False):
            wanted, got = direct.speak(text).samples * 32767, samples_of(one.getresponse().read())
            assert len(got) == len(wanted) and ratio_db(wanted, got) > 45
        wait_for(lambda: events(lines).count("listening") == 2, "the replacement")


@pytest.mark.slow
def test_processes_that_are_killed_before_they_listen_are_replaced_too():
    with two_processes() as (server, _, processes):
        for _ in range(3):
            for process in processes:
                kill_if_there(process)
            wait_for(lambda old=set(processes): old.isdisjoint(children_of(server.process.pid)), "their end")
            wait_for(lambda: children_of(server.process.pid), "others")
            processes = children_of(server.process.pid)
        wait_for(lambda: httpx.get(server.url + "/ready", timeout=PATIENCE).status_code == 200, "one")
        wait_for(lambda: len(children_of(server.process.pid)) == 2, "the other one")


@pytest.mark.parametrize(("certificate", "taken"), [(None, False), (None, True), ("a file", False)])
def test_a_request_that_none_takes_in_time_is_refused_also_where_one_had_taken_it(
    certificate, taken, monkeypatch, tmp_path
):
    from melforge.common.serve import processes
    from melforge.common.serve.keys import Access
    from melforge.common.serve.pairs import LoadOptions
    from melforge.common.serve.settings import ServeSettings
    from melforge.common.synthesis.places import WorkerPlace

    monkeypatch.setattr(processes, "TAKEN_SECONDS", 0.05)
    monkeypatch.setenv(processes.FOLDER_VARIABLE, str(tmp_path))

    async def answer() -> bytes:
        settings = ServeSettings(certificate=certificate, certificate_key=certificate)
        with socket.socket() as bound:
            front = processes.Front(settings, LoadOptions(), Access(), bound)
            front._loop, front._over, front._signals = (
                asyncio.get_running_loop(),
                asyncio.Event(),
                [signal.SIGTERM],
            )
            one = processes.ServerProcess(
                WorkerPlace("cpu"),
                multiprocessing.get_context("spawn").Process(target=signal.pause),
                multiprocessing.Pipe(duplex=False)[0],
                (ends := processes.socket_pair())[0],
                listening=taken,
            )
            one.process.start()
            front._running.append(one)
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            theirs.send(b"POST / HTTP/1.1\r\n\r\n")
            front._keep(processes.HeldConnection(ours))
            if taken:
                while not one.connections:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(processes.TAKEN_SECONDS)
                monkeypatch.setattr(processes, "TAKEN_SECONDS", 2 * PATIENCE)  # which do not begin anew
            one.process.kill()
            one.process.join()
            ends[1].close()
            front._ended(one)
            theirs.settimeout(PATIENCE)
            with theirs, theirs.makefile("rb") as file:
                return await asyncio.to_thread(file.read)

    answered = asyncio.run(answer())
    if certificate:
        assert answered == b"", "TLS is not there yet"
    else:
        assert answered.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 1\r\n" in answered
        assert json.loads(answered.partition(b"\r\n\r\n")[2])["error"]["code"] == "overloaded"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_they_listen_ends_all_as_it_ends_one_process(number):
    words = ["serve", "--processes", "2", "--port", "0", "--device", "cpu"]
    command = [sys.executable, "-m", "melforge", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None and "2 workers on cpu" in server.stderr.readline()
        wait_for(lambda: len(children_of(server.pid)) == 2, "both processes")
        started = children_of(server.pid)
        server.send_signal(number)
        said = server.communicate(timeout=PATIENCE)[1]
    assert server.returncode == 128 + number and json.loads(said)["event"] == "stopped"
    wait_for(lambda: not any(map(is_there, started)), "their end")


@pytest.mark.slow
def test_one_that_fails_from_now_on_is_replaced():
    with two_processes("--backend", "torch", module="tests.serve.failing") as (server, lines, processes):
        ask = lambda: httpx.post(server.url + SPEECH, json=own_pcm("Yes."), timeout=PATIENCE)  # noqa: E731
        assert [ask().status_code for _ in range(4)] == [200] * 4
        os.kill(processes[0], signal.SIGUSR1)
        assert sorted(ask().status_code for _ in range(2)) == [200, 500]
        wait_for(lambda: events(lines).count("listening") == 2, "the replacement")
        assert [ask().status_code for _ in range(4)] == [200] * 4
        assert [line["pid"] for line in lines if line["event"] == "a process ended"] == processes[:1]


def test_where_none_can_answer_the_command_ends_and_says_why():
    """They were begun again for ever, and no line told what was wrong."""
    command = [sys.executable, "-m", "tests.serve.never_ready", "serve", "--processes", "2", "--port", "0"]
    done = subprocess.run(
        [*command, "--without-keys"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1, done.stderr
    assert "No module named '_cffi_backend'" in done.stderr.splitlines()[-1]


def test_a_front_out_of_open_files_ends_idle_connections_and_none_of_them_outlives_it():
    with two_processes() as (server, _, processes):
        assert len(processes) == 2 and all(map(is_there, processes))
        pid, port = server.process.pid, int(server.url.rpartition(":")[2])
        used = [int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir()]
        files = next(most for most in itertools.count() if most - sum(file < most for file in used) == 8)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(10)]
            assert httpx.get(server.url + "/health", timeout=PATIENCE).status_code == 200
            assert idle[0] in (ended := select.select(idle, [], [], PATIENCE)[0]) and idle[-1] not in ended
            assert idle[6] not in ended  # which the time for a head would have ended with the first one
        server.process.kill()
        wait_for(lambda: not any(map(is_there, processes)), "their end")


@pytest.mark.slow
def test_what_keeps_them_from_listening_is_a_sentence(monkeypatch):
    monkeypatch.setattr("melforge.common.serve.processes.set_up_logging", lambda: None)
    with pytest.raises(InputError, match="no GPU that PyTorch sees"):
        main(["--processes", "2", "--backend", "cuda", "--port", "0"])
    with pytest.raises(InputError, match="--processes is not for several devices"):
        main(["--processes", "2", "--device", "cpu,cpu"])
    with listen("127.0.0.1", 0) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(OSError, match=f"in use: 127.0.0.1 port {port}"):
            main(["--processes", "2", "--port", port])


def test_they_begin_where_another_server_s_connections_are_in_their_last_minute():
    before = listen("127.0.0.1", 0)
    port = before.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as caller:
        accepted, _ = before.accept()
        accepted.close()  # whoever closes first waits for late packets
        assert caller.recv(1) == b""
    before.close()
    listen("127.0.0.1", port).close()
