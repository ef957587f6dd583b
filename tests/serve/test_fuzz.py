"""Requests, forms, sound files and WebSocket frames that nobody would send, against a server in a process.

$MELFORGE_FUZZ_THINGS says how many, $MELFORGE_FUZZ_SEED draws others.
"""

import base64
import concurrent.futures
import ctypes
import io
import json
import os
import random
import re
import signal
import socket
import sys
import threading
from contextlib import suppress
from itertools import pairwise

import httpx
import numpy as np
import pytest
import soundfile

from melforge.common.serve.requests import SpeechRequest
from tests.serve.conftest import PATIENCE, SPEECH, UPGRADE, serving, speech, wait_for

THINGS = int(os.environ.get("MELFORGE_FUZZ_THINGS", "1500"))
SEED = int(os.environ.get("MELFORGE_FUZZ_SEED", "0"))
CLIENTS = 8
ROUNDS = 6
MOST_KEPT = 2000  # bytes of malloc for a thing sent, in the round that keeps least
TRANSCRIPTIONS = "/v1/audio/transcriptions"
PATHS = (
    SPEECH,
    f"{SPEECH}/batch",
    f"{SPEECH}/live",
    "/v1/audio/phonemize",
    TRANSCRIPTIONS,
    "/v1/realtime",
    "/v1/realtime/client_secrets",
    "/v1/models/x",
    "/health",
    "/metrics",
    "/",
)
ODD = (
    None,
    True,
    -1,
    0,
    1e308,
    float("nan"),
    2**70,
    "",
    "\0",
    "\ud800",
    "x" * 5000,
    [],
    [[]],
    {},
    {"id": "hazel"},
)
HEADERS = (
    b"Transfer-Encoding: chunked",
    b"Content-Length: 5",
    b"Content-Length: -1",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"Expect: 100-continue",
    b"Content-Encoding: gzip",
    b"Host: a\r\nHost: b",
    b"Range: bytes=0-1",
    b"Origin: null",
    b"X-Request-Id: \xff\xfe",
    b" folded: yes",
    b"X: " + b"y" * 70000,
)


def mutated(draw: random.Random, data: bytes) -> bytes:
    """A few bytes changed, a part left out or said twice, or nothing."""
    found = bytearray(data)
    for _ in range(draw.choice((0, 0, 1, 3, 30))):
        if found:
            found[draw.randrange(len(found))] = draw.randrange(256)
    start, end = sorted(draw.randrange(len(found) + 1) for _ in range(2))
    return bytes(draw.choice((found, found, found[:start] + found[end:], found[:end] + found[start:])))


def text(draw: random.Random) -> str:
    kinds = ("Hello there. ", "1+1=", "$5.50 ", "a", "<p>", "你好", "\u202e", "\n", "é́", "😀", "Dr. ", "\x07")
    marks = ("[pause:1s]", "[rate:80%]", "[/rate]", "[a](/æ/)", "{AH0}", "<break/>", "<s>", "</s>", "&amp;")
    found = "".join(draw.choice(kinds + marks) for _ in range(draw.randrange(12)))
    return draw.choice((found, found, f"<speak>{found}</speak>"))


def fields(draw: random.Random) -> dict:
    """Of a request for speech, most of them right."""
    found = {**speech(text(draw)), "response_format": draw.choice(("pcm", "wav", "mp3", "flac", "opus"))}
    found["stream_format"] = draw.choice(("audio", "sse", "json"))
    for name in draw.sample(sorted(SpeechRequest.model_fields), draw.randrange(4)):
        found[name] = draw.choice((*ODD, 1, 0.5, "json", 8000, "ssml", "ipa", {"a": "b"}))
    if draw.random() < 0.1:
        del found[draw.choice(sorted(found))]
    return found


def sound(draw: random.Random, sounds: list[bytes]) -> bytes:
    return mutated(draw, draw.choice(sounds))


def body(draw: random.Random, path: str, sounds: list[bytes]) -> tuple[bytes, bytes]:
    """And its media type."""
    if path == TRANSCRIPTIONS:
        parts = [b'name="file"; filename="a.wav"\r\n\r\n' + sound(draw, sounds)]
        names = ("model", "response_format", "language", "timestamp_granularities[]", "temperature", "x")
        values = ("whisper-1", "json", "srt", "verbose_json", "en", "word", "0", "\0", "x" * 3000)
        parts += [f'name="{draw.choice(names)}"\r\n\r\n{draw.choice(values)}'.encode() for _ in range(3)]
        parts.append(b'name="model"\r\n\r\nwhisper-1')
        form = b"".join(b"--x\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
        return mutated(draw, form) + b"--x--\r\n", b"multipart/form-data; boundary=x"
    content = fields(draw)
    if path.endswith("batch"):
        some = draw.choice(([content, 3], [content] * 2, [{}] * 70, [1] * 9999, {}))
        content = {"items": some, "defaults": draw.choice((content, {}, 1))}
    data = json.dumps(content).encode()
    return draw.choice((data, data, data, mutated(draw, data), b"[" * 50_000)), b"application/json"


def request(draw: random.Random, sounds: list[bytes]) -> bytes:
    path = draw.choice(PATHS)
    data, kind = body(draw, path, sounds)
    method = draw.choice(("POST", "POST", "POST", "POST", "GET", "PUT", "HEAD", "OPTIONS", "\x01"))
    lines = [f"{method} {path} HTTP/1.{draw.choice('1110')}".encode(), b"Host: localhost"]
    lines += [b"Content-Type: " + kind, b"Content-Length: %d" % len(data)]
    lines += [draw.choice(HEADERS) for _ in range(draw.choice((0, 0, 0, 1, 3)))]
    whole = b"\r\n".join((*lines, b"", data))
    return mutated(draw, whole) if draw.random() < 0.2 else whole


def realtime_events(draw: random.Random) -> list[dict]:
    """OpenAI's, each of some kinds."""
    odd, known = (lambda: draw.choice(ODD)), draw.choice(("root", "one", "two", *ODD))
    part = draw.choice(
        ({"type": "input_text", "text": text(draw)}, {"type": "output_text", "text": odd()}, odd())
    )
    said = {
        "type": "message",
        "role": draw.choice(("user", "assistant", "x")),
        "content": [part],
        "id": known,
    }
    form = draw.choice(({"type": "audio/pcmu"}, {"type": "audio/pcm", "rate": 16000}, odd()))
    voice = draw.choice(("hazel", "alloy", odd()))
    heard = {"format": form, "transcription": draw.choice(({}, None, odd())), "turn_detection": odd()}
    session = {
        "type": draw.choice(("realtime", "realtime", "transcription", odd())),
        "audio": draw.choice(
            ({"output": {"voice": voice, "format": form}, "input": heard}, {"input": heard}, odd())
        ),
        "output_audio_format": odd(),  # the beta's
    }
    response = {"instructions": text(draw), "input": draw.choice(([said], [said] * 30, odd(), None))}
    audio = base64.b64encode(bytes(draw.randrange(9000))).decode()
    bodies = {
        "session.update": {"session": draw.choice((session, odd()))},
        "transcription_session.update": {"session": draw.choice((session, odd()))},
        "conversation.item.create": {"item": draw.choice((said, said, odd())), "previous_item_id": known},
        "conversation.item.retrieve": {"item_id": known},
        "conversation.item.delete": {"item_id": known},
        "conversation.item.truncate": {"item_id": known, "audio_end_ms": draw.choice((0, 5, odd()))},
        "response.create": {"response": draw.choice((response, odd(), {}))},
        "response.cancel": draw.choice(({}, {"response_id": odd()})),
        "input_audio_buffer.append": {"audio": draw.choice((audio, audio, odd()))},
        "input_audio_buffer.commit": {},
        "input_audio_buffer.clear": {},
    }
    return [{"type": kind, "event_id": odd(), **fields} for kind, fields in bodies.items()]


def frame(draw: random.Random) -> bytes:
    """A WebSocket's, masked; mostly text."""
    messages = (
        {"type": "session", **{name: draw.choice(ODD) for name in ("voice", "speed", "sample_rate")}},
        {"type": "text", "text": text(draw)},
        {"type": "text", "text": draw.choice(ODD)},
        *({"type": kind} for kind in ("flush", "cancel", "cancel", "end", "x")),
        *realtime_events(draw),
    )
    data = json.dumps(draw.choice(messages)).encode()
    data = draw.choice((data, data, data, mutated(draw, data), os.urandom(0), b"[" * 5000))
    first = draw.choice((0x81, 0x81, 0x81, 0x82, 0x01, 0x80, 0x88, 0x89, 0xF1))
    size = len(data)
    longer = b"\xfe" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xff" + size.to_bytes(8, "big")
    length = bytes((0x80 | size,)) if size < 126 else longer
    whole = bytes((first,)) + length + bytes(4) + data  # the mask is 0
    return mutated(draw, whole) if draw.random() < 0.1 else whole


def ask(url: httpx.URL, draw: random.Random, sounds: list[bytes]) -> None:
    """Sends one thing, and reads for a moment."""
    live = draw.random() < 0.25
    if live:
        path = draw.choice((f"{SPEECH}/live", "/v1/realtime", "/v1/realtime?intent=transcription"))
        beta = draw.choice((b"", b"OpenAI-Beta: realtime=v1\r\n"))
        sent = [b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n" % (path.encode(), beta, UPGRADE)]
        sent += [frame(draw) for _ in range(draw.randrange(12))]
    else:
        whole = request(draw, sounds)
        place = draw.randrange(len(whole) + 1)
        sent = draw.choice(([whole], [whole[:place], whole[place:]], [whole, request(draw, sounds)]))
    answer = b""
    with suppress(ConnectionError), socket.create_connection((url.host, url.port), timeout=PATIENCE) as one:
        for data in sent:
            one.sendall(data)
        one.settimeout(draw.choice((0.01, 0.05, 0.05, 1.0)))
        with suppress(TimeoutError):
            while data := one.recv(1 << 16):
                answer = answer or data
    first = re.match(rb"HTTP/1\.[01] (\d)", answer)
    if answer:
        assert first and first[1] != b"5", (answer[:500], [data[:2000] for data in sent])


def memory_of(lines: list[str]) -> list[int]:
    return [line["bytes"] for line in map(json.loads, lines) if line["event"] == "memory"]


@pytest.mark.serve
@pytest.mark.slow
@pytest.mark.timeout(THINGS / 5 + 600)
@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="glibc, which counts its memory",
)
def test_whatever_is_sent_is_answered_without_a_fault_and_forgotten(small_ear):
    """Models are loaded when first asked for, and ONNX Runtime and caches grow in steps, up to a size:
    in one of the rounds there is none. What is kept of each thing sent, a round of any length keeps.
    """
    noise, sounds = np.random.default_rng(SEED).standard_normal(8000) * 0.1, []
    for form in ("wav", "flac", "mp3", "ogg", "aiff"):
        file = io.BytesIO()
        soundfile.write(file, noise, 16000, format=form)
        sounds.append(file.getvalue())
    with (
        serving("--ear", str(small_ear), module="tests.serve.counted", PYTHONMALLOC="malloc") as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE) as client,
    ):
        lines: list[str] = []
        reading = threading.Thread(target=lambda: lines.extend(server.process.stderr))
        reading.start()
        wait_for(lambda: client.get("/ready").status_code == 200, "readiness")

        def send(number: int) -> int:
            draw, count = random.Random(f"{SEED} {number}"), THINGS // ROUNDS // CLIENTS
            for _ in range(count):
                ask(url, draw, sounds)
            return count

        def kept() -> int:
            """Bytes, when nothing is spoken."""
            wait_for(lambda: "requests_running 0.0" in client.get("/metrics").text, "the end of what is left")
            known = len(lines)
            server.process.send_signal(signal.SIGUSR1)
            found: list[int] = []
            wait_for(lambda: found.extend(memory_of(lines[known:])) or found, "the count")
            return found[0]

        url, counts, sizes = httpx.URL(server.url), [], []
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for number in range(ROUNDS):
                counts.append(sum(pool.map(send, range(number * CLIENTS, (number + 1) * CLIENTS))))
                sizes.append(kept())
        assert client.get("/health").status_code == client.get("/ready").status_code == 200
        assert client.post(SPEECH, json=speech()).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        reading.join()
    found = [json.loads(line) for line in lines]
    # uvicorn has a traceback for a client's wrong UTF-8 too, whom it answers with 1007 as it should.
    found = [line for line in found if not line["event"].startswith("Invalid UTF-8 sequence received")]
    faults = [line for line in found if line["level"] in ("error", "critical") or "traceback" in line]
    each = [
        (after - before) / count for (before, after), count in zip(pairwise(sizes), counts[1:], strict=True)
    ]
    print(f"{sum(counts)} things sent, {sizes[0] / 1e6:.1f} MB, then kept of each", *map(round, each))
    assert not faults, "\n".join({line.get("traceback", line["event"]): 0 for line in faults})
    assert all(line.get("status", 200) < 500 for line in found)
    assert min(each) < MOST_KEPT
