"""Connections that bring no request, more of them than there is room for, and a log that nobody reads."""

import asyncio
import gc
import json
import logging
import os
import socket
import sys
import threading
import weakref
from contextlib import ExitStack, contextmanager, suppress

import httpx
import numpy as np
import pytest
from websockets.sync.client import connect

from melforge.common.audio.sound_files import c_libraries_silenced
from melforge.common.serve import connections, incoming
from melforge.common.serve.gate import Gate
from melforge.common.serve.logs import BURST, MOST_LINES, WINDOW, JsonLines, Seldom
from melforge.common.serve.protocols import live
from tests.serve.conftest import JSON, PATIENCE, SPEECH, UPGRADE, own_pcm, running, serving, wait_for
from tests.serve.test_api import speak_instead

LIVE = f"GET {SPEECH}/live HTTP/1.1\r\nHost: localhost\r\n".encode() + UPGRADE + b"\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
UNFINISHED = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"


def connected(url):
    url = httpx.URL(url)
    return socket.create_connection((url.host, url.port), timeout=PATIENCE)


@pytest.mark.serve
@pytest.mark.parametrize("sent", [b"", b"GET /health HT", HEALTH + b"GET /hea", UNFINISHED])
def test_who_sends_no_request_is_not_waited_for(server, monkeypatch, sent):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with connected(server.url) as one:
        one.sendall(sent)
        answers = one.makefile("rb").read()  # until the server closes
    assert answers.count(b"HTTP/1.1 ") == (sent in (HEALTH + b"GET /hea", UNFINISHED))


@pytest.mark.serve
def test_a_request_may_take_longer_than_its_headers(server, monkeypatch):
    going_on = threading.Event()

    def held(*_):
        assert going_on.wait(PATIENCE)
        yield np.zeros(100, np.float32)

    speak_instead(monkeypatch, held)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 1.0)
    body = json.dumps(own_pcm()).encode()
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connected(server.url) as one, connected(server.url) as silent:
        one.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_for(lambda: server.service.running)
        assert silent.recv(1) == b""  # so the time of the first one is over too
        going_on.set()
        assert one.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.serve
def test_a_new_connection_takes_the_place_of_the_one_that_is_idle_longest():
    with running(connections=3) as server, ExitStack() as stack:
        silent = [stack.enter_context(connected(server.url)) for _ in range(8)]
        for one in silent[:5]:  # each waits longer than all that stay
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
        silent[-1].sendall(HEALTH)
        assert silent[-1].recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.serve
@pytest.mark.parametrize(
    ("method", "kind"),  # answered after its body, before it, and without one
    [("POST", "application/json"), ("POST", "text/plain"), ("HEAD", "application/json")],
)
def test_a_body_that_is_no_http_has_one_answer_and_leaves_no_fault(server, caplog, method, kind):
    head = f"{method} {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    with connected(server.url) as one:
        whole = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n"
        if kind == "text/plain":
            one.sendall(whole + b"1\r\n{\r\n")
            assert one.recv(12) == b"HTTP/1.1 415"
            whole = b""
        one.sendall(whole + b"no size\r\n")
        with suppress(ConnectionResetError):
            answers = one.makefile("rb").read()
            assert method == "HEAD" or answers.count(b"HTTP/1.1 400") == (kind == "application/json")
    wait_for(lambda: not server.service.running)
    assert not [line for line in caplog.records if line.exc_info]


@pytest.mark.serve
@pytest.mark.parametrize("before", [b"", b"\x82\x81\0\0\0\0x"], ids=["alone", "behind a binary one"])
def test_a_message_that_is_no_utf_8_leaves_no_fault_though_its_sender_closes_behind_it(
    server, caplog, before
):
    with connected(server.url) as one:
        one.sendall(LIVE)
        assert one.recv(12) == b"HTTP/1.1 101"
        one.sendall(before + b"\x81\x81\0\0\0\0\xff" + b"\x88\x80\0\0\0\0")  # all at once
        assert one.makefile("rb").read().endswith(b"\x88\x00")  # the close is answered
    assert not [line for line in caplog.records if line.exc_info and "UTF-8" not in line.message]


@pytest.mark.serve
def test_a_mistake_that_is_answered_behind_the_end_of_its_socket_leaves_no_fault(server, caplog, monkeypatch):
    begun, going_on, lines, add = threading.Event(), threading.Event(), [], live.GrowingText.add

    def held(*how):
        begun.set()
        assert going_on.wait(PATIENCE)
        return add(*how)

    monkeypatch.setattr(live.GrowingText, "add", held)
    monkeypatch.setattr("melforge.common.serve.gate.log", lambda event, **fields: lines.append(fields))
    message = json.dumps({"type": "text", "text": "Yes."}).encode()
    with connected(server.url) as one:
        one.sendall(LIVE)
        assert one.recv(12) == b"HTTP/1.1 101"
        one.sendall(bytes([0x81, 0x80 + len(message), 0, 0, 0, 0]) + message)
        assert begun.wait(PATIENCE)
        answers = one.makefile("rb")
        one.sendall(b"\x82\x81\0\0\0\0x" + b"\x89\x80\0\0\0\0")  # binary, and a ping
        while answers.read(1) != b"\x8a":
            pass
        one.sendall(b"\x83\x80\0\0\0\0")  # no such message: read when the binary one is taken
        going_on.set()
        answers.read()
    wait_for(lambda: lines)
    assert not [line for line in caplog.records if line.exc_info]


@pytest.mark.serve
def test_who_leaves_before_a_socket_is_accepted_leaves_no_fault(server, caplog, monkeypatch):
    lines, gone = [], threading.Event()

    async def turn(gate, turns):  # as where others come, too
        while not gone.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # the end of the connection is seen meanwhile

    monkeypatch.setattr(Gate, "_turn", turn)
    monkeypatch.setattr("melforge.common.serve.gate.log", lambda event, **fields: lines.append(fields))
    for left in range(1, 4):
        gone.clear()
        with connected(server.url) as one:
            one.sendall(LIVE)
        gone.set()
        wait_for(lambda: len(lines) == left)  # noqa: B023
    assert {line["end"] for line in lines} == {"disconnect"}
    assert not [line for line in caplog.records if line.levelname == "ERROR"]


@pytest.mark.serve
def test_what_is_no_message_before_a_socket_is_accepted_leaves_no_fault(server, caplog, monkeypatch):
    asked, sent, lines = threading.Event(), threading.Event(), []

    async def turn(gate, turns):
        asked.set()
        while not sent.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # what was sent is read meanwhile

    monkeypatch.setattr(Gate, "_turn", turn)
    monkeypatch.setattr("melforge.common.serve.gate.log", lambda event, **fields: lines.append(fields))
    with connected(server.url) as one:
        one.sendall(LIVE)
        assert asked.wait(PATIENCE)
        one.sendall(b"\xff\xff")
        sent.set()
        assert one.makefile("rb").read() == b""  # until the server closes
    wait_for(lambda: lines)
    assert not [line for line in caplog.records if line.levelname == "ERROR"]


@pytest.mark.serve
def test_headers_have_a_limit_whatever_parsers_are_installed(server):
    with connected(server.url) as one, suppress(ConnectionError):
        one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        for _ in range(20):
            one.sendall(b"y" * (1 << 20))
        assert one.recv(12) == b"HTTP/1.1 400"
    for hosts in (b"", b"Host: localhost\r\nHost: localhost\r\n"):
        with connected(server.url) as one:
            one.sendall(b"GET /health HTTP/1.1\r\n" + hosts + b"\r\n")
            assert one.recv(12) == b"HTTP/1.1 400"


@pytest.mark.serve
def test_who_is_served_is_not_put_out():
    with running(connections=1) as server:
        with connect(f"{server.url.replace('http', 'ws')}{SPEECH}/live") as live:
            with connected(server.url) as one:
                assert one.makefile("rb").read().startswith(b"HTTP/1.1 503")
            live.send(json.dumps({"type": "end"}))
            assert json.loads(live.recv(PATIENCE)) == {"type": "done"}
        with server.client() as client:
            answer = client.post(SPEECH, json=own_pcm())
        assert answer.status_code == 200


@contextmanager
def open_files(most):
    """At most so many in processes that are started meanwhile."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.serve
@pytest.mark.skipif(sys.platform == "win32", reason="a limit of open files is Unix's")
def test_more_connections_than_files_and_a_log_that_nobody_reads_stop_nobody():
    with open_files(256):
        started = serving()
        server = started.__enter__()
    with ExitStack() as stack:
        stack.push(started)
        for _ in range(400):
            stack.enter_context(connected(server.url))
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
            # Their lines are ten times what the pipe of its log holds.
            assert all(client.get(f"/v1/models/{'x' * 1000}").status_code == 404 for _ in range(800))
            assert client.get("/health").status_code == 200
        server.process.terminate()
        assert server.process.wait(PATIENCE) == 0
        lines = server.process.stderr.read().splitlines()
    found = [json.loads(line) for line in lines[:-1]]  # the last may be cut
    told = {"event": "fewer_connections", "most": 192, "open_files": 256}
    assert told.items() <= found[0].items()
    assert all(one["event"] in ("ready", "request") for one in found[1:])


def record(line=1, when=0.0, name="asyncio", message="%s happens", values=("it",)):
    one = logging.LogRecord(name, logging.WARNING, "library.py", line, message, values, None)
    one.created = when
    return one


def test_lines_that_nobody_reads_are_dropped_and_counted():
    reader, writer = os.pipe()
    log = JsonLines(writer)
    for _ in range(MOST_LINES + 1000):
        log.emit(record(message="%s " + "x" * 100))
    with os.fdopen(reader) as file:
        found = [json.loads(file.readline()) for _ in range(MOST_LINES)]
        log.flush()  # all that were taken: what is left is in the pipe
        log.emit(record(message="last", values=()))
        while found[-1]["event"] != "last":
            found.append(json.loads(file.readline()))
    dropped = [line["lines_dropped"] for line in found if "lines_dropped" in line]  # of the line behind them
    assert dropped and len(found) + sum(dropped) == MOST_LINES + 1001
    os.close(writer)


def test_a_library_says_the_same_seldom_and_the_server_as_often_as_it_likes():
    seldom = Seldom()
    assert sum(seldom.filter(record()) for _ in range(3 * BURST)) == BURST
    assert seldom.filter(record(line=2)) and not seldom.filter(record())
    later = record(when=WINDOW)
    assert seldom.filter(later) and later.fields == {"left_out": 2 * BURST + 1}
    assert all(seldom.filter(record(name="melforge.serve")) for _ in range(3 * BURST))


def test_what_libraries_write_to_stderr_themselves_is_not_seen(capfd):
    with c_libraries_silenced():
        os.write(2, b"warning: this file is odd\n")
    os.write(2, b"seen\n")
    assert capfd.readouterr().err == "seen\n"


@pytest.mark.serve
def test_what_comes_of_all_callers_together_is_limited_but_for_small_requests(server, monkeypatch):
    monkeypatch.setattr(incoming, "HELD_BY_ALL", 100_000)
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head = f"{head}Content-Length: 70000\r\n\r\n".encode()
    large = json.dumps(own_pcm(instructions="x" * 70_000))
    with connected(server.url) as first, connected(server.url) as second:
        first.sendall(head + bytes(60_000))
        wait_for(lambda: incoming.Held._all >= 60_000)
        second.sendall(head + bytes(40_001))
        answer = second.recv(1000)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1\r\n" in answer.lower()
        assert server.speak().status_code == 200
        with connected(server.url) as third:
            third.sendall(LIVE)
            assert third.recv(12) == b"HTTP/1.1 101"
            third.sendall(b"\x81\xff" + (70_000).to_bytes(8) + bytes(4 + 40_001))
            assert b"\x03\xf5too much of what callers send" in third.makefile("rb").read()  # 1013
    wait_for(lambda: not incoming.Held._all)
    with server.client() as client:
        assert client.post(SPEECH, content=large, headers=JSON).status_code == 200


@pytest.mark.serve
def test_a_message_may_come_in_any_number_of_empty_frames_and_is_one_piece(server, monkeypatch):
    most, received = [], connections.LiveConnection.data_received

    def watched(self, data):
        received(self, data)
        most.append(len(self.frames))

    monkeypatch.setattr(connections.LiveConnection, "data_received", watched)
    empty, text = b"\x00\x80\0\0\0\0", b'{"type": "end"}'
    with connected(server.url) as one:
        one.sendall(LIVE)
        assert one.recv(12) == b"HTTP/1.1 101"
        one.sendall(b"\x01\x85\0\0\0\0" + text[:5] + empty * 5000 + b"\x80\x8a\0\0\0\0" + text[5:])
        assert b'{"type": "done"}' in one.makefile("rb").read()
    assert max(most) == 1


@pytest.mark.serve
def test_pongs_that_nobody_reads_do_not_gather(server, monkeypatch):
    known, accept = [], connections.LiveConnection.connection_made

    def accepted(self, transport):
        accept(self, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        known.append(self)

    monkeypatch.setattr(connections.LiveConnection, "connection_made", accepted)
    ping, last = b"\x89\xfd".ljust(131, b"\0"), b"\x89\x84\0\0\0\0last"
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(PATIENCE)
        one.connect(("127.0.0.1", httpx.URL(server.url).port))
        one.sendall(LIVE)
        assert one.recv(12) == b"HTTP/1.1 101"
        one.sendall(ping * 5000 + last)
        wait_for(lambda: known[0]._pong.endswith(b"last"))
        read = b""
        while not read.endswith(b"\x8a\x04last"):
            read += one.recv(1 << 16)
    assert 1 < read.count(b"\x8a\x7d") < 2000


@pytest.mark.serve
@pytest.mark.parametrize("path", [f"{SPEECH}/live", "/v1/realtime?model=gpt-realtime"])
def test_a_socket_goes_with_its_client_and_not_with_a_search_for_garbage(server, monkeypatch, path):
    known, begin = [], connections.LiveConnection.__init__

    def begun(self, *given, **named):
        begin(self, *given, **named)
        known.append(weakref.ref(self))

    monkeypatch.setattr(connections.LiveConnection, "__init__", begun)
    gc.disable()
    try:
        with connected(server.url) as one:
            one.sendall(LIVE.replace(f"{SPEECH}/live".encode(), path.encode()))
            assert one.recv(12) == b"HTTP/1.1 101"
            one.sendall(b"\x81\xff" + (70_000).to_bytes(8) + bytes(60_000))
        wait_for(lambda: known and not any(one() for one in known))
    finally:
        gc.enable()


def test_sentences_that_wait_and_conversations_are_limited_too(monkeypatch):
    from melforge.common.serve.errors import ApiError
    from melforge.common.serve.protocols.live import Sentences
    from melforge.common.serve.protocols.realtime_items import Conversation, Item

    monkeypatch.setattr(incoming, "HELD_BY_ALL", 50_000)
    waiting, conversation = Sentences(), Conversation()
    waiting.put_nowait("a" * 30_000)
    waiting.require_room()
    conversation.add(Item("1", "user", [{"text": "a" * 30_000}]))
    with pytest.raises(ApiError, match="waits in memory"):
        conversation.place_for(None, None)
    waiting.get_nowait()
    waiting.require_room()
    assert conversation.place_for(None, None) == 1
    del conversation
    assert not incoming.Held._all
