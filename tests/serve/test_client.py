"""The client: whole answers however they come, errors as sentences, a connection for many requests."""

import asyncio
import json
import socket

import pytest

from melforge.common.errors import InputError
from melforge.common.serve.client import Address, Connection, ServerError
from tests.plain_server import answering

CHUNKS = [b"first", b"\x00\r\n\xff" * 3000, b"last"]


def ask(
    url: str, times: int = 1, key: str | None = None, timeout: float = 20.0, **request
) -> list[list[bytes]]:
    async def speak() -> list[list[bytes]]:
        connection = Connection(Address.parse(url), key, timeout)
        try:
            return [[data async for data in connection.speech(request)] for _ in range(times)]
        finally:
            connection.close()

    return asyncio.run(speak())


def test_chunks_come_as_the_server_divided_them_and_a_connection_is_kept():
    with answering(lambda handler, body: handler.chunked(CHUNKS)) as server:
        assert ask(server.url, 3, "secret", input="Hello.") == [CHUNKS] * 3
    assert server.opened == 1
    for asked in server.asked:
        assert (asked["path"], asked["input"]) == ("/v1/audio/speech", "Hello.")
        assert asked["headers"]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_the_address_may_end_with_the_version(path):
    with answering(lambda handler, body: handler.whole(200, b"ok")) as server:
        ask(server.url + path)
    assert server.asked[0]["path"] == "/v1/audio/speech"


def test_a_whole_answer_and_one_without_length():
    def until_the_end(handler, body):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(CHUNKS))
        handler.close_connection = True

    for respond in (lambda handler, body: handler.whole(200, b"".join(CHUNKS)), until_the_end):
        with answering(respond) as server:
            assert [b"".join(answer) for answer in ask(server.url, 2)] == [b"".join(CHUNKS)] * 2


def test_a_connection_that_the_server_closed_is_opened_again():
    def respond(handler, body):
        handler.whole(200, b"ok")
        handler.close_connection = True

    with answering(respond) as server:
        assert ask(server.url, 3) == [[b"ok"]] * 3
    assert len(server.asked) == server.opened == 3


@pytest.mark.parametrize(
    ("status", "body", "said", "callers"),
    [
        (400, {"error": {"message": "speed: too fast", "param": "speed"}}, "speed: too fast", True),
        (422, {"detail": "input is missing"}, "input is missing", True),
        (429, {"error": {"message": "too many"}}, "too many", False),
        (503, {"error": {"message": "busy"}}, "busy", False),
    ],
)
def test_errors_say_what_the_server_says(status, body, said, callers):
    with (
        answering(
            lambda handler, _: handler.whole(status, json.dumps(body).encode(), Retry_After="1")
        ) as server,
        pytest.raises(ServerError) as caught,
    ):
        ask(server.url)
    assert (str(caught.value), caught.value.status, caught.value.retry_after) == (said, status, "1")
    assert caught.value.is_the_callers is callers


def test_an_error_of_another_form_is_shown_in_short():
    with (
        answering(lambda handler, _: handler.whole(502, b"<html>\n" + b"x" * 1000)) as server,
        pytest.raises(ServerError) as caught,
    ):
        ask(server.url)
    assert str(caught.value).startswith("<html> xxx") and len(str(caught.value)) == 200


def broken_off(handler, body):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\nff\r\nbut")
    handler.close_connection = True


def too_short(handler, body):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst")
    handler.close_connection = True


@pytest.mark.parametrize("respond", [broken_off, too_short])
def test_an_answer_that_is_not_whole_is_an_error(respond):
    with answering(respond) as server, pytest.raises(ServerError, match="broke off before the end"):
        ask(server.url)


def test_what_is_no_speech_server():
    def other(handler, body):
        handler.wfile.write(b"SSH-2.0-other\r\n\r\n")
        handler.close_connection = True

    with answering(other) as server, pytest.raises(ServerError, match=r"no HTTP server: 'SSH-2.0-other'"):
        ask(server.url)
    with (
        answering(
            lambda handler, _: handler.whole(200, b"<html>", Content_Type="text/html; charset=x")
        ) as server,
        pytest.raises(ServerError, match="no speech server: its answer is text/html"),
    ):
        ask(server.url)


def test_a_server_that_says_nothing_is_not_waited_for_for_ever():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ServerError, match=r"nothing came from the server for 0\.2 s"):
            ask(f"http://127.0.0.1:{port}", timeout=0.2)


def test_who_stops_listening_closes_the_connection():
    gone = []

    def respond(handler, body):
        try:
            handler.chunked([b"x" * 65536] * 200, 0.01)
        except OSError as error:
            gone.append(error)

    async def listen(url: str) -> None:
        connection = Connection(Address.parse(url))
        chunks = connection.speech({})
        await anext(chunks)
        await chunks.aclose()
        assert [data async for data in connection.speech({})]  # on another connection

    with answering(respond) as server:
        asyncio.run(listen(server.url))
    assert server.opened == 2 and gone


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000, "", False)),
        ("http://box/tts/v1", Address("box", 80, "/tts", False)),
        ("https://box", Address("box", 443, "", True)),
        ("http://[::1]:8000", Address("::1", 8000, "", False)),
    ],
)
def test_addresses(url, address):
    assert Address.parse(url) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", ""),
        ("ftp://box", ""),
        ("http://", ""),
        ("http://box:port", r" \(its port is no number from 1 to 65535\)"),
        ("http://box:99999", r" \(its port is no number from 1 to 65535\)"),
        ("http://box:0", r" \(its port is no number from 1 to 65535\)"),
        ("http://a..b", r" \('a..b' cannot be a host's name\)"),
        (f"http://{'a' * 64}", r" \('a*' cannot be a host's name\)"),
        ("http://[::1", r" \(its brackets hold none\)"),
    ],
)
def test_what_is_no_address(url, why):
    with pytest.raises(InputError, match=f"is no server's address{why}: give http://HOST:PORT$"):
        Address.parse(url)
