"""The ingress where replicas are lost: nothing is sent twice, nothing left out, nothing spliced.

And the proxies before it, in which nobody waits without end.
"""

import asyncio
import selectors
from contextlib import suppress

import pytest

from melforge.common.errors import InputError
from tests.conftest import lacks

pytestmark = pytest.mark.serve
if not lacks("serve"):
    from melforge.common.cluster import forward, proxies
    from melforge.common.cluster.forward import TAKEN, Asked, Forward, ReplicaLost
    from melforge.common.serve.errors import overloaded

BODY = b'{"input": "Hello there."}'
SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/v1/audio/speech",
    "query_string": b"",
    "http_version": "1.1",
    "headers": [(b"content-length", str(len(BODY)).encode()), (b"x-request-id", b"mine")],
}


class Clock(selectors.DefaultSelector):
    """Of a loop that waits for timers only: it goes on to the next at once, however busy the machine is."""

    now = 0.0

    def select(self, timeout=None):
        found = super().select(timeout and 0.0)
        self.now += 0.0 if found else timeout or 0.0
        return found


def run(task):
    def loop():
        made = asyncio.SelectorEventLoop(clock := Clock())
        made.time = lambda: clock.now
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(task)


class Replicas:
    """Each answer is a list of chunks, an error in it, a status, a sign, or a pause; `None` never ends.

    One that is None itself is of a request that no replica takes.
    """

    def __init__(self, *answers, kind=b"audio/pcm"):
        self.answers, self.asked, self.cancelled, self.kind = list(answers), [], 0, kind

    def ask(self, request):
        self.asked.append(request)
        return Answer(self, self.answers.pop(0))


class Answer:
    def __init__(self, replicas, parts):
        self.replicas, self.parts = replicas, parts

    async def __aiter__(self):
        status = 200
        started = False
        if self.parts is None:
            await asyncio.Event().wait()
        yield {"type": TAKEN}
        for part in self.parts:
            await asyncio.sleep(0)
            if isinstance(part, int):
                status = part
                continue
            if isinstance(part, float):
                await asyncio.sleep(part)
                continue
            if isinstance(part, Exception):
                raise part
            if part == TAKEN:
                yield {"type": TAKEN}
                continue
            if not started:
                started = True
                headers = [(b"content-type", self.replicas.kind), (b"x-request-id", b"mine")]
                yield {"type": "http.response.start", "status": status, "headers": headers}
                await asyncio.sleep(0.001)
            if part is None:
                await asyncio.Event().wait()
            yield {"type": "http.response.body", "body": part, "more_body": True}
        yield {"type": "http.response.body", "body": b"", "more_body": False}

    def cancel(self):
        self.replicas.cancelled += 1


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(forward, "DELAYS", (0.0,) * 4)


def answer_of(replicas, scope=SCOPE, leaves=False, most=1000):
    """The messages that the client gets."""
    sent = []

    async def ask():
        received = [{"type": "http.request", "body": BODY, "more_body": False}]

        async def receive():
            if received:
                return received.pop()
            while not (leaves and sent):
                await asyncio.sleep(0.001)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        try:
            await Forward(replicas.ask, most)(scope, receive, send)
        finally:
            replicas.sent = sent

    run(ask())
    return sent


def body_of(sent):
    return b"".join(message.get("body", b"") for message in sent)


def lost():
    return ReplicaLost("killed")


@pytest.mark.parametrize(
    "answers",
    [
        ([b"ab", b"cd", b"ef"],),
        ([lost()], [b"ab", b"cd", b"ef"]),
        ([b"ab", lost()], [b"ab", b"cd", b"ef"]),
        ([b"ab", b"c", lost()], [b"abcd", lost()], [b"a", b"bcde", b"f"]),
        ([b"ab", b"cdef", lost()], [b"abc", b"def"]),
        ([b"ab", lost()], [503, b"busy"], [b"abcdef"]),
    ],
)
def test_the_answer_goes_on_where_a_lost_replica_was(answers):
    replicas = Replicas(*answers)
    sent = answer_of(replicas)
    assert body_of(sent) == b"abcdef"
    assert [message["type"] for message in sent].count("http.response.start") == 1
    assert [message.get("more_body") for message in sent[1:]].count(False) == 1
    assert sent[0]["status"] == 200 and sent[0]["headers"] == [(b"content-type", b"audio/pcm")]
    assert replicas.asked == [replicas.asked[0]] * len(answers) and replicas.cancelled == len(answers)
    assert replicas.asked[0] == Asked("POST", "/v1/audio/speech", b"", tuple(SCOPE["headers"]), BODY, "1.1")


@pytest.mark.parametrize("other", [[b"aX", b"cd"], [b"a"], [b"abX"]])
def test_another_answer_is_not_spliced_on(other):
    replicas = Replicas([b"abc", lost()], other)
    with pytest.raises(ValueError, match="the answer cannot go on"):
        answer_of(replicas)
    assert body_of(replicas.sent) == b"abc" and replicas.sent[-1]["more_body"]


def test_without_any_replica_it_is_a_503_of_the_known_form():
    sent = answer_of(Replicas(*([lost()] for _ in range(4))))
    assert sent[0]["status"] == 503 and (b"retry-after", b"1") in sent[0]["headers"]
    assert b'"code":"overloaded"' in body_of(sent)
    with pytest.raises(ReplicaLost, match="no replica finished"):
        answer_of(Replicas([b"ab", lost()], *([lost()] for _ in range(3))))
    assert answer_of(Replicas([overloaded("all are busy")]))[0]["status"] == 503


def test_nobody_waits_for_long_for_a_replica_that_takes_the_request(monkeypatch):
    monkeypatch.setattr(forward, "TAKEN_SECONDS", 0.1)
    waiting = Replicas(None)
    sent = answer_of(waiting)
    assert sent[0]["status"] == 503 and (b"retry-after", b"1") in sent[0]["headers"]
    assert waiting.cancelled == 1
    with pytest.raises(ReplicaLost, match="no replica finished"):
        answer_of(Replicas([b"ab", lost()], None))


@pytest.mark.parametrize(
    "answers",
    [
        ([b"a", 0.25, b"b"],),
        ([b"a", None],),
        ([b"ab", lost()], [b"a", 0.15, b"b", 0.15, b"c"]),  # what is known already is nothing to hear
        ([b"ab", 0.15, lost()], [0.15, b"abc"]),
        ([b"ab", lost()], [b"a", 0.15, TAKEN, 0.15, b"bc"]),  # nor that it is made again
    ],
)
def test_an_answer_that_is_heard_breaks_off_where_it_is_silent_for_long(answers, monkeypatch):
    monkeypatch.setattr(forward, "TAKEN_SECONDS", 0.2)
    silent = Replicas(*answers)
    with pytest.raises(ReplicaLost, match="no replica finished in time"):
        answer_of(silent)
    assert body_of(silent.sent) in (b"a", b"ab") and silent.sent[-1]["more_body"]
    assert silent.cancelled == len(answers)


def test_a_replica_that_says_that_it_works_on_is_not_given_up(monkeypatch):
    monkeypatch.setattr(forward, "TAKEN_SECONDS", 0.2)
    slow = [b"a", *[0.15, TAKEN] * 4, b"b"]
    assert body_of(answer_of(Replicas(slow))) == b"ab"
    scope = {**SCOPE, "headers": [*SCOPE["headers"], forward.WANTS_TAKEN]}
    assert [message["type"] for message in answer_of(Replicas(slow), scope)].count(TAKEN) == 5


def test_a_replica_that_makes_one_sentence_for_long_says_so_meanwhile():
    async def app(scope, receive, send):
        await asyncio.sleep(2.5 * forward.SIGN_SECONDS)
        await send({"type": "http.response.body", "body": b""})

    async def types():
        request = Asked("POST", "/", b"", (), b"", "1.1")
        return [message["type"] async for message in forward.answer(app, request)]

    assert run(types()) == [TAKEN] * 3 + ["http.response.body"]


def test_work_does_not_count_as_silence_before_an_answer_or_where_it_is_read_whole(monkeypatch):
    monkeypatch.setattr(forward, "TAKEN_SECONDS", 0.2)
    assert body_of(answer_of(Replicas([0.3, b"a", b"b", b"c"]))) == b"abc"
    longer = Replicas([b"a", 0.3, b"b", lost()], [0.3, b"abc"], kind=b"application/json")
    assert body_of(answer_of(longer)) == b"abc"


def test_the_time_with_a_lost_replica_counts_where_nothing_was_heard(monkeypatch):
    monkeypatch.setattr(forward, "TAKEN_SECONDS", 0.1)
    replicas, later = Replicas([0.08, lost()], None), []

    class Watched:
        def ask(self, request):
            if replicas.asked:  # the first is lost
                asyncio.get_running_loop().call_later(0.09, later.append, "silence")
            return replicas.ask(request)

    assert answer_of(Watched())[0]["status"] == 503 and len(replicas.asked) == 2
    assert not later


@pytest.mark.parametrize(
    ("slow", "steps", "status", "swallowed"),
    [
        (0.7, ["answer"], 200, True),  # what the client takes for its request is not counted
        (0.0, ["taken", 0.8, "answer"], 200, True),  # nor is work
        (0.0, [0.4, "taken", 0.8, "answer"], 503, True),  # that began in time
        (0.0, [0.8, "taken", "answer"], 503, True),
        (0.0, [0.8, "taken", "answer"], 503, False),
        (0.0, ["taken"], 503, True),  # the ingress is lost
    ],
)
def test_a_proxy_refuses_what_nobody_takes_or_answers(slow, steps, status, swallowed, monkeypatch):
    monkeypatch.setattr(proxies, "TAKEN_SECONDS", 0.6)
    seen, sent = [], []
    parts = [
        {"type": "http.request", "body": b"a", "more_body": True},
        {"type": "http.request", "body": b"b"},
    ]

    async def receive():
        await asyncio.sleep(slow)
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    async def app(scope, receive, send):
        seen.extend(scope["headers"])
        while (await receive()).get("more_body"):
            pass
        with suppress(asyncio.CancelledError if swallowed else ReplicaLost):
            for step in steps:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                elif step == "taken":
                    await send({"type": TAKEN})
                else:
                    await send({"type": "http.response.start", "status": 200, "headers": []})
                    await send({"type": "http.response.body", "body": b"abc"})

    (added,) = proxies.middlewares()
    run(added.cls(app)({**SCOPE, "headers": [forward.WANTS_TAKEN]}, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == status and seen == [forward.WANTS_TAKEN]
    assert status == 200 or (b"retry-after", b"1") in sent[0]["headers"]


@pytest.mark.parametrize(
    ("kind", "silent", "whole"),
    [
        (b"audio/pcm", [], True),
        (b"audio/pcm", [0.6], False),
        (b"audio/pcm", [0.25, "sign", 0.25, "sign", 0.25], True),
        (b"application/json", [0.6], True),
    ],
)
def test_a_proxy_breaks_off_an_answer_that_is_silent_for_long(kind, silent, whole, monkeypatch):
    monkeypatch.setattr(proxies, "TAKEN_SECONDS", 0.3)
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"a"}

    async def send(message):
        await asyncio.sleep(0.4)  # who reads slowly
        sent.append(message)

    async def app(scope, receive, send):
        await receive()
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}
        with suppress(asyncio.CancelledError):
            await send(start)
            await send({"type": "http.response.body", "body": b"ab", "more_body": True})
            for step in silent:
                await (send({"type": TAKEN}) if step == "sign" else asyncio.sleep(step))
        await send({"type": "http.response.body", "body": b"c"})

    run(proxies.Refusing(app)(SCOPE, receive, send))
    assert body_of(sent) == (b"abc" if whole else b"ab") and sent[-1].get("more_body", False) is not whole


def test_a_proxy_that_wants_it_is_told_once_that_a_replica_has_the_request():
    scope = {**SCOPE, "headers": [*SCOPE["headers"], forward.WANTS_TAKEN]}
    sent = answer_of(Replicas([b"ab", lost()], [b"abcd"]), scope)
    assert [message["type"] for message in sent].index(TAKEN) == 0 and body_of(sent) == b"abcd"
    assert [message["type"] for message in sent].count(TAKEN) == 1


def test_who_leaves_ends_the_work():
    replicas = Replicas([b"ab", None])
    assert body_of(answer_of(replicas, leaves=True)) == b"ab"
    assert replicas.cancelled == 1


def test_a_body_that_is_too_long_reaches_no_replica():
    replicas = Replicas()
    assert answer_of(replicas, most=10)[0]["status"] == 413 and not replicas.asked


def test_a_request_gets_an_id_that_all_attempts_share():
    replicas = Replicas([lost()], [b"ab"])
    answer_of(replicas, {**SCOPE, "headers": [(b"x-request-id", b"not an id")]})
    first, second = (dict(request.headers)[b"x-request-id"] for request in replicas.asked)
    assert first == second and len(first) == 16


def test_a_replicas_part_gives_the_messages_of_the_application():
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["path"], (await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"ab", b"cd"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        seen.append((await receive())["type"])

    async def run():
        request = Asked("POST", "/v1/audio/speech", b"", (), BODY, "1.1")
        messages = forward.answer(app, request)
        got = [await anext(messages) for _ in range(4)]
        await messages.aclose()
        return got

    got = asyncio.run(run())
    assert body_of(got) == b"abcd"
    assert seen == [("/v1/audio/speech", BODY), "http.disconnect"]


def test_settings_that_cannot_be_are_sentences():
    from melforge.common.cli.serve import main

    for words, message in (
        (("--replicas", "0"), "replicas must be at least 1, not 0"),
        (("--replicas", "3", "--max-replicas", "2"), "max_replicas is 2, and there are 3 replicas"),
        (("--gpus-per-replica", "-1"), "--gpus-per-replica must be at least 0"),
        (("--replicas", "2"), "needs --ray; on one machine there is --processes"),
    ):
        with pytest.raises(InputError, match=message):
            main(words)


def test_without_ray_the_command_and_ray_s_own_tools_say_how_to_get_it(monkeypatch):
    import sys

    from melforge.common.cli.serve import application, main

    monkeypatch.setitem(sys.modules, "ray", None)
    for run in (lambda: main(["--ray"]), lambda: application([])):
        with pytest.raises(InputError, match=r"--ray needs ray: pip install -e '.\[ray\]'"):
            run()
