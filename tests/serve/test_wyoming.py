"""Home Assistant's protocol, by the clients of its own package."""

import asyncio
import json

import numpy as np
import pytest

from melforge.common.cli.serve import main as serve
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from tests.serve.conftest import PATIENCE, running, samples_of, wait_for

pytestmark = [pytest.mark.serve, pytest.mark.wyoming]
TEXT = "The first sentence is here. The second one follows. And a third."


@pytest.fixture(scope="module")
def server():
    with running(wyoming_port=0) as found:
        yield found


@pytest.fixture(scope="module")
def direct():
    return TextToSpeech.load(voice="hazel", acoustic="fastpitch", vocoder="hifigan", device="cpu", threads=1)


def talk(server, *events, until=("audio-stop",)):
    """What the server answers to these events, up to one of these types."""
    from wyoming.client import AsyncTcpClient

    async def run():
        found = []
        async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", server.wyoming) as client:
            for event in events:
                await client.write_event(event.event() if hasattr(event, "event") else event)
            while not found or found[-1].type not in until:
                event = await client.read_event()
                assert event is not None, found
                found.append(event)
        return found

    return asyncio.run(run())


def audio_of(events) -> np.ndarray:
    return samples_of(b"".join(event.payload for event in events if event.type == "audio-chunk"))


def synthesize(text, **voice):
    from wyoming.tts import Synthesize, SynthesizeVoice

    return Synthesize(text=text, voice=SynthesizeVoice(**voice) if voice else None).event()


def test_it_says_what_there_is(server):
    from wyoming.info import Describe, Info

    (answer,) = talk(server, Describe().event(), until=("info",))
    info = Info.from_event(answer)
    (speaks,), (hears,) = info.tts, info.asr
    assert [voice.name for voice in speaks.voices] == ["hazel"] and speaks.voices[0].languages == ["en"]
    assert speaks.supports_synthesize_streaming and speaks.installed and speaks.version
    assert hears.models[0].languages == ["en"]


def test_a_text_is_spoken_as_speak_speaks_it(server, direct):
    events = talk(server, synthesize(TEXT))
    assert events[0].type == "audio-start" and events[-1].type == "audio-stop"
    assert [events[0].data[key] for key in ("rate", "width", "channels")] == [22050, 2, 1]
    wanted = (direct.speak(TEXT).samples * 32768).astype(np.int16)
    heard = audio_of(events)
    assert heard.shape == wanted.shape and np.abs(heard - wanted).max() <= 1
    assert len(events) > 3  # in chunks


def test_a_text_that_comes_in_parts_is_spoken_by_sentences(server, direct):
    from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop

    parts = [SynthesizeChunk(TEXT[start : start + 7]) for start in range(0, len(TEXT), 7)]
    whole = synthesize(TEXT)  # which clients send too, for servers that know no parts
    events = talk(server, SynthesizeStart(), *parts, whole, SynthesizeStop(), until=("synthesize-stopped",))
    assert [event.type for event in events if event.type != "audio-chunk"] == [
        "audio-start",
        "audio-stop",
        "synthesize-stopped",
    ]
    sentences = ("The first sentence is here.", "The second one follows.", "And a third.")
    spoken = [(direct.speak(one).samples * 32768).astype(np.int16) for one in sentences]
    heard, wanted = audio_of(events), np.concatenate(spoken)
    assert heard.shape == wanted.shape and np.abs(heard - wanted).max() <= 1


def test_the_ear_hears_what_was_spoken(server, direct):
    from wyoming.asr import Transcribe
    from wyoming.audio import AudioChunk, AudioStart, AudioStop

    pcm = (direct.speak("She said that it was a good day.").samples * 32768).astype("<i2").tobytes()
    format = {"rate": 22050, "width": 2, "channels": 1}
    chunks = [AudioChunk(audio=pcm[i : i + 4096], **format) for i in range(0, len(pcm), 4096)]
    events = (Transcribe().event(), AudioStart(**format).event(), *(one.event() for one in chunks))
    (answer,) = talk(server, *events, AudioStop().event(), until=("transcript", "error"))
    assert answer.data["text"].lower().strip(".") == "she said that it was a good day"


def test_ping_and_what_cannot_be_spoken(server):
    from wyoming.ping import Ping

    (pong,) = talk(server, Ping(text="x").event(), until=("pong",))
    assert pong.data["text"] == "x"
    for wrong, message in (
        (synthesize("..."), "can be spoken"),
        (synthesize("Hello.", name="nobody"), "nobody"),
        (synthesize("x" * 5000), "5000 characters, of 4096 at most"),
    ):
        (error,) = talk(server, wrong, until=("error",))
        assert message in error.data["text"] and error.data["code"]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n",
        b"[]\n",
        b'{"type": "ping", "data_length": -1}\n',
        b'{"type": "audio-chunk", "payload_length": 99999999999}\n',
        b"x" * 100_000 + b"\n",
        b"[" * 60_000 + b"\n",
    ],
)
def test_what_is_no_event_is_told_and_ends_the_connection(server, raw):
    async def run():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.wyoming)
        writer.write(raw)
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        writer.close()
        return json.loads(answer.split(b"\n")[0])

    assert asyncio.run(run())["type"] == "error"
    assert talk(server, synthesize("Still here."))[-1].type == "audio-stop"


def test_a_client_that_leaves_leaves_nothing_behind(server):
    from wyoming.client import AsyncTcpClient

    async def run():
        async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", server.wyoming) as client:
            await client.write_event(synthesize(" ".join([TEXT] * 30)))
            await client.read_event()

    asyncio.run(run())
    wait_for(lambda: not server.service.running and not server.service.scheduler.jobs)


def test_keys_and_several_processes_are_refused():
    with pytest.raises(InputError, match="Wyoming has no keys"):
        serve(["--wyoming-port", "10200", "--host", "0.0.0.0"])
    with pytest.raises(InputError, match="for one process here"):
        serve(["--wyoming-port", "10200", "--processes", "2"])
