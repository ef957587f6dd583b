"""Who may ask: names of this machine, pages of other sites, and what a page can send without asking first."""

import asyncio
import json
import shutil
import socket
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from melforge.common.serve.gate import REFUSALS, TURNS, Gate, host_name, known_hosts
from melforge.common.serve.keys import ApiKey, digest_of, open_keys
from melforge.common.serve.settings import ServeSettings
from melforge.common.serve.usage import ASKING
from tests.serve.conftest import JSON, PATIENCE, SPEECH, running, serving, speech, wait_for
from tests.serve.test_api import require_error

pytestmark = pytest.mark.serve
EVIL = "http://evil.example"


def test_a_server_of_this_machine_answers_to_its_own_names(server):
    port = server.url.rpartition(":")[2]
    with server.client() as client:
        for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
            assert client.get("/v1/models", headers={"Host": f"{name}:{port}"}).status_code == 200
        for name in ("evil.example", "127.0.0.1.evil.example", "localhost.", "[::2]", "::1", "local host"):
            error = require_error(client.get("/v1/models", headers={"Host": f"{name}:{port}"}), 421)
            assert error["code"] == "host_not_allowed" and "--hosts" in error["message"]
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_those_who_come_and_leave_together_do_so_over_many_rounds_of_the_loop(server):
    """What an event loop does in one round, all clients wait for."""
    begun, left = [], []

    async def come():
        loop, gone, number = asyncio.get_running_loop(), asyncio.Event(), 0

        def count():
            nonlocal number
            number += 1
            loop.call_soon(count)

        async def app(scope, receive, send):
            begun.append((number, scope["path"]))
            await receive()
            left.append(number)

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        gate = Gate(app, server.service)
        paths = [SPEECH] * 50 + ["/health"]
        scopes = [{"type": "http", "method": "GET", "path": path, "headers": []} for path in paths]
        asking = [asyncio.create_task(gate(scope, receive, None)) for scope in scopes]
        loop.call_soon(count)
        while len(begun) < len(scopes):
            await asyncio.sleep(0)
        gone.set()
        await asyncio.wait(asking)

    asyncio.run(come())
    first, *_ = [round for round, _ in begun]
    assert (first, "/health") in begun
    assert max(Counter(round for round, path in begun if path == SPEECH).values()) == TURNS
    assert max(Counter(left).values()) == TURNS and len(left) == 51


def test_more_are_refused_in_a_round_than_begin(server, monkeypatch):
    """In a flood the last one to be refused waits for all others."""
    monkeypatch.setattr(server.service, "running", server.service.settings.queue)
    refused, number = [], 0

    async def come():
        loop = asyncio.get_running_loop()

        def count():
            nonlocal number
            number += 1
            loop.call_soon(count)

        async def send(message):
            refused.extend([number] * (message.get("status") == 503))

        gate, scope = Gate(None, server.service), {"type": "http", "method": "POST", "path": SPEECH}
        loop.call_soon(count)
        await asyncio.gather(*(gate({**scope, "headers": []}, None, send) for _ in range(100)))

    asyncio.run(come())
    assert len(refused) == 100 and max(Counter(refused).values()) == REFUSALS > TURNS


def test_of_those_who_come_together_as_many_are_taken_as_the_queue_has_room_for(server, monkeypatch):
    """Whoever finds no place hears so before anybody's body is read."""
    service = server.service
    monkeypatch.setattr(service, "settings", replace(service.settings, queue=6, key_requests=5))
    keys = [ApiKey(name, digest_of(name.encode())) for name in ("one", "two")]
    monkeypatch.setattr(service, "keys", open_keys(service.settings, keys))
    answers, admitted = Counter(), 0

    async def come():
        gone, read, never = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def answer():
            nonlocal admitted
            with service.admitted(ASKING.get().key, [None]):
                admitted += 1
                await gone.wait()

        async def app(scope, receive, send):
            await scope["body"].wait()
            await asyncio.create_task(answer())
            await send({"type": "http.response.start", "status": 200})

        async def send(message):
            answers[message.get("status")] += 1

        async def ask(body=read, **wanted):
            """So many with each key; returns when nothing more happens."""
            for key, number in wanted.items():
                headers = [(b"authorization", b"Bearer " + key.encode())]
                scope = {"type": "http", "method": "POST", "path": SPEECH, "headers": headers, "body": body}
                asking.extend(asyncio.create_task(gate(dict(scope), None, send)) for _ in range(number))
            for _ in range(200):
                await asyncio.sleep(0)

        gate, asking = Gate(app, service), []
        await ask(one=7, two=3, three=4)
        assert answers == {429: 2, 503: 2, 401: 4, None: 8}
        read.set()
        await ask()
        assert admitted == service.running == 6
        gone.set()
        await asyncio.wait(asking)
        assert answers[200] == 6 and not service.running
        gone.clear()
        for number in (3, 1, 1):  # who is admitted has no other place
            await ask(one=number)
        assert admitted == 11
        await ask(two=2)
        assert admitted == 12 and answers[503] == 3
        gone.set()
        await asyncio.wait(asking)
        await ask(never, one=4, two=2)
        while admitted == 12:
            await ask(two=1)
            await asyncio.sleep(0.01)
        never.set()
        await asyncio.wait(asking)

    asyncio.run(come())
    assert not service.running


def test_a_server_with_names_answers_at_its_address_as_a_cluster_s_probes_ask_it():
    with serving("--host", "0.0.0.0", "--without-keys", "--hosts", "tts.example") as server:
        here = f"http://127.0.0.2:{server.url.rpartition(':')[2]}/health"
        for host, status in (("127.0.0.2", 200), ("tts.example", 200), ("127.0.0.3", 421)):
            assert httpx.get(here, headers={"Host": host}, timeout=PATIENCE).status_code == status


@pytest.mark.parametrize(
    ("settings", "with_keys", "allowed", "refused"),
    [
        ({}, False, "localhost", "evil.example"),
        ({"hosts": "tts.example, Other.example:8000"}, False, "other.example", "evil.example"),
        ({"hosts": "tts.example"}, True, "tts.example", "evil.example"),
        ({"host": "0.0.0.0", "hosts": "tts.example"}, True, "127.0.0.1", "evil.example"),
        ({}, True, "any.example", None),
        ({"host": "0.0.0.0"}, False, "any.example", None),
        ({"hosts": "*"}, False, "any.example", None),
    ],
)
def test_hosts_are_checked_where_no_key_is_needed_or_the_setting_names_some(
    settings, with_keys, allowed, refused
):
    names = known_hosts(ServeSettings(**settings), with_keys)
    assert names is None if refused is None else allowed in names and refused not in names


def test_a_host_s_port_and_brackets_are_no_part_of_its_name():
    assert [host_name(one) for one in ("a:80", "a", "[::1]:80", "[::1]")] == ["a", "a", "::1", "::1"]
    assert [host_name(one) for one in ("a:b", "::1", "[::1", "a:80:90", "")] == [""] * 5


def test_pages_of_other_sites_are_refused_unless_they_are_named(server):
    with server.client() as client:
        for origin in (EVIL, "null", "http://localhost:1"):
            refused = client.post(SPEECH, json=speech(), headers={"Origin": origin})
            assert require_error(refused, 403)["code"] == "origin_not_allowed"
            assert "--origins" in refused.text
            assert client.get("/v1/models", headers={"Origin": origin}).status_code == 200  # cannot be read
        form = {"files": {"file": b"x"}, "headers": {"Origin": EVIL}}
        require_error(client.post("/v1/audio/transcriptions", **form), 403)
        assert client.post(SPEECH, json=speech(), headers={"Origin": server.url}).status_code == 200
        # Behind a proxy that ends TLS the page's address is not the server's; the browser knows.
        proxied = {"Origin": "https://tts.example", "Sec-Fetch-Site": "same-origin"}
        assert client.post(SPEECH, json=speech(), headers=proxied).status_code == 200
        proxied["Sec-Fetch-Site"] = "cross-site"
        require_error(client.post(SPEECH, json=speech(), headers=proxied), 403)


def test_a_websocket_of_another_site_is_refused_unless_it_is_named(server, caplog):
    def says(one, origin):
        with connect(f"{one.url.replace('http', 'ws')}{SPEECH}/live", origin=origin) as live:
            live.send(json.dumps({"type": "end"}))
            return json.loads(live.recv(PATIENCE))["type"]

    assert says(server, None) == says(server, server.url) == "done"
    for origin in (EVIL, "null"):
        with pytest.raises(InvalidStatus, match="403"):
            says(server, origin)
    with running(origins=f"{EVIL}/") as named:
        assert says(named, EVIL) == "done"
        with pytest.raises(InvalidStatus, match="403"):
            says(named, "http://other.example")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_page_can_send_without_asking_is_no_request_for_speech(server, kind):
    headers = {"Content-Type": kind} if kind else {}
    with server.client() as client:
        for route in (SPEECH, f"{SPEECH}/batch"):
            answer = client.post(route, content=json.dumps(speech()), headers=headers)
            assert "application/json" in require_error(answer, 415)["message"]
        answer = client.post(
            SPEECH, json=speech(), headers={"Content-Type": "Application/JSON; charset=utf-8"}
        )
        assert answer.status_code == 200
        answer = client.post(SPEECH, json=speech(), headers={"Content-Encoding": "gzip"})
        assert "without Content-Encoding: gzip" in require_error(answer, 415)["message"]
        assert answer.headers["accept-encoding"] == "identity"


def test_a_target_may_be_a_whole_address_whose_host_counts(server):
    url = httpx.URL(server.url)
    with httpx.Client(proxy=server.url, timeout=PATIENCE) as client:  # sends it so
        assert client.get(f"{server.url}/health").json() == {"status": "ok"}
        assert client.get(f"http://localhost:{url.port}/v1/models/tts%2D1?a=b").json()["id"] == "tts-1"
        answer = client.get("http://evil.example/health", headers={"Host": "localhost"})
        assert require_error(answer, 421)["code"] == "host_not_allowed"


def test_a_body_with_two_lengths_has_one_answer_and_the_connection_ends(server):
    url = httpx.URL(server.url)
    smuggled = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % SPEECH.encode()
    lengths = b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection((url.host, url.port), timeout=PATIENCE) as one:
        one.sendall(head + lengths + b"0\r\n\r\n" + smuggled)
        answer = one.makefile("rb").read()
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 400")
    assert b"either a Content-Length or a Transfer-Encoding" in answer


PAGE = b"<!doctype html><title>Another site</title>"
HEARD = """(url) => new Promise((done) => {
  const live = new WebSocket(url);
  live.onopen = () => { live.send('{"type": "text", "text": "Hello."}'); live.send('{"type": "end"}'); };
  live.onmessage = (message) => { if (message.data instanceof Blob) done("heard"); };
  live.onclose = () => done("closed");
})"""
SENT = """async ([url, how]) => {
  try { return (await fetch(url, how)).status; } catch { return "refused"; }
}"""


@pytest.fixture
def another_site():
    """The port of a site in this process."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site.server_port
        site.shutdown()


@pytest.mark.browser
@pytest.mark.slow
def test_a_browser_s_page_of_another_site_neither_speaks_nor_hears(another_site):
    from playwright.sync_api import sync_playwright

    evil = f"{EVIL}:{another_site}"
    post = {"method": "POST", "body": json.dumps(speech())}
    cors = {**post, "headers": JSON}
    with ExitStack() as stack:
        server, named = stack.enter_context(running()), stack.enter_context(running(origins=evil))
        chromium = stack.enter_context(sync_playwright()).chromium
        browser = chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"],
        )
        stack.callback(browser.close)
        page = browser.new_page()
        page.goto(evil)
        for one, heard, simple, asked in ((server, "closed", 0, "refused"), (named, "heard", 0, 200)):
            assert page.evaluate(HEARD, f"{one.url.replace('http', 'ws')}{SPEECH}/live") == heard
            count = one.service.metrics.characters._value.get
            wait_for(lambda count=count, heard=heard: (count() > 0) == (heard == "heard"), "the count")
            before = count()
            # The status of an answer to what was sent without asking is hidden: 0.
            assert page.evaluate(SENT, [one.url + SPEECH, {**post, "mode": "no-cors"}]) == simple
            assert one.service.metrics.characters._value.get() == before
            assert page.evaluate(SENT, [one.url + SPEECH, cors]) == asked
        # The name of the page, resolved to this machine: one site with the server for the browser.
        rebound = f"{EVIL}:{server.url.rpartition(':')[2]}"
        assert page.goto(rebound).status == 421
        assert page.evaluate(SENT, [f"{rebound}/v1/audio/voices", {}]) == 421
        assert page.evaluate(SENT, [rebound + SPEECH, cors]) == 421
        assert page.goto(server.url).status == 200
        assert page.evaluate(SENT, [server.url + SPEECH, cors]) == 200
