"""The API against a server in this process: what it speaks equals `speak`, and what it refuses says why."""

import base64
import concurrent.futures
import io
import json
import socket
import threading
import wave

import httpx
import numpy as np
import pytest
import soundfile

from melforge.common.audio.mel import LOUD, QUIET
from melforge.common.serve.pairs import OPENAI_VOICES
from melforge.common.text import Analysis
from tests.serve.conftest import (
    JSON,
    PATIENCE,
    ROOT,
    SPEECH,
    at_24_khz,
    own_pcm,
    ratio_db,
    running,
    samples_of,
    speech,
    wait_for,
)

pytestmark = pytest.mark.serve
TEXT = "The first sentence is here. The second one follows."
LOSSLESS_DB, LOSSY_DB = 45, 15


def expected(direct, text, **how):
    from melforge.common.speech import Controls

    return np.clip(np.rint(direct.speak(text, Controls(**how)).samples * 32767), -32768, 32767).astype(int)


def events_of(answer):
    """Of an answer as server-sent events."""
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]


def require_samples(answer, wanted):
    """To a step of 16 bits."""
    got = samples_of(answer.content)
    assert len(got) == len(wanted) and np.abs(got - wanted).max() <= 1


def require_error(answer, status, param=None):
    """OpenAI's form, whatever went wrong."""
    error = answer.json()["error"]
    assert answer.status_code == status, answer.text
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert error["type"] == ("server_error" if status >= 500 else error["type"])
    assert answer.headers["x-request-id"]
    if param:
        assert error["param"] == param, error
    return error


class OtherStream:
    """Chunks in the place of a `Stream`."""

    analysis = Analysis(())
    batch_key = None

    def __init__(self, chunks):
        self.chunks = chunks

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.chunks)

    def close(self):
        pass


def speak_instead(monkeypatch, chunks):
    """Has a generator called in the place of `TextToSpeech.stream`."""
    monkeypatch.setattr("melforge.common.serve.service.make_stream", lambda *how: OtherStream(chunks(*how)))


def breaking(tts, text, *how):
    yield next(tts.stream(text))
    raise RuntimeError("broken")


# What is spoken


def test_pcm_is_what_speak_gives_to_a_step_of_16_bits(server, direct):
    answer = server.speak(TEXT, response_format="pcm", sample_rate=22050)
    assert answer.headers["content-type"].startswith("audio/pcm")
    require_samples(answer, expected(direct, TEXT))


@pytest.mark.parametrize(
    ("format", "type", "least_db"),
    [
        ("wav", "audio/wav", LOSSLESS_DB),
        ("flac", "audio/flac", LOSSLESS_DB),
        ("opus", "audio/ogg", LOSSY_DB),
        (None, "audio/mpeg", LOSSY_DB),
    ],
)
def test_formats_are_the_speech_at_24_khz(server, direct, format, type, least_db):
    answer = server.speak(TEXT, **({"response_format": format} if format else {}))
    assert answer.headers["content-type"] == type
    got, rate = soundfile.read(io.BytesIO(answer.content))
    wanted = at_24_khz(direct, TEXT)
    delay = 1105 if format is None else 0  # of its encoder
    longest = 2 * 576 if format is None else rate // 1000
    assert rate == 24000 and abs(len(got) - delay - len(wanted)) <= longest
    assert ratio_db(wanted, got[delay:]) > least_db


def test_controls_and_names_of_openai_s_reach_the_models(server, direct):
    fields = {"speed": 1.25, "pitch_shift": 40.0, "volume": 0.5, "denoising_strength": 0.1}
    answer = server.speak(
        **own_pcm(TEXT, **fields) | {"text": TEXT, "model": "tts-1", "voice": {"id": "nova"}}
    )
    wanted = expected(direct, TEXT, pace=1.25, pitch_shift=40.0, volume=0.5, denoising_strength=0.1)
    require_samples(answer, wanted)


@pytest.mark.slow
def test_a_voice_of_a_request_may_be_a_speaker_or_a_mix(server):
    with running(voice=None) as every, every.client() as client:
        listed = client.get("/v1/audio/voices").json()["voices"]
        names = [one["id"] for one in listed]
        assert names[:2] == ["hazel", "orchard"] and {"emma", "daniel", "shimmer"} < set(names)
        assert "emma" in listed[1]["speakers"]
        pairs = every.service.pairs
        cast = pairs.get(pairs.find("tts-1", "orchard"))
        told = {"orchard": 0, "verse": "daniel", "emma:0.3,heart:0.7": "emma:0.3,heart:0.7"}
        for voice, speaker in told.items():
            wanted = expected(cast, TEXT, speaker=speaker)
            got = samples_of(client.post(SPEECH, json=own_pcm(TEXT, voice=voice)).content)
            assert len(got) == len(wanted) and np.abs(got - wanted).max() <= 1
        wanted = expected(cast, TEXT, speaker="michael")  # which the request says itself
        got = samples_of(client.post(SPEECH, json=own_pcm(TEXT, voice="verse", speaker="michael")).content)
        assert len(got) == len(wanted) and np.abs(got - wanted).max() <= 1
        answer = client.post(SPEECH, json=own_pcm(TEXT, voice="emma:0.3,heart:x"))
        assert "no NAME:SHARE" in require_error(answer, 400, "speaker")["message"]


def test_server_sent_events_carry_the_same_bytes(server, direct):
    whole = server.speak(TEXT, response_format="pcm").content
    answer = server.speak(TEXT, response_format="pcm", stream_format="sse")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer)
    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * (len(events) - 1)
    seconds = round(direct.speak(TEXT).seconds)
    usage = {"input_tokens": len(TEXT), "output_tokens": seconds, "total_tokens": len(TEXT) + seconds}
    assert events[-1] == {"type": "speech.audio.done", "usage": usage}
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == whole


def test_words_have_the_seconds_at_which_they_are_spoken(server, direct):
    from melforge.common.synthesis.subtitles import srt
    from melforge.common.synthesis.timestamps import as_rows, timestamps

    spoken = direct.speak(TEXT)
    wanted = as_rows(timestamps(spoken))
    events = events_of(server.speak(TEXT, response_format="pcm", stream_format="sse", timestamps=True))
    kinds = [event["type"].rpartition(".")[2] for event in events]
    assert kinds[:2] == ["timestamps", "delta"] and kinds.count("timestamps") == 2
    assert [word for event in events for word in event.get("words", ())] == wanted
    for event in events[:-1]:
        if "written" in event:
            assert sum(piece["words"] for piece in event["written"]) == len(event["words"])
            assert " ".join(piece["text"] for piece in event["written"]) in TEXT
    answer = server.speak(TEXT, response_format="wav", stream_format="json").json()
    assert answer["words"] == wanted and answer["srt"] == srt(spoken)
    assert answer["vtt"].startswith("WEBVTT") and abs(answer["seconds"] - spoken.seconds) < 1e-3
    audio, rate = soundfile.read(io.BytesIO(base64.b64decode(answer["audio"])))
    assert rate == answer["sample_rate"] and abs(len(audio) / rate - spoken.seconds) < 1e-3


@pytest.mark.parametrize("model", ["tacotron2-hifigan", "fastpitch-hifigan"])
def test_alignments_are_those_of_the_acoustic_model(server, model):
    from melforge.common.runner import TextToSpeech

    spoken = TextToSpeech.load(*model.split("-"), voice=ROOT / "voices" / "hazel", device="cpu").speak(TEXT)
    how = {"model": model, "response_format": "pcm", "alignment": True}
    events = events_of(server.speak(TEXT, stream_format="sse", **how))
    kinds = [event.pop("type").rpartition(".")[2] for event in events]
    assert kinds[:2] == ["alignment", "delta"] and kinds.count("alignment") == 2
    rows = [event for event in events if "symbols" in event]
    assert rows == server.speak(TEXT, stream_format="json", **how).json()["alignments"]
    for number, row in enumerate(rows):
        seconds = spoken.durations[number] * spoken.frame_seconds
        assert row["start"] == pytest.approx(spoken.starts[number], abs=1e-4)
        assert np.allclose(row["seconds"], seconds, atol=1e-4) and len(row["symbols"]) == len(seconds)
        if spoken.alignments is None:
            assert row["attention"] is None
        else:
            weights = np.frombuffer(base64.b64decode(row["attention"]["weights"]), np.uint8)
            weights = weights.reshape(row["attention"]["steps"], len(seconds)) / 255
            assert np.abs(weights - spoken.alignments[number]).max() < 0.6 / 255
        levels = np.frombuffer(base64.b64decode(row["mel"]["levels"]), np.uint8)
        mel = levels.reshape(row["mel"]["frames"], -1).T / 255 * (LOUD - QUIET) + QUIET
        assert np.abs(mel - spoken.mels[number].clip(QUIET, LOUD)).max() < 0.6 / 255 * (LOUD - QUIET)
    assert "alignments" not in server.speak(stream_format="json").json()


def test_chunks_leave_before_the_end_is_made_and_a_listener_who_leaves_ends_the_work(server):
    service = server.service
    with server.client() as client, client.stream("POST", SPEECH, json=own_pcm(TEXT * 60)) as answer:
        pieces = answer.iter_raw()  # whose end closes the connection
        first = next(pieces)
        (job,) = service.scheduler._jobs
        assert job.progress.ended is None and len(first) < 22050 * 2 * 20
    wait_for(lambda: not service.running and not service.scheduler.jobs, "the end of the work")
    wait_for(lambda: service.metrics.left._value.get() >= 1)


def test_a_batch_has_each_text_or_its_error(server, direct):
    items: list[dict] = [{"input": text} for text in ("One.", "Two.", " ", "Four.")]
    items[1]["speed"], items[3]["voice"] = 9, "onyx"
    defaults = {"model": "tts-1", "voice": "hazel", "response_format": "wav", "sample_rate": 22050}
    with server.client() as client:
        answer = client.post(f"{SPEECH}/batch", json={"items": items, "defaults": defaults}).json()
    assert (answer["total"], answer["succeeded"], answer["failed"]) == (4, 2, 2)
    for number, text in ((0, "One."), (3, "Four.")):
        result = answer["results"][number]
        got, rate = soundfile.read(io.BytesIO(base64.b64decode(result["audio_data"])), dtype="int16")
        wanted = expected(direct, text)
        assert result["media_type"] == "audio/wav" and rate == 22050
        assert len(got) == len(wanted) and np.abs(got - wanted).max() <= 1
    assert [answer["results"][number]["error"]["param"] for number in (1, 2)] == ["speed", "input"]


def test_each_of_32_callers_gets_their_own_sentence(server, direct):
    names = ("Anna", "Bert", "Clara", "David", "Emma", "Frank", "Grace", "Henry")
    texts = [f"{name} has {count} apples." for name in names for count in ("two", "six", "nine", "forty")]
    wanted = {text: expected(direct, text) for text in texts}

    def ask(number):
        text = texts[number % len(texts)]
        require_samples(server.speak(text, response_format="pcm", sample_rate=22050), wanted[text])

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(ask, range(64)))


# Lists


def test_models_and_voices_are_listed(server):
    with server.client() as client:
        models = [one["id"] for one in client.get("/v1/models").json()["data"]]
        assert models[0] == "fastpitch-hifigan" and {"tacotron2-waveglow", "tts-1"} < set(models)
        assert client.get("/v1/models/tts-1").json()["object"] == "model"
        require_error(client.get("/v1/models/tts-9"), 404, "model")
        voices = client.get("/v1/audio/voices").json()["voices"]
        assert voices[0]["id"] == "hazel" and {one["name"] for one in voices} >= set(OPENAI_VOICES)
        assert client.get("/v1/audio/voices", params={"legacy": True}).json()["voices"][0] == "hazel"


def test_health_readiness_figures_and_pages(server):
    server.speak()
    with server.client() as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").status_code == 200
        page = client.get("/metrics").text
        assert 'melforge_requests_total{route="/v1/audio/speech",status="200"}' in page
        assert "melforge_first_audio_seconds_bucket" in page
        assert 'href="docs"' in client.get("/").text and 'href="openapi.json"' in client.get("/docs").text
        assert "gate_threshold" in json.dumps(client.get("/openapi.json").json())


def test_readiness_is_a_synthesis(server, monkeypatch):
    service = server.service
    monkeypatch.setattr(service, "last_step", float("-inf"))
    with server.client() as client:
        assert client.get("/ready").status_code == 200 and service.last_step > 0
        monkeypatch.setattr(service, "last_step", float("-inf"))
        speak_instead(monkeypatch, lambda *_: iter(()))
        require_error(client.get("/ready"), 503)
        monkeypatch.setattr(service.scheduler, "slowest_step", lambda: 1e9)
        assert "one step" in require_error(client.get("/ready"), 503)["message"]


# What is refused


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"model": "nobody"}, "model"),
        ({"voice": "nobody"}, "voice"),
        ({"voice": "a," * 100_000}, "voice"),
        ({"voice": {"id": "a," * 100_000}}, "voice"),
        ({"speaker": "a," * 100_000}, "speaker"),
        ({"input": ""}, "input"),
        ({"input": " \n"}, "input"),
        ({"input": "a" * 5000}, "input"),
        ({"input": 3}, "input"),
        ({"speed": 0.1}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"speed": 1.5, "model": "tacotron2-hifigan"}, "speed"),
        ({"response_format": "ogg"}, "response_format"),
        ({"stream_format": "xml"}, "stream_format"),
        ({"sample_rate": 1}, "sample_rate"),
        ({"sample_rate": 22050, "response_format": "opus"}, "sample_rate"),
        ({"pitch_shift": 1e9}, "pitch_shift"),
        ({"gate_threshold": 0.3}, "gate_threshold"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 70}, "seed"),
        ({"speaker": 7}, "speaker"),
        ({"retries": 99}, "retries"),
        ({"voice": {"name": "hazel"}}, "voice"),
    ],
)
def test_a_wrong_field_is_named(server, fields, param):
    require_error(server.speak(**{"text": fields.get("input", "Hello."), **fields}), 400, param)


def test_a_missing_field_is_named(server):
    with server.client() as client:
        for name in ("model", "input", "voice"):
            fields = {key: value for key, value in speech().items() if key != name}
            require_error(client.post(SPEECH, json=fields), 400, name)


def test_what_is_not_used_or_spoken_is_said_in_a_header(server):
    answer = server.speak("One 你好 two.", instructions="Whisper.", **{"lang_code": "en", "böse\n": 1})
    assert answer.status_code == 200 and answer.headers["x-melforge-unspoken"] == "1"
    assert answer.headers["x-melforge-ignored"] == "instructions, b?se?, lang_code"
    assert not {"x-melforge-ignored", "x-melforge-unspoken"} & set(server.speak().headers)


def test_ssml_is_spoken(server):
    text = "<speak>One <break time='1s'/> <x>two</x>.<mark name='é'/></speak>"
    answer = server.speak(text, stream_format="json")
    assert answer.headers["x-melforge-warnings"] == "SSML, line 1: <x> changes nothing"
    content = answer.json()
    (mark,) = content["marks"]
    assert mark["name"] == "é"
    assert content["words"][-1]["end"] < mark["time"] < content["seconds"] + 1e-3
    assert content["words"][1]["start"] - content["words"][0]["end"] > 0.9
    with server.client() as client:
        events = client.post(SPEECH, json=speech(input=text, stream_format="sse", timestamps=True)).text
    assert '"marks": [{"name": "\\u00e9", "time":' in events


def test_what_is_wrong_with_ssml_has_a_place(server):
    answer = server.speak("<speak>One <break time='x'/></speak>")
    require_error(answer, 400, "input")
    assert "SSML, line 1, column 12: a break is a time" in answer.json()["error"]["message"]
    require_error(server.speak("One.", markup="ssml"), 400, "input")
    require_error(server.speak("One.", markup="xml"), 400, "markup")
    require_error(server.speak("One.", links="all"), 400, "links")
    link = {"input": "[One](x.org).", "model": "tts-1", "voice": "alloy"}
    with server.client() as client:
        words, both = (
            client.post("/v1/audio/phonemize", json=link | {"links": links}).json()["utterances"][0]
            for links in ("words", "addresses")
        )
    assert len(words["words"]) == 1 and len(both["words"]) == 4
    plain = server.speak("<speak>One.</speak>", markup="none")
    assert plain.status_code == 200 and plain.headers["x-melforge-unspoken"] == "2"


def test_wrong_routes_methods_and_bodies(server):
    with server.client() as client:
        require_error(client.get("/v1/nothing"), 404)
        without_v1 = require_error(client.post(SPEECH.removeprefix("/v1")), 404)
        assert without_v1["message"] == "POST /audio/speech: Not Found; the API is at /v1"
        assert "POST" in client.get(SPEECH).headers["allow"]
        require_error(client.get(SPEECH), 405)
        require_error(client.post(SPEECH, content=b"x" * (2 << 20), headers=JSON), 413)
        for body in ("[" * 20_000, f'{json.dumps(speech())[:-1]}, "extra": {"[" * 5000}{"]" * 5000}}}'):
            require_error(client.post(SPEECH, content=body, headers=JSON), 400)
        require_error(client.get("/v1/audio/voices", params={"legacy": "perhaps"}), 400, "legacy")
        assert client.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
        assert (
            client.get("/health", headers={"x-request-id": "not mine"}).headers["x-request-id"] != "not mine"
        )


def test_head_is_answered_as_get_without_a_body(server):
    with server.client() as client:
        for path in ("/", "/health", "/ready", "/metrics", "/v1/models", "/page/main.js", "/openapi.json"):
            head, get = client.head(path), client.get(path)
            assert head.status_code == get.status_code == 200 and not head.content, path
            assert head.headers["content-type"] == get.headers["content-type"]
        assert client.head(SPEECH).status_code == 405 and client.head("/nothing").status_code == 404


def test_what_clients_write_besides_is_no_fault(server):
    """Null in fields that are left unset, a byte order mark, a slash at the end of the address."""
    unset = dict.fromkeys(("speed", "response_format", "stream", "seed", "volume", "speaker", "unknown"))
    with server.client() as client:
        wanted = client.post(SPEECH, json=speech(seed=0)).content
        assert client.post(SPEECH, json={**speech(), **unset}).content == wanted
        marked = b"\xef\xbb\xbf" + json.dumps(speech()).encode()
        assert client.post(f"{SPEECH}/", content=marked, headers=JSON).content == wanted
        assert client.get("/v1/models/").json() == client.get("/v1/models").json()
        require_error(client.post(SPEECH, json=speech(input=None)), 400, "input")
        spoken = speech(response_format="pcm")
        wanted = client.post(SPEECH, json=spoken).content
        item = {"input": spoken["input"], **dict.fromkeys(("voice", "model", "response_format", "speed"))}
        for body in (
            {"items": [item], "defaults": {**spoken, "volume": None}},
            {"items": [{**unset, **spoken}], "defaults": None},
        ):
            (result,) = client.post(f"{SPEECH}/batch", json=body).json()["results"]
            assert base64.b64decode(result["audio_data"]) == wanted


def test_the_api_describes_its_keys_and_errors():
    from melforge.common.serve.errors import ERRORS, ErrorAnswer

    for keys in ((), (b"secret",)):
        with running(keys) as server, server.client() as client:
            api = client.get("/openapi.json").json()
            answer = client.post(SPEECH, json={})
        ErrorAnswer.model_validate(answer.json(), strict=True)
        schemes = api.get("components", {}).get("securitySchemes", {}).values()
        assert [(one["type"], one["scheme"]) for one in schemes] == [("http", "bearer")] * len(keys)
        for path, operations in api["paths"].items():
            for operation in operations.values():
                if path.startswith("/v1/"):
                    assert bool(operation.get("security")) == bool(keys), path
                    assert {str(status) for status in ERRORS} < {*operation["responses"]}, path
                assert "422" not in operation["responses"]  # which FastAPI expects, and nobody answers
        assert str(answer.status_code) in api["paths"][SPEECH]["post"]["responses"]


# Limits


def test_a_full_queue_is_503_and_nobody_is_lost():
    with running(queue=4) as server:
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda _: server.speak(TEXT, response_format="pcm"), range(24)))
        whole = [answer for answer in answers if answer.status_code == 200]
        assert whole and len({answer.content for answer in whole}) == 1
        for answer in answers:
            if answer.status_code != 200:
                assert require_error(answer, 503)["code"] == "overloaded"
                assert int(answer.headers["retry-after"]) >= 1
        assert server.speak().status_code == 200


def test_who_finds_a_full_queue_is_refused_unread():
    """In a flood each refusal waits for those before it."""
    with running(queue=4) as server, server.client() as client:
        with server.service.admitted("", [None] * 4):
            answer = client.post(SPEECH, content=b"{", headers=JSON)
        assert require_error(answer, 503)["code"] == "overloaded" and answer.headers["retry-after"]
        require_error(client.post(SPEECH, content=b"{", headers=JSON), 400)
        assert f'requests_total{{route="{SPEECH}",status="503"}} 1.0' in client.get("/metrics").text


def test_keys_and_their_limit():
    with running((b"one", b"two"), key_requests=1) as server:
        with server.client() as client:
            assert require_error(client.get("/v1/models"), 401)["code"] == "invalid_api_key"
            require_error(client.get("/metrics"), 401)
            for given in ("Bearer on", "Basic one", "one", ""):
                require_error(client.post(SPEECH, json=speech(), headers={"Authorization": given}), 401)
            assert client.get("/health").status_code == 200
        book = own_pcm(TEXT * 60)
        with server.client("one") as client, client.stream("POST", SPEECH, json=book) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            refused = client.post(SPEECH, json=speech())
            assert require_error(refused, 429)["code"] == "rate_limit_exceeded"
            assert "retry-after" in refused.headers
            with server.client("two") as other:
                assert other.post(SPEECH, json=speech()).status_code == 200
        wait_for(lambda: not server.service.running)


def test_scripts_of_other_pages_may_ask_where_their_origin_is_named(server):
    mine, other = "http://localhost:3000", "https://example.org"
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with running((b"key",), origins=f"{mine}/, http://localhost:8080") as named, named.client() as client:
        before = client.options(SPEECH, headers={"Origin": mine, **asking})
        assert before.status_code == 200 and "authorization" in before.headers["access-control-allow-headers"]
        assert before.headers["access-control-allow-origin"] == mine
        assert client.options(SPEECH, headers={"Origin": other, **asking}).status_code == 400
        refused = client.post(SPEECH, json=speech(), headers={"Origin": mine})
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == mine
        spoken = client.post(SPEECH, json=speech(), headers={"Origin": mine, "Authorization": "Bearer key"})
        assert spoken.status_code == 200 and spoken.headers["access-control-allow-origin"] == mine
        assert "x-request-id" in spoken.headers["access-control-expose-headers"]
    with server.client() as client:  # whose settings name none
        assert "access-control-allow-origin" not in client.get("/health", headers={"Origin": mine}).headers


def test_who_leaves_before_the_first_sound_is_not_spoken_to(server, monkeypatch):
    gate, asked = threading.Event(), threading.Event()

    def held(*_):
        asked.set()
        gate.wait(60)
        raise AssertionError("spoken to nobody")
        yield

    speak_instead(monkeypatch, held)
    body = json.dumps(speech()).encode()
    url = httpx.URL(server.url)
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    sockets = [socket.create_connection((url.host, url.port)) for _ in range(3)]  # one more than workers
    for one in sockets:
        one.sendall(head.encode() + body)
    wait_for(lambda: server.service.scheduler.jobs == 3)  # held by workers and a starter, or waiting
    for one in sockets:
        one.close()
    wait_for(lambda: not server.service.running, "the requests' end")
    assert server.service.scheduler.waiting == 0
    gate.set()
    wait_for(lambda: not server.service.scheduler.jobs)


def test_a_slow_reader_is_paused_and_holds_up_nobody():
    with running(ahead=1.0) as server:
        book = speech(TEXT * 40, response_format="wav", sample_rate=192000)  # more than sockets buffer
        with server.client() as client, client.stream("POST", SPEECH, json=book) as answer:
            (job,) = server.service.scheduler._jobs
            wait_for(lambda: job.parked, "the pause")
            assert server.speak().status_code == 200 and job.progress.ended is None
            data = answer.read()
        assert abs((len(data) - 44) / 2 / 192000 - job.progress.made) < 0.001


@pytest.mark.parametrize("fields", [{}, {"stream_format": "json"}, {"stream": False}])
def test_what_is_answered_at_the_end_does_not_count_as_slow(fields):
    with running(ahead=0.5) as server:
        for format in ("flac", "wav", "mp3"):
            answer = server.speak(TEXT, response_format=format, **fields)
            assert answer.status_code == 200 and len(answer.content) > 10_000
        items = [{"input": TEXT, "response_format": "wav"}]
        with server.client() as client:
            answer = client.post(f"{SPEECH}/batch", json={"items": items, "defaults": speech()})
        assert answer.json()["succeeded"] == 1


def test_what_breaks_in_the_middle_is_not_taken_for_the_whole(server, monkeypatch):
    speak_instead(monkeypatch, breaking)
    with pytest.raises(httpx.RemoteProtocolError):
        server.speak(TEXT, response_format="pcm")

    def broken(*_):
        raise RuntimeError("broken")
        yield

    speak_instead(monkeypatch, broken)
    assert "server" in require_error(server.speak(TEXT), 500)["message"]
    monkeypatch.undo()
    assert server.speak(TEXT).status_code == 200


def old_client(server, **fields):
    """What comes back over HTTP/1.0, whose answers end where the connection does: headers and body."""
    url, body = httpx.URL(server.url), json.dumps(speech(TEXT, **fields)).encode()
    with socket.create_connection((url.host, url.port), timeout=PATIENCE) as one:
        head = (
            f"POST {SPEECH} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        one.sendall(head.encode() + body)
        answer = one.makefile("rb").read()
    head, _, data = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().lower().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), data


def test_an_answer_that_is_not_streamed_states_its_length(server, direct):
    wanted = at_24_khz(direct, TEXT)
    streamed = server.speak(TEXT, response_format="wav", stream=True)
    assert streamed.headers["transfer-encoding"] == "chunked" and streamed.content[40:44] == b"\xff" * 4
    for format in ("wav", "mp3"):
        answer = server.speak(TEXT, response_format=format, stream=False)
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert len(soundfile.read(io.BytesIO(answer.content))[0]) >= len(wanted) - 24
        if format == "wav":
            with wave.open(io.BytesIO(answer.content)) as file:
                assert abs(file.getnframes() - len(wanted)) <= 24


def test_http_1_0_is_told_the_length(server, direct, monkeypatch):
    for form in ("audio", "sse", "json"):
        status, headers, data = old_client(server, response_format="wav", stream_format=form)
        assert status == 200 and int(headers["content-length"]) == len(data)
        assert "transfer-encoding" not in headers
        if form == "audio":
            assert len(soundfile.read(io.BytesIO(data))[0]) == len(at_24_khz(direct, TEXT))

    speak_instead(monkeypatch, breaking)
    assert old_client(server)[0] == 500


def test_a_hanging_worker_is_a_500_and_others_are_spoken_to(monkeypatch):
    gate = threading.Event()

    def hanging(tts, text, *how):
        gate.wait(60)
        yield next(tts.stream(text))

    with running() as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        scheduler = server.service.scheduler
        with monkeypatch.context() as patch:
            speak_instead(patch, hanging)
            asked = pool.submit(server.speak)
            wait_for(lambda: scheduler.jobs == 1 and not scheduler.waiting)
        assert server.speak().status_code == 200  # by the other worker
        monkeypatch.setattr("melforge.common.serve.app.STEP_LIMIT", 0.0)
        require_error(asked.result(), 500)
        monkeypatch.undo()
        assert all(server.speak().status_code == 200 for _ in range(3))
        gate.set()


def test_a_request_that_takes_too_long_ends():
    with running(seconds=0.0) as server:
        assert require_error(server.speak(TEXT * 20), 503)["code"] == "timeout"
        wait_for(lambda: not server.service.scheduler.jobs)


def test_seconds_of_a_text_count_from_its_arrival():
    from melforge.common.serve.metrics import Metrics
    from melforge.common.serve.scheduler import JobProgress

    metrics = Metrics()
    metrics.spoken(
        JobProgress(arrived=100.0, first_audio=100.5, ended=102.0, made=3.0, underruns=2), 7, "Ann"
    )
    page = metrics.page().decode()
    for line in ("first_audio_seconds_sum 0.5", "request_seconds_sum 2.0", "audio_seconds_total 3.0"):
        assert f"melforge_{line}" in page
    assert 'melforge_key_audio_seconds_total{key="Ann"} 3.0' in page
    assert "melforge_characters_total 7.0" in page and "melforge_underruns_total 2.0" in page
