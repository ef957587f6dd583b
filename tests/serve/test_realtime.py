"""OpenAI's realtime events, by its own client, whose types every event has to fit."""

import asyncio
import base64
import hashlib
import io
import json
import math
import re
import socket
import time

import numpy as np
import pytest
import soundfile
from pydantic import TypeAdapter
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from melforge.common.audio.pcm import wav_header
from melforge.common.audio.wire import encode
from melforge.common.serve.errors import ApiError
from melforge.common.serve.tokens import Token, read_token, write_token
from tests.serve.conftest import PATIENCE, SPEECH, running, speech, wait_for
from tests.serve.test_api import OtherStream

pytestmark = [pytest.mark.serve, pytest.mark.openai]
ONE, TWO = "The first one is here. It has two sentences.", "And a second one."
LONG = "A long one, and so on. " * 60
TAIL = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
]
HEAD = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
]
CREATED = ["conversation.item.added", "conversation.item.done"]
CREATE, CANCEL = {"type": "response.create"}, {"type": "response.cancel"}
HEARD = "conversation.item.input_audio_transcription"
SHARED = {"MELFORGE_TOKEN_SECRET": "a secret of several servers, long enough"}


@pytest.fixture(scope="module")
def server():
    with running() as one:
        yield one


@pytest.fixture(scope="module")
def fits():
    """An event as the client's type of its name; its own parser takes any type for another."""
    from openai.types.realtime import RealtimeServerEvent

    kinds = TypeAdapter(RealtimeServerEvent)

    def checked(data):
        event = kinds.validate_python(json.loads(data))
        assert event.type == json.loads(data)["type"] and event.event_id.startswith("event_")
        return event

    return checked


def client_of(server, key="none", kind="OpenAI"):
    import openai

    return getattr(openai, kind)(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


@pytest.fixture
def connected(server, fits):
    """Opens sessions of the client's, which have said that they are there."""

    def connect(which=server, key="none", query=None, **how):
        manager = client_of(which, key).realtime.connect(extra_query=query or {}, **how)
        connection = opened.append(manager.enter()) or opened[-1]
        assert fits(connection.recv_bytes()).type == "session.created"
        return connection

    opened = []
    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def talk(fits):
    """Sends events, and gives those that come up to one of this type."""

    def talk(connection, *events, until="response.done"):
        for event in events:
            connection.send(event)
        found = []
        while not found or found[-1].type != until:
            found.append(fits(connection.recv_bytes()))
        return found

    return talk


def item(text, role="user", **fields):
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": role, "content": content, **fields},
    }


def update(output=None, heard=None, **session):
    audio = {"output": output or {}, "input": heard or {}}
    return {"type": "session.update", "session": {"type": "realtime", "audio": audio, **session}}


def types(events):
    """Of events, but for deltas."""
    return [event.type for event in events if not event.type.endswith("delta")]


def audio_of(events):
    return b"".join(base64.b64decode(e.delta) for e in events if e.type.endswith("audio.delta"))


def transcript_of(events):
    return "".join(event.delta for event in events if event.type.endswith("transcript.delta"))


def spoken(server, text, **fields):
    """What the HTTP route answers."""
    fields = {"response_format": "pcm", "model": "tts-1", "voice": "alloy"} | fields
    return server.speak(text, **fields).content


# Speaking


def test_a_response_speaks_the_items_as_http_does(server, connected, talk):
    events = talk(connected(model="gpt-realtime"), item(ONE), item(TWO, "assistant"), CREATE)
    assert types(events) == CREATED * 2 + HEAD + TAIL
    assert audio_of(events) == spoken(server, ONE) + spoken(server, TWO)
    assert transcript_of(events) == events[-5].transcript == f"{ONE} {TWO}"
    response = events[-1].response
    assert response.status == "completed" and response.id == events[4].response.id
    assert response.output[0].content[0].transcript == f"{ONE} {TWO}"
    assert response.usage.input_tokens == len(ONE + TWO)
    assert response.usage.output_tokens == round(len(audio_of(events)) / 48000)
    deltas = [event for event in events if event.type == "response.output_audio.delta"]
    assert {(e.response_id, e.item_id, e.content_index) for e in deltas} == {
        (response.id, response.output[0].id, 0)
    }
    wait_for(lambda: not server.service.running)


@pytest.mark.parametrize(
    ("output", "asked"),
    [
        ({"voice": {"id": "hazel"}, "speed": 1.5, "pitch_shift": 30.0}, {"speed": 1.5, "pitch_shift": 30.0}),
        ({"format": {"type": "audio/pcm", "rate": 22050}}, {"sample_rate": 22050}),
        ({"format": {"type": "audio/pcmu"}}, {"sample_rate": 8000, "response_format": "pcmu"}),
        ({"format": {"type": "audio/pcma"}}, {"sample_rate": 8000, "response_format": "pcma"}),
    ],
)
def test_a_session_has_a_voice_a_speed_and_a_format(server, connected, output, asked, talk):
    connection = connected(model="gpt-realtime")
    connection.send(update(output))
    message = json.loads(connection.recv_bytes())  # rates are not in the client's types
    assert message["type"] == "session.updated"
    shown = message["session"]["audio"]["output"]
    assert {**shown, **output, "format": shown["format"] | output.get("format", {})} == shown
    connection.send(item(TWO))
    connection.send(CREATE)
    found = []
    while not found or found[-1]["type"] != "response.done":
        found.append(json.loads(connection.recv_bytes()))
    audio = b"".join(
        base64.b64decode(e["delta"]) for e in found if e["type"] == "response.output_audio.delta"
    )
    assert audio == spoken(server, TWO, **asked)
    rate = asked.get("sample_rate", 24000) * (
        1 if output.get("format", {}).get("type", "pcm")[-1] in "ua" else 2
    )
    assert found[-1]["response"]["usage"]["output_tokens"] == round(len(audio) / rate)


@pytest.mark.parametrize(
    ("text", "transcript"),
    [
        ("<speak>One. <break time='500ms'/> <prosody rate='80%'>Two</prosody>.</speak>", "One. Two."),
        ("One. [pause:0.5s] Two.", "One. Two."),
    ],
)
def test_ssml_and_marks_are_spoken(server, connected, talk, text, transcript):
    events = talk(connected(model="gpt-realtime"), item(text), CREATE)
    assert audio_of(events) == spoken(server, text) and transcript_of(events) == transcript


def test_what_a_response_speaks(server, connected, talk):
    connection = connected(model="gpt-realtime")

    def said(**response):
        events = talk(connection, {"type": "response.create", "response": response})
        assert audio_of(events) == b"".join(spoken(server, text) for text in transcript_of(events).split("|"))
        return transcript_of(events), events[-1].response

    talk(connection, item("Not said.", "system"), item("Two.", id="two"), until="conversation.item.added")
    first = item("One.") | {"previous_item_id": "root"}
    talk(connection, first, item("Three.", id="three"), until="conversation.item.done")
    talk(
        connection,
        {"type": "conversation.item.delete", "item_id": "three"},
        until="conversation.item.deleted",
    )
    aside = item("Aside.")["item"]
    assert said(input=[aside], conversation="none", metadata={"a": "b"})[0] == "Aside."
    text, response = said(instructions="Instructed.", metadata={"a": "b"})
    assert text == "Instructed." and response.metadata == {"a": "b"}
    events = talk(connection, CREATE)
    assert transcript_of(events) == "One. Two."  # which no response has spoken yet
    (error,) = talk(connection, CREATE, until="error")
    assert error.error.code == "nothing_to_speak" and "no language model" in error.error.message
    events = talk(
        connection,
        {"type": "conversation.item.retrieve", "item_id": "two"},
        until="conversation.item.retrieved",
    )
    assert events[-1].item.content[0].text == "Two."


def test_a_response_outside_the_conversation_is_no_item_of_it(connected, talk):
    response = {"conversation": "none", "instructions": "Aside."}
    events = talk(connected(model="gpt-realtime"), {"type": "response.create", "response": response})
    assert types(events) == [kind for kind in HEAD + TAIL if not kind.startswith("conversation")]


@pytest.mark.parametrize("wait", [True, False])
def test_cancelling_stops_the_work_and_the_next_response_is_whole(server, connected, talk, wait):
    connection = connected(model="gpt-realtime")
    if wait:
        talk(connection, item(LONG), CREATE, until="response.output_audio.delta")
        events = talk(connection, CANCEL)
    else:
        events = talk(connection, item(LONG), CREATE, CANCEL)
        assert types(events) == CREATED + HEAD + TAIL
    assert types(events)[-6:] == TAIL
    response = events[-1].response
    assert (response.status, response.status_details.reason) == ("cancelled", "client_cancelled")
    assert response.output[0].status == "incomplete"
    assert server.service.running == 0
    wait_for(lambda: not server.service.scheduler.jobs)
    events = talk(connection, item(TWO), CREATE)
    assert audio_of(events) == spoken(server, TWO)


def test_one_response_is_spoken_at_a_time(connected, talk):
    connection = connected(model="gpt-realtime")
    created, *_ = talk(connection, item(LONG), CREATE, until="response.created")[2:]
    (error,) = [e for e in talk(connection, CREATE, until="error") if e.type == "error"]
    assert error.error.code == "conversation_already_has_active_response"
    other = {**CANCEL, "response_id": "resp_other"}
    (error,) = [e for e in talk(connection, other, until="error") if e.type == "error"]
    assert error.error.code == "response_cancel_not_active"
    talk(connection, {**CANCEL, "response_id": created.response.id})
    (error,) = talk(connection, CANCEL, until="error")
    assert error.error.code == "response_cancel_not_active"


def test_an_interrupted_item_is_cut_where_it_was_heard(connected, talk):
    connection = connected(model="gpt-realtime")
    events = talk(connection, item(LONG), CREATE, until="response.output_audio.delta")
    cut = {"type": "conversation.item.truncate", "item_id": events[-1].item_id, "content_index": 0}
    for event in (CANCEL, {**cut, "audio_end_ms": 40}):
        connection.send(event)
    events, wanted = [], {"response.done", "conversation.item.truncated"}
    while wanted:
        events += talk(connection, until=next(iter(wanted)))
        wanted -= {event.type for event in events}
    asked = {"type": "conversation.item.retrieve", "item_id": cut["item_id"]}
    (found,) = talk(connection, asked, until="conversation.item.retrieved")
    assert found.item.content[0].transcript is None and found.item.status == "incomplete"
    (error,) = talk(connection, {**cut, "audio_end_ms": 41}, until="error")
    assert error.error.param == "audio_end_ms" and "40 ms" in error.error.message
    user = talk(connection, item("One."), until="conversation.item.done")[-1].item.id
    (error,) = talk(connection, {**cut, "item_id": user, "audio_end_ms": 0}, until="error")
    assert "no audio" in error.error.message


def test_a_text_that_cannot_be_spoken_fails_its_response(server, connected, talk):
    connection = connected(model="gpt-realtime")
    events = talk(connection, item("One."), item("..."), item("Two."), CREATE)
    response = events[-1].response
    assert response.status == "failed" and response.status_details.error.code == "invalid_value"
    assert audio_of(events) == spoken(server, "One.") and types(events)[-6:] == TAIL
    assert audio_of(talk(connection, item("Two."), CREATE)) == spoken(server, "Two.")


def test_a_step_that_fails_is_said_and_the_socket_stays(server, connected, talk, monkeypatch, caplog):
    from melforge.common.synthesis.stream import Stream

    connection = connected(model="gpt-realtime")
    with monkeypatch.context() as patched:
        patched.setattr(Stream, "__next__", lambda self: 1 // 0)
        response = talk(connection, item("One."), CREATE)[-1].response
    assert response.status == "failed" and response.status_details.error.type == "server_error"
    assert any(record.message == "fault" for record in caplog.records)
    assert audio_of(talk(connection, item("Two."), CREATE)) == spoken(server, "Two.")


# Hearing


@pytest.mark.parametrize(
    ("form", "rate", "coding"),
    [
        ("audio/pcm", 24000, "PCM_16"),
        ("audio/pcm", 16000, "PCM_16"),
        ("audio/pcmu", 8000, "ULAW"),
        ("audio/pcma", 8000, "ALAW"),
    ],
)
@pytest.mark.parametrize("query", [{"intent": "transcription"}, {"model": "gpt-realtime"}])
def test_a_recording_is_transcribed_as_http_does(server, connected, talk, form, rate, coding, query):
    data = spoken(server, ONE, response_format=form.removeprefix("audio/"), sample_rate=rate)
    connection = connected(query=query)
    heard = {
        "format": {"type": form, "rate": rate},
        "transcription": {"model": "whisper-1", "language": "en"},
    }
    session = update(heard=heard)
    if "intent" in query:
        session["session"]["type"] = "transcription"
    connection.send(session)
    message = json.loads(connection.recv_bytes())
    assert message["type"] == "session.updated"
    assert message["session"]["audio"]["input"]["turn_detection"] is None
    parts = [data[start : start + 9999] for start in range(0, len(data), 9999)]
    sent = [{"type": "input_audio_buffer.append", "audio": base64.b64encode(part).decode()} for part in parts]
    events = talk(connection, *sent, {"type": "input_audio_buffer.commit"}, until=f"{HEARD}.completed")
    assert types(events) == ["input_audio_buffer.committed", *CREATED, f"{HEARD}.completed"]
    how = {"samplerate": rate, "channels": 1, "subtype": coding, "format": "RAW"}
    samples, _ = soundfile.read(io.BytesIO(data), dtype="int16", **how)
    assert events[0].item_id == events[-1].item_id
    assert events[-1].usage.seconds == math.ceil(len(samples) / rate)
    with server.client() as client:
        files = {"file": ("a.wav", wav_header(rate, 2 * len(samples)) + samples.tobytes())}
        answer = client.post("/v1/audio/transcriptions", files=files, data={"model": "whisper-1"}).json()
    assert events[-1].transcript == answer["text"] and "two sentences" in answer["text"]
    asked = {"type": "conversation.item.retrieve", "item_id": events[-1].item_id}
    (found,) = talk(connection, asked, until="conversation.item.retrieved")
    assert found.item.content[0].transcript == answer["text"]
    wait_for(lambda: not server.service.running and not server.service.hearing.running)


def append(seconds):
    audio = base64.b64encode(bytes(2 * round(24000 * seconds))).decode()
    return {"type": "input_audio_buffer.append", "audio": audio}


def test_a_buffer_has_a_limit_and_is_cleared(connected, talk):
    commit, clear = {"type": "input_audio_buffer.commit"}, {"type": "input_audio_buffer.clear"}
    with running(recording_bytes=96000, recordings=1, recording_seconds=1.0) as server:
        connection = connected(server, model="gpt-realtime")
        (error,) = talk(connection, append(1.2), append(1.0), until="error")
        assert error.error.code == "request_too_large" and error.error.param == "audio"
        talk(connection, clear, until="input_audio_buffer.cleared")
        (error,) = talk(connection, append(0.05), commit, until="error")
        assert error.error.code == "input_audio_buffer_commit_empty"
        events = talk(connection, append(0.5), commit, until="conversation.item.done")
        assert events[-1].item.content[0].type == "input_audio"  # and nobody asked for its transcript
        talk(connection, update(heard={"transcription": {}}), until="session.updated")
        (failed,) = talk(connection, append(1.5), commit, until=f"{HEARD}.failed")[-1:]
        assert "longer than 1 seconds" in failed.error.message
        wait_for(lambda: not server.service.hearing.running)
        server.service.hearing.running = 1
        (failed,) = talk(connection, append(0.2), commit, until=f"{HEARD}.failed")[-1:]
        assert failed.error.code == "rate_limit_exceeded" and server.service.running == 0
        server.service.hearing.running = 0
        events = talk(connection, append(0.2), commit, until=f"{HEARD}.completed")
        assert events[-1].transcript == ""  # silence


# What is wrong

WRONG = [
    ("3", None, "invalid_json"),
    ("[" * 10_000, None, "invalid_json"),
    (b"\0", None, "invalid_json"),
    ({"type": "shout"}, "type", "invalid_value"),
    ({"type": ["session.update"]}, "type", "invalid_value"),
    ({"type": "session.update"}, "session", "invalid_type"),
    (update({"speed": 9}), "session.audio.output.speed", "invalid_value"),
    (update({"voice": "nobody"}), "session.audio.output.voice", "model_not_found"),
    (update({"sigma": 0.5}), "session.audio.output.sigma", "unsupported_value"),
    (update({"lexicon": {"a": 3}}), "session.audio.output.lexicon", "invalid_value"),
    (update({"format": {"type": "audio/mp3"}}), "session.audio.output.format.type", "invalid_value"),
    (update({"format": {"rate": 1}}), "session.audio.output.format.rate", "invalid_value"),
    (update(model="tts-7"), "session.model", "model_not_found"),
    (update(output_modalities=["text"]), "session.output_modalities", "invalid_value"),
    (
        update(heard={"turn_detection": {"type": "server_vad"}}),
        "session.audio.input.turn_detection",
        "invalid_value",
    ),
    (
        update(heard={"transcription": {"language": "fr"}}),
        "session.audio.input.transcription.language",
        "unsupported_value",
    ),
    (
        update(heard={"transcription": {"model": "x"}}),
        "session.audio.input.transcription.model",
        "model_not_found",
    ),
    (
        {"type": "conversation.item.create", "item": {"role": "user"}},
        "item.content",
        "missing_required_parameter",
    ),
    (item("One.", "tool"), "item.role", "invalid_value"),
    (item("\ud800"), None, "invalid_json"),
    (item("a" * 5000), "item.content", "string_above_max_length"),
    (item(" " * 5000, "system"), "item.content", "string_above_max_length"),
    ({**item("One."), "previous_item_id": "nothing"}, "previous_item_id", "item_not_found"),
    ({"type": "conversation.item.retrieve"}, "item_id", "item_not_found"),
    ({"type": "conversation.item.delete", "item_id": {}}, "item_id", "item_not_found"),
    ({"type": "conversation.item.truncate", "item_id": "x"}, "audio_end_ms", "missing_required_parameter"),
    (
        {**CREATE, "response": {"input": [{"role": "user"}]}},
        "response.input.0.content",
        "missing_required_parameter",
    ),
    (
        {**CREATE, "response": {"instructions": "a" * 5000}},
        "response.instructions",
        "string_above_max_length",
    ),
    (
        {**CREATE, "response": {"audio": {"output": {"voice": 3}}}},
        "response.audio.output.voice",
        "invalid_value",
    ),
    (
        {**CREATE, "response": {"metadata": {str(n): "" for n in range(17)}}},
        "response.metadata",
        "invalid_value",
    ),
    ({**CREATE, "response": 3}, "response", "invalid_type"),
    (CREATE, "response", "nothing_to_speak"),
    (CANCEL, None, "response_cancel_not_active"),
    ({"type": "input_audio_buffer.append", "audio": "???"}, "audio", "invalid_value"),
    ({"type": "input_audio_buffer.append"}, "audio", "invalid_value"),
    ({"type": "input_audio_buffer.commit"}, None, "input_audio_buffer_commit_empty"),
]


def test_a_wrong_event_is_an_error_and_the_socket_stays_open(server, fits):
    with connect(server.url.replace("http", "ws") + "/v1/realtime") as socket:
        fits(socket.recv())
        for number, (event, param, code) in enumerate(WRONG):
            event = json.dumps({**event, "event_id": f"mine {number}"}) if isinstance(event, dict) else event
            socket.send(event)
            found = fits(socket.recv()).error
            assert (found.param, found.code, found.type) == (param, code, "invalid_request_error"), event
            assert found.event_id in (None, f"mine {number}")
            assert code == "invalid_json" or found.event_id
        socket.send(json.dumps(item("One.")))
        assert fits(socket.recv()).previous_item_id is None  # nothing of all that was kept


def test_items_wait_up_to_a_limit_and_old_ones_are_forgotten(connected, talk):
    from melforge.common.serve.protocols.realtime_items import MOST_ITEMS, MOST_WAITING

    connection = connected(model="gpt-realtime")
    for _ in range(MOST_WAITING):
        talk(connection, item("One."), until="conversation.item.done")
    (error,) = talk(connection, item("One."), until="error")
    assert "256 items wait" in error.error.message
    talk(connection, CREATE, CANCEL)
    first = talk(connection, item("Silent.", "system"), until="conversation.item.done")[-1].item.id
    for _ in range(MOST_ITEMS):
        talk(connection, item("Silent.", "system"), until="conversation.item.done")
    (error,) = talk(connection, {"type": "conversation.item.retrieve", "item_id": first}, until="error")
    assert error.error.code == "item_not_found"


def test_a_conversation_has_so_many_characters():
    from melforge.common.serve.protocols.realtime_items import MOST_CHARACTERS, Conversation, Item

    def said(name, waits):
        content = [{"type": "input_text", "text": "a" * (MOST_CHARACTERS // 4)}]
        return Item(name, "user", content, ["a"] if waits else [])

    conversation = Conversation()
    for name in range(6):
        conversation.add(said(name, waits=False))
    assert [one.id for one in conversation.items] == [2, 3, 4, 5]
    for name in range(6, 10):
        conversation.add(said(name, waits=True), conversation.place_for(None, None))
    assert [one.id for one in conversation.items] == [6, 7, 8, 9]
    with pytest.raises(ApiError, match=f"4 items wait to be spoken, of {MOST_CHARACTERS} characters"):
        conversation.place_for(None, None)


def test_recordings_that_come_have_a_limit_together(connected, talk):
    with running(recording_bytes=96000, recordings=2) as server:
        first, second, third = (connected(server, model="gpt-realtime") for _ in range(3))
        marked = {"type": "conversation.item.retrieve", "item_id": "x"}  # answered behind what came before
        for one in (first, second):
            (error,) = talk(one, append(1.9), marked, until="error")
            assert error.error.code == "item_not_found"
        (error,) = talk(third, append(1.9), until="error")
        assert error.error.code == "rate_limit_exceeded"
        talk(first, {"type": "input_audio_buffer.clear"}, until="input_audio_buffer.cleared")
        (error,) = talk(third, append(1.9), marked, until="error")
        assert error.error.code == "item_not_found"


def test_a_server_without_that_model_or_an_ear_says_so_before_it_opens(server):
    for query, code in (
        ("model=tts-7", b"model_not_found"),
        ("intent=transcription&model=x", b"model_not_found"),
    ):
        with pytest.raises(InvalidStatus) as refused:
            connect(server.url.replace("http", "ws") + f"/v1/realtime?{query}")
        assert refused.value.response.status_code == 400 and code in refused.value.response.body


# Who leaves, and who does not read


def test_who_leaves_ends_the_work_and_no_task_is_left(server, connected, talk, monkeypatch):
    from melforge.common.serve.protocols.realtime import RealtimeSession

    loops, run = [], RealtimeSession.run

    def noting(self):
        loops.append(asyncio.get_running_loop())
        return run(self)

    monkeypatch.setattr(RealtimeSession, "run", noting)
    connection = connected(model="gpt-realtime")
    talk(connection, update(heard={"transcription": {}}), until="session.updated")
    talk(connection, append(4), {"type": "input_audio_buffer.commit"}, until="conversation.item.done")
    talk(connection, item(LONG), CREATE, until="response.output_audio.delta")
    connection.close()

    def tasks():
        return [str(task.get_coro()) for task in asyncio.all_tasks(loops[0])]

    service = server.service
    wait_for(lambda: not (service.running or service.scheduler.jobs or service.hearing.running))
    wait_for(
        lambda: (
            not {"RealtimeSession", "in_turn", "WebSocketsSansIOProtocol"}
            & {*re.split(r"\W", " ".join(tasks()))}
        )
    )


def test_who_does_not_read_is_waited_for_and_loses_nothing(monkeypatch):
    second = (np.random.default_rng(0).standard_normal(22050) * 0.1).astype(np.float32)

    def noise(tts, text, controls, wanted, sizes):
        stream = OtherStream(second for _ in wanted.input)
        stream.__dict__ |= {"utterances": (), "durations": ()}
        return stream

    monkeypatch.setattr("melforge.common.serve.service.make_stream", noise)
    with running(ahead=1.0) as server:
        port, small = int(server.url.rpartition(":")[2]), socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        small.connect(("127.0.0.1", port))
        with connect(f"ws://127.0.0.1:{port}/v1/realtime", sock=small, max_queue=1, max_size=None) as slow:
            output = {"format": {"type": "audio/pcm", "rate": 192000}}
            for event in (update(output), item("a" * 30), CREATE):
                slow.send(json.dumps(event))
            jobs = server.service.scheduler._jobs
            wait_for(lambda: any(job.parked for job in set(jobs)), "a job that waits for its listener")
            events = []
            while not events or events[-1]["type"] != "response.done":
                events.append(json.loads(slow.recv()))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_audio.delta"]
    assert b"".join(map(base64.b64decode, deltas)) == encode(np.tile(second, 30), "pcm", 22050, 192000)


def test_a_server_that_stops_speaks_what_it_has_begun(server, connected, talk):
    connection = connected(model="gpt-realtime")
    talk(connection, item(ONE), CREATE, until="response.output_audio.delta")
    server.service.draining = True
    try:
        assert talk(connection)[-1].response.status == "completed"
        response = talk(connection, item(TWO), CREATE)[-1].response
        assert response.status == "failed" and "about to stop" in response.status_details.error.message
    finally:
        server.service.draining = False


# The beta form


def test_the_beta_form_has_its_own_names(server):
    from openai.types.beta.realtime import RealtimeServerEvent

    kinds = TypeAdapter(RealtimeServerEvent)
    client = client_of(server).with_options(websocket_base_url=server.url.replace("http", "ws") + "/v1")
    session = {
        "voice": "hazel",
        "modalities": ["text", "audio"],
        "output_audio_format": "g711_ulaw",
        "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": None,
    }
    with client.beta.realtime.connect(model="gpt-4o-realtime-preview") as connection:
        connection.session.update(session=session)
        connection.send(item(TWO))
        connection.response.create(response={"output_audio_format": "pcm16"})
        events = []
        while not events or events[-1].type != "response.done":
            data = connection.recv_bytes()
            events.append(kinds.validate_python(json.loads(data)))
            assert events[-1].type == json.loads(data)["type"]
    renamed = [
        kind.replace("output_audio", "audio").replace("item.added", "item.created")
        for kind in ("conversation.item.added", *HEAD, *TAIL)
        if kind != "conversation.item.done"
    ]
    renamed[2] = "response.output_item.added"
    assert types(events) == ["session.created", "session.updated", *renamed]
    shown = events[1].session
    assert (shown.voice, shown.output_audio_format, shown.turn_detection) == ("hazel", "g711_ulaw", None)
    assert shown.input_audio_transcription.model == "whisper-1"
    assert events[-1].response.output[0].content[0].type == "audio"
    assert audio_of(events) == spoken(server, TWO)


def test_the_beta_form_transcribes_too(server):
    headers = {"OpenAI-Beta": "realtime=v1"}
    address = server.url.replace("http", "ws") + "/v1/realtime?intent=transcription"
    with connect(address, additional_headers=headers) as socket:
        created = json.loads(socket.recv())
        session = {
            "input_audio_format": "g711_alaw",
            "input_audio_transcription": {"model": "gpt-4o-transcribe"},
        }
        socket.send(json.dumps({"type": "transcription_session.update", "session": session}))
        updated = json.loads(socket.recv())
        for wrong in (3, {"input_audio_transcription": 3}, {"audio": 3, "voice": "x"}):
            socket.send(json.dumps({"type": "transcription_session.update", "session": wrong}))
            assert json.loads(socket.recv())["type"] == "error"
    assert [created["type"], updated["type"]] == [
        f"transcription_session.{one}" for one in ("created", "updated")
    ]
    assert {**updated["session"], **session} == {
        **updated["session"],
        "input_audio_transcription": {"model": "gpt-4o-transcribe", "language": ""},
        "input_audio_format": "g711_alaw",
    } | {"input_audio_transcription": session["input_audio_transcription"]}


# Short-lived tokens


@pytest.fixture(scope="module")
def guarded():
    with running((b"right", b"other"), environment=SHARED) as one:
        yield one


@pytest.mark.parametrize(
    ("keys", "environment", "status"),
    [
        ((b"right", b"new"), SHARED, 200),
        ((b"new", b"right"), SHARED, 401),
        ((b"right", b"other"), {}, 401),  # as after a start without the setting
        ((), {}, 401),
    ],
)
def test_servers_with_the_same_keys_and_secret_know_each_other_s_tokens(guarded, keys, environment, status):
    made = client_of(guarded, "right").realtime.client_secrets.create().value
    with running(keys, environment=environment) as another, another.client(made) as client:
        answer = client.get("/v1/audio/voices")
        assert answer.status_code == status
        if status == 401:
            assert "this token does not hold, or no longer" in answer.json()["error"]["message"]


def test_what_the_file_of_keys_holds_signs_no_token(guarded):
    digest = hashlib.sha256(b"right").digest()
    for secret in (digest, hashlib.pbkdf2_hmac("sha256", digest, b"melforge token", 100_000)):
        forged = write_token(Token("owner 1", int(time.time()) + 600, {}), secret)
        with guarded.client(forged) as client:
            assert client.get("/v1/audio/voices").status_code == 401


def test_a_key_that_looks_like_a_token_is_a_key():
    with running((b"ek_mine",)) as one, one.client("ek_mine") as client:
        assert client.get("/v1/audio/voices").status_code == 200


def test_a_token_opens_sessions_that_are_as_it_says(guarded, connected, talk, caplog):
    caplog.set_level("INFO", "melforge.serve")
    client = client_of(guarded, "right")
    session = {"type": "realtime", "audio": {"output": {"voice": "hazel", "speed": 1.5}}}
    before = int(time.time())
    made = client.realtime.client_secrets.create(
        expires_after={"anchor": "created_at", "seconds": 60}, session=session
    )
    assert made.value.startswith("ek_") and 60 <= made.expires_at - before <= 60 + PATIENCE
    assert made.session.audio.output.speed == 1.5 and made.session.object == "realtime.session"
    connection = connected(guarded, made.value, model="gpt-realtime")
    events = talk(connection, item(TWO), CREATE)
    connection.close()
    with guarded.client("right") as http:
        fields = speech(TWO, model="tts-1", speed=1.5, response_format="pcm")
        assert audio_of(events) == http.post(SPEECH, json=fields).content
        counted = 'melforge_key_requests_total{key="owner 1",status="101"} 1.0\n'
        wait_for(lambda: counted in http.get("/metrics").text, counted)
        assert (
            f'melforge_key_characters_total{{key="owner 1"}} {2 * len(TWO)}.0\n' in http.get("/metrics").text
        )
    (line,) = [one.fields for one in caplog.records if getattr(one, "fields", {}).get("status") == 101]
    assert line["key"] == "owner 1"


def offered(token, *others):
    return {"subprotocols": ["realtime", f"openai-insecure-api-key.{token}", *others]}


@pytest.mark.parametrize("path", ["/v1/realtime", f"{SPEECH}/live", "/v1/realtime/"])
def test_a_browser_offers_it_as_a_subprotocol(guarded, path):
    address = guarded.url.replace("http", "ws") + path
    made = client_of(guarded, "right").realtime.client_secrets.create().value
    for key in (made, "right"):
        with connect(address, **offered(key, "openai-beta.realtime-v1")) as socket:
            assert socket.subprotocol == "realtime"
    elsewhere = {"origin": "https://elsewhere.example", **offered(made)}
    for how, status in (
        ({}, 401),
        (offered("ek_x"), 401),
        (offered(made + "x"), 401),
        (offered(made.replace("_", "_x", 1)), 401),
        (elsewhere, 403),
    ):
        with pytest.raises(InvalidStatus) as refused:
            connect(address, **how)
        assert refused.value.response.status_code == status, how


def test_a_token_holds_for_its_time_and_with_its_key_and_for_speech_alone(guarded):
    secret_of = guarded.service.token_secret
    good = Token("owner 2", int(time.time()) + 600, {})
    text = write_token(good, secret_of("owner 2"))
    assert read_token(text, secret_of) == good
    assert read_token(text, lambda name: None) is None  # its key is gone
    assert read_token(text, lambda name: secret_of("owner 1")) is None
    late = write_token(Token("owner 2", int(time.time()), {}), secret_of("owner 2"))
    for value, route, status in (
        (text, "/v1/audio/voices", 200),
        (late, "/v1/audio/voices", 401),
        (text + "x", "/v1/audio/voices", 401),
        (text, "/metrics", 401),
        (text, "/v1/models", 401),
    ):
        with guarded.client(value) as client:
            assert client.get(route).status_code == status, route
            answer = client.post("/v1/realtime/client_secrets", json={})
            assert answer.status_code == 401  # it does not renew itself


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"expires_after": {"seconds": 9}}, "expires_after"),
        ({"expires_after": {"anchor": "now"}}, "expires_after"),
        ({"session": 3}, "session"),
        ({"session": {"audio": {"output": {"voice": "nobody"}}}}, "session.audio.output.voice"),
        ({"session": {"audio": {"output": {"lexicon": {f"w{n}": "x" * 20 for n in range(200)}}}}}, "session"),
    ],
)
def test_a_wrong_request_for_a_token_is_an_error(guarded, body, param):
    import openai

    with pytest.raises(openai.BadRequestError) as error:
        client_of(guarded, "right").realtime.client_secrets.create(extra_body=body)
    assert error.value.param == param


def test_without_keys_a_token_says_what_its_sessions_are_like(server, connected, talk):
    made = client_of(server).realtime.client_secrets.create(session=update({"speed": 2.0})["session"])
    events = talk(connected(key=made.value, model="gpt-realtime"), item(TWO), CREATE)
    assert audio_of(events) == spoken(server, TWO, speed=2.0)
