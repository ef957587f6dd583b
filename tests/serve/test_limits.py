"""What one request may become: the memory it takes, and how long the event loop works on it at a time."""

import asyncio
import base64
import gc
import json
import tempfile
import time
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

from tests.serve.conftest import SPEECH, own_pcm, running, speech, wait_for
from tests.serve.test_api import OtherStream, require_error

pytestmark = pytest.mark.serve
RATE = 22050
MOST_MEMORY = 60e6
MOST_WORK = 0.05  # seconds of the loop's processor, for whom all others wait
NOTHING = {"utterances": (), "starts": (), "durations": (), "alignments": (), "frame_seconds": 1.0}


@pytest.fixture
def made(monkeypatch):
    """Has texts spoken as noise of so many seconds as they have characters."""
    second = (np.random.default_rng(0).standard_normal(RATE) * 0.1).astype(np.float32)

    def noise(tts, text, controls, wanted, sizes):
        stream = OtherStream(second for _ in wanted.input)
        stream.__dict__ |= NOTHING
        return stream

    monkeypatch.setattr("melforge.common.serve.service.make_stream", noise)


def seconds(count, **fields):
    return speech("a" * count, **fields)


def body_size(server, route, body):
    """Of an answer that is read and let go."""
    with server.client() as client, client.stream("POST", route, json=body) as answer:
        assert answer.status_code == 200, answer.read()
        return sum(map(len, answer.iter_raw()))


@contextmanager
def frozen():
    """As in a server, what was there before is no garbage to look through."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def least(measure):
    """Of up to three measures of seconds: what has nothing to do with a request may take some of one."""
    found = []
    while not found or (len(found) < 3 and min(found) >= MOST_WORK):
        with frozen():
            found.append(measure())
    return min(found)


def longest_step(monkeypatch, requested):
    """Seconds of the processor that an event loop's longest step takes while something is requested."""
    work, run = [], asyncio.Handle._run

    def timed(handle):
        begun = time.thread_time()
        try:
            run(handle)
        finally:
            work.append(time.thread_time() - begun)

    def measure():
        work.clear()
        requested()
        return max(work)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        return least(measure)


WIDE = {"sample_rate": 192000}
LARGE = {
    "json of a wav": (SPEECH, seconds(60, response_format="wav", stream_format="json", **WIDE), 4 / 3),
    "json of pcm": (SPEECH, seconds(300, response_format="pcm", stream_format="json", **WIDE), 4 / 3),
    "a whole wav": (SPEECH, seconds(65, response_format="wav", stream=False, **WIDE), 1),
    "events": (SPEECH, seconds(300, response_format="pcm", stream_format="sse", **WIDE), 4 / 3),
    "a flac": (SPEECH, seconds(65, response_format="flac", **WIDE), 0),
    "a batch": (f"{SPEECH}/batch", {"items": [seconds(40, response_format="wav", **WIDE)] * 12}, 12 * 4 / 3),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_answer_takes_little_memory_and_little_of_the_loop_at_a_time(server, made, monkeypatch, name):
    route, body, share = LARGE[name]
    small = {**body, "input": "aa"} if "input" in body else {"items": body["items"][:1]}
    body_size(server, route, small)  # what is imported and made at first is not the request's
    with server.client() as client:
        assert client.get("/health").status_code == 200
    audio = 2 * 192000 * len(body.get("input") or body["items"][0]["input"])

    def requested():
        tracemalloc.start()
        try:
            size = body_size(server, route, body)
            with server.client() as client:
                assert client.get("/health").status_code == 200
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert size >= share * audio and most < MOST_MEMORY

    assert longest_step(monkeypatch, requested) < MOST_WORK


def test_a_socket_s_large_messages_are_sent_in_pieces(server, made, monkeypatch):
    from websockets.sync.client import connect

    url = f"{server.url.replace('http', 'ws', 1)}{SPEECH}/live"
    session = {"type": "session", **own_pcm(), **WIDE}
    session.pop("input")

    def spoken(seconds):
        size = 0
        with connect(url, max_size=None) as socket:
            for message in (session, {"type": "text", "text": f"{'a' * seconds}."}, {"type": "end"}):
                socket.send(json.dumps(message))
            while not (isinstance(got := socket.recv(), str) and json.loads(got)["type"] == "done"):
                size += len(got) if isinstance(got, bytes) else 0
        return size

    def requested():
        assert spoken(60) == 61 * 2 * 192000

    spoken(2)
    assert longest_step(monkeypatch, requested) < MOST_WORK


def test_what_would_have_to_wait_too_long_is_refused_and_names_the_setting(made):
    with running(answer_bytes=1_000_000) as server:
        for how in (
            {"response_format": "wav", "stream_format": "json"},
            {"response_format": "wav", "stream": False},
            {"response_format": "pcm", "stream": False},
            {"response_format": "flac"},
            {"response_format": "flac", "stream_format": "sse"},
        ):
            error = require_error(server.speak("a" * 100, **how), 413)
            assert error["code"] == "answer_too_large" and "--answer-bytes" in error["message"], how
        for how in (
            {"response_format": "pcm"},
            {"response_format": "wav"},
            {"response_format": "pcm", "stream_format": "json"},
            {"response_format": "pcm", "stream_format": "sse"},
            {"response_format": "mp3", "stream_format": "json", "input": "a" * 20},
        ):
            assert server.speak(**{"text": "a" * 100, **how}).status_code == 200, how
        items = [{"input": "aa"}, {"input": "a" * 100}, {"input": "aa"}]
        with server.client() as client:
            body = {"items": items, "defaults": {**speech(), "response_format": "wav"}}
            answer = client.post(f"{SPEECH}/batch", json=body).json()
        assert (answer["succeeded"], answer["failed"]) == (2, 1)
        assert answer["results"][1]["error"]["code"] == "answer_too_large"
        wait_for(lambda: not server.service.running and not server.service.scheduler.jobs)


def test_json_and_batches_have_the_bytes_of_the_plain_answer(server):
    with server.client() as client:
        for form in ("wav", "mp3", "pcm", "flac"):
            how = {"response_format": form}
            plain = server.speak(stream=False, **how).content
            document = server.speak(stream_format="json", **how)
            assert "content-length" not in document.headers
            assert base64.b64decode(document.json()["audio"]) == plain
            body = {"items": [{}, {}], "defaults": speech(**how)}
            results = client.post(f"{SPEECH}/batch", json=body).json()["results"]
            assert [one["index"] for one in results] == [0, 1]
            assert all(base64.b64decode(one["audio_data"]) == plain for one in results)


def test_texts_of_a_batch_wait_for_those_before_them_to_be_read(made, monkeypatch):
    from melforge.common.serve.protocols import batch

    answers, make = [], batch.BatchAnswer.__init__
    monkeypatch.setattr(
        batch.BatchAnswer, "__init__", lambda one, *how: (make(one, *how), answers.append(one))[0]
    )
    with running(answer_bytes=8_000_000) as server, server.client() as client:
        body = {"items": [seconds(100, response_format="pcm")] * 8}
        size, ahead = 2 * 24000 * 100, 2 * 24000 * 20
        with client.stream("POST", f"{SPEECH}/batch", json=body) as answer:
            parts = answer.iter_raw()
            next(parts)
            # Nobody reads on: the texts behind the one that is written wait, paused.
            jobs, workers = server.service.scheduler._jobs, server.service.scheduler.workers
            wait_for(lambda: answers[0]._waiting > batch.WAITING and all(job.parked for job in list(jobs)))
            assert len(jobs) <= workers
            most = answers[0]._waiting
            content = json.loads(b'{"results": [' + b"".join(parts).removeprefix(b'{"results": ['))
        assert content["succeeded"] == 8 and most <= size + batch.WAITING + workers * ahead
        assert all(len(base64.b64decode(one["audio_data"])) == size for one in content["results"])
        assert answers[0]._waiting == 0


@pytest.mark.parametrize("in_memory", [1 << 30, 2 << 20, 0])
@pytest.mark.parametrize("has_disk", [True, False])
def test_what_is_kept_comes_out_as_it_came_and_is_given_up_with_that(monkeypatch, in_memory, has_disk):
    from melforge.common.serve import answer
    from melforge.common.serve.answer import BLOCK, KeptBytes

    monkeypatch.setattr(answer, "IN_MEMORY", in_memory)
    if not has_disk:
        monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    parts = [bytes([number]) * size for number, size in enumerate((0, 5, BLOCK, BLOCK - 1, 1, BLOCK // 2, 7))]
    kept = KeptBytes()

    async def keep():
        for part in parts:
            await kept.add(part)
        assert kept.size == sum(map(len, parts))
        return [[block async for block in kept.taken(b"head")] for _ in range(2)]

    blocks, rest = asyncio.run(keep())
    assert b"".join(blocks) == b"head" + b"".join(parts) and all(len(block) >= BLOCK for block in blocks[1:3])
    assert rest == [b"head"] and (kept._file is None) == (not has_disk or in_memory > 1 << 22)


@pytest.mark.wyoming
def test_a_recording_that_comes_in_parts_is_not_held_in_memory(server):
    from wyoming.event import Event

    from melforge.common.serve.protocols.wyoming import WyomingClient

    about = {"rate": 16000, "width": 2, "channels": 1}
    part = bytes(1 << 20)

    async def come():
        client = WyomingClient(server.service, None, None)
        await client.take(Event("audio-start", about))
        tracemalloc.start()
        try:
            for _ in range(20):
                await client.take(Event("audio-chunk", about, part))
            return client.recorded.tell(), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    size, most = asyncio.run(come())
    assert size == 20 * len(part) and most < 5 * len(part)


def test_who_leaves_a_batch_ends_its_work(made):
    with running() as server:
        body = {"items": [seconds(1000, response_format="wav")] * 4}
        with server.client() as client, client.stream("POST", f"{SPEECH}/batch", json=body) as answer:
            next(answer.iter_raw())
        wait_for(lambda: not server.service.running and not server.service.scheduler.jobs)


@pytest.mark.parametrize(
    "body",
    [
        {"items": [1] * 300_000},
        {"items": [{}], **{f"field {number}": 1 for number in range(20_000)}},
        {**speech(""), **{f"field {number}": 1 for number in range(20_000)}},
    ],
)
def test_mistakes_beyond_number_are_not_written_down(server, body):
    from melforge.common.serve.errors import ApiError
    from melforge.common.serve.requests import BatchFields, SpeechRequest, ignored_header, parse

    data = json.dumps(body).encode()

    def measure():
        begun = time.thread_time()
        try:
            ignored_header(parse(data, BatchFields if "items" in body else SpeechRequest).ignored)
        except ApiError as error:
            assert error.status == 400 and len(str(error)) < 200
        return time.thread_time() - begun

    assert least(measure) < 2 * MOST_WORK
    with server.client() as client:
        route = f"{SPEECH}/batch" if "items" in body else SPEECH
        require_error(client.post(route, json=body), 400)


@pytest.mark.parametrize(
    "more", [{"a": [[]] * 30_000}, {"a": [{}] * 30_000}, dict.fromkeys(map(str, range(30_000)))]
)
def test_json_of_very_many_parts_is_not_read(server, more):
    with server.client() as client:
        require_error(client.post(SPEECH, json={**speech("a"), **more}), 413)


def test_unknown_fields_of_a_batch_are_not_kept_for_each_text():
    from melforge.common.serve.requests import BatchFields, parse

    fields = dict.fromkeys(map(str, range(20_000)))
    batch = parse(
        {"items": [{"input": "a", "b": 1}] * 64, "defaults": {"voice": "hazel", **fields}}, BatchFields
    )
    assert batch.texts == [{"voice": "hazel", "input": "a"}] * 64


def test_of_fields_without_effect_the_names_alone_are_kept():
    from melforge.common.serve.requests import SpeechRequest

    wanted = SpeechRequest(**speech(instructions="x" * 100_000, other="y" * 100_000, **{"z" * 100: 1}))
    assert wanted.ignored == ["instructions", "other", "z" * 64] and len(wanted.model_dump_json()) < 3000


def test_a_body_in_tiny_chunks_is_read_a_few_at_a_time(server, monkeypatch):
    body = json.dumps(speech("a")).encode() + b" " * 20_000
    with server.client() as client:
        client.get("/health")

        def requested():
            pieces = (bytes([one]) for one in body)
            answer = client.post(SPEECH, content=pieces, headers={"content-type": "application/json"})
            assert answer.status_code == 200

        assert longest_step(monkeypatch, requested) < MOST_WORK


def test_a_form_of_escapes_alone_does_not_hold_the_loop(server, monkeypatch):
    body, kind = b"text=" + b"%41" * 170_000, {"content-type": "application/x-www-form-urlencoded"}
    with server.client() as client:

        def requested():
            assert client.post("/v1/audio/synthesize", content=body, headers=kind).status_code == 400

        assert longest_step(monkeypatch, requested) < MOST_WORK


def test_all_that_lives_is_searched_for_garbage_when_nobody_waits(server, monkeypatch):
    from melforge.common.serve import app

    searches = []

    def note(phase, about):
        if phase == "stop" and about["generation"] == 2:
            searches.append(server.service.running)

    def live():
        return [[] for _ in range(200 * gc.get_threshold()[0])]  # Python would search twice

    monkeypatch.setattr(app, "GARBAGE_CHECK", 0.01)
    monkeypatch.setattr(app, "BUSY_CHECKS", 10**9)
    gc.callbacks.append(note)
    try:
        with frozen():
            with server.service.admitted("", [None]):
                searches.clear()
                kept = live()
                time.sleep(0.1)
                assert not searches
            wait_for(lambda: searches)
            monkeypatch.setattr(app, "BUSY_CHECKS", 1)
            with server.service.admitted("", [None]):
                searches.clear()
                kept += live()
                wait_for(lambda: searches[:1] == [1])
    finally:
        gc.callbacks.remove(note)
