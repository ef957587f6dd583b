"""The WebSocket that is given text as it is written."""

import asyncio
import json
from contextlib import aclosing

import pytest
from uvicorn import Config
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from melforge.common.serve.answer import each
from melforge.common.serve.protocols.live import GrowingText, in_turn
from tests.serve.conftest import PATIENCE, running, samples_of, wait_for

pytestmark = pytest.mark.serve
TEXT = "The first sentence is here. The second one follows. And a third"
OWN = {"type": "session", "model": "fastpitch-hifigan", "voice": "hazel", "sample_rate": 22050}


@pytest.fixture
def connect():
    """Opens WebSockets of a server."""
    from websockets.sync.client import connect

    return lambda server, **how: connect(
        server.url.replace("http", "ws") + "/v1/audio/speech/live", max_size=None, **how
    )


def send(socket, *messages):
    for message in messages:
        socket.send(json.dumps(message))


def tokens(text, size=5):
    return [{"type": "text", "text": text[start : start + size]} for start in range(0, len(text), size)]


def receive(socket, until):
    """The messages up to one of this type; audio in the place of bytes."""
    found = []
    while not found or found[-1].get("type") != until:
        message = socket.recv(60)
        found.append({"audio": message} if isinstance(message, bytes) else json.loads(message))
    return found


def sentences_of(messages):
    """Text and audio of each sentence."""
    found = []
    for message in messages:
        if message.get("type") == "sentence":
            found.append([message["text"], b""])
        elif "audio" in message:
            found[-1][1] += message["audio"]
    return found


def test_ssml_is_one_piece():
    text = GrowingText(1000)
    assert text.add("<speak>One. Two. ") == []
    assert text.add("Three.</speak> Four. ") == ["<speak>One. Two. Three.</speak>"]
    assert text.add("Five ") == ["Four."]
    short = GrowingText(20)
    assert short.add("<speak>one two three four") == ["<speak>one two"]


def test_a_text_is_cut_where_a_sentence_is_over_for_certain():
    text = GrowingText(1000)
    assert text.add("Dr. Smith said: yes") == []
    assert text.add(". Th") == []  # "Th" may become a word that decides about the full stop
    assert text.add("en he left. ") == ["Dr. Smith said: yes."]
    assert text.add("The U.S. Navy. It") == ["Then he left."]
    assert text.rest() == ["The U.S. Navy. It"] and text.rest() == []


def test_a_text_without_an_end_is_cut_at_a_blank():
    text = GrowingText(20)
    assert text.add("one two three four five six") == ["one two three four"]
    pieces = text.add("x" * 50) + text.rest()
    assert pieces[0] == "five" and "".join(pieces) == "fivesix" + "x" * 50
    assert max(map(len, pieces)) <= 20


def test_tokens_are_spoken_sentence_by_sentence(server, direct, connect):
    with connect(server) as socket:
        send(socket, OWN, *tokens(TEXT), {"type": "end"})
        messages = receive(socket, "done")
    spoken = sentences_of(messages)
    assert [text for text, _ in spoken] == [
        "The first sentence is here.",
        "The second one follows.",
        "And a third",
    ]
    for text, audio in spoken:
        assert len(samples_of(audio)) == len(direct.speak(text).samples)
    assert sum(message.get("type") == "sentence.done" for message in messages) == 3
    wait_for(lambda: not server.service.running)


def test_a_sentence_is_spoken_before_the_text_ends(server, connect):
    with connect(server) as socket:
        send(socket, OWN | {"timestamps": True, "alignment": True}, *tokens("One sentence. Another"))
        send(socket, {"type": "text", "text": " one"})
        messages = receive(socket, "sentence.done")
        assert [word["text"].lower() for m in messages for word in m.get("words", ())] == ["one", "sentence"]
        (symbols,) = [message["symbols"] for message in messages if message.get("type") == "alignment"]
        assert "".join(symbols).startswith(" WAH1N")
        send(socket, {"type": "flush"})
        assert sentences_of(receive(socket, "sentence.done"))[0][0] == "Another one"


def test_sentences_that_take_much_memory_are_made_one_after_the_other(server, connect):
    scheduler, most = server.service.scheduler, 0
    wait_for(lambda: not scheduler.jobs)
    with connect(server) as socket:
        send(socket, {**OWN, "sample_rate": 192000, "speed": 0.25}, *tokens(TEXT, 100), {"type": "end"})
        while (message := socket.recv(60)) != '{"type": "done"}':
            if isinstance(message, bytes):
                most = max(most, scheduler.jobs)
    assert most == 1


@pytest.mark.parametrize("before", [[], [{"type": "end"}]])
def test_cancelling_is_silence_and_what_follows_is_spoken(server, connect, before):
    with connect(server) as socket:
        send(socket, OWN, {"type": "text", "text": "A long one, and so on. " * 40})
        receive(socket, "sentence")
        send(socket, *before, {"type": "cancel"})
        receive(socket, "cancelled")
        assert server.service.running == 0
        assert server.service.scheduler.jobs <= 3  # within the steps of two workers and a starter
        send(socket, {"type": "text", "text": "Something else."}, {"type": "end"})
        assert [text for text, _ in sentences_of(receive(socket, "done"))] == ["Something else."]


def test_errors_leave_the_socket_open(server, connect):
    with connect(server) as socket:
        for message, param in (
            ("[" * 10_000, None),
            ("3", None),
            ('{"type": "shout"}', "type"),
            ('{"type": "text"}', "text"),
            ('{"type": "session", "speed": 9}', "speed"),
            ('{"type": "session", "voice": "nobody"}', "voice"),
            ('{"type": "session", "model": "tts-7"}', "model"),
            ('{"type": "session", "sigma": 0.5}', "sigma"),
            ('{"type": "session", "response_format": "opus", "sample_rate": 22050}', "sample_rate"),
            (json.dumps({"type": "text", "text": "A. " * 1400}), "text"),
            (b'{"type": "text", "text": "One."}', None),
        ):
            socket.send(message)
            (answer,) = receive(socket, "error")
            assert answer["error"]["param"] == param and answer["error"]["type"] == "invalid_request_error"
        send(
            socket, {**OWN, "speed": None, "volume": None}, {"type": "text", "text": "..."}, {"type": "flush"}
        )
        answer = receive(socket, "error")[-1]
        assert answer["number"] == 1 and answer["error"]["param"] == "input"
        send(socket, {"type": "text", "text": "Two."}, {"type": "end"})
        assert len(sentences_of(receive(socket, "done"))) == 1


def test_who_is_silent_and_hears_nothing_is_not_kept(connect):
    with running(seconds=0.1) as server, connect(server) as socket:
        (answer,) = receive(socket, "error")
        assert "no message came in 0.1 seconds" in answer["error"]["message"]
        with pytest.raises(ConnectionClosedOK):
            socket.recv(PATIENCE)


def test_sentences_wait_where_others_take_all_the_room(connect):
    spoken = ["One is it.", "Two is it.", "Three is it. Four"]
    with running(queue=1) as server, connect(server) as one, connect(server) as other:
        for socket in (one, other):
            send(
                socket,
                OWN,
                {"type": "text", "text": "One is it. Two is it. Three is it. Four"},
                {"type": "end"},
            )
        for socket in (one, other):
            messages = receive(socket, "done")
            assert [text for text, _ in sentences_of(messages)] == spoken
            assert not any(message.get("type") == "error" for message in messages)


def test_text_is_split_beside_the_event_loop(server, connect, monkeypatch):
    loops, add = [], GrowingText.add

    def noting(self, text):
        loops.append(asyncio._get_running_loop())
        return add(self, text)

    monkeypatch.setattr(GrowingText, "add", noting)
    with connect(server) as socket:
        send(socket, OWN, {"type": "text", "text": "One. Two"}, {"type": "end"})
        receive(socket, "done")
    assert loops == [None]


def test_who_leaves_ends_the_work(server, connect):
    with connect(server) as socket:
        send(socket, OWN, {"type": "text", "text": "A long one, and so on. " * 40})
        receive(socket, "sentence")
    wait_for(lambda: not server.service.running and not server.service.scheduler.jobs)


def test_what_is_begun_is_released_though_its_speaker_is_cancelled_twice():
    released = []

    async def begin(sentence):
        sentence.admission.callback(released.append, sentence.text)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()  # its end takes time

    async def say():
        async with aclosing(in_turn(each(["One."]), begin, [])) as sentences:
            async for _ in sentences:
                pass

    async def run():
        saying = asyncio.create_task(say())
        for _ in range(2):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            saying.cancel()
        await asyncio.wait({saying})

    asyncio.run(run())
    assert released == ["One."]


@pytest.fixture
def pings(monkeypatch):
    def often(*given, **how):
        return Config(*given, **{"ws_ping_interval": 0.02, "ws_ping_timeout": 0.02, **how})

    monkeypatch.setattr("uvicorn.Config", often)


@pytest.mark.usefixtures("pings")
def test_who_reads_nothing_at_all_is_not_kept(connect):
    with running(seconds=0.5) as server, connect(server, max_queue=1, ping_interval=None) as socket:
        send(socket, {**OWN, "sample_rate": 192000}, {"type": "text", "text": TEXT * 15}, {"type": "end"})
        receive(socket, "sentence")
        wait_for(lambda: not server.service.running, "the end")
        with pytest.raises(ConnectionClosedError):
            receive(socket, "done")


@pytest.mark.usefixtures("pings")
def test_who_does_not_read_for_longer_than_pings_wait_hears_all(connect, caplog):
    """The audio in front of a ping may last longer than pings are usually waited for."""
    seen = [0]

    def paused():
        jobs = server.service.scheduler._jobs
        seen[0] = seen[0] + 1 if any(job.parked for job in set(jobs)) else 0
        return seen[0] > 20 or not server.service.running

    with running(ahead=1.0) as server, connect(server, max_queue=1, ping_interval=None) as socket:
        send(socket, {**OWN, "sample_rate": 192000}, {"type": "text", "text": TEXT * 15}, {"type": "end"})
        heard = receive(socket, "sentence")
        wait_for(paused, "the pause")
        heard += receive(socket, "done")
    assert [one.get("type") for one in heard].count("sentence.done") == len(sentences_of(heard)) > 10
    assert "fault" not in caplog.messages
