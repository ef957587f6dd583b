"""Home Assistant's protocol, by the clients of its own package."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest

from melforge.common.cli.benchmark_server import main as benchmark
from melforge.common.cli.serve import main as serve
from melforge.common.cli.wyoming import main as wyoming
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from tests.serve.conftest import PATIENCE, ROOT, running, samples_of, wait_for
from tests.serve.test_api import breaking, speak_instead

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
    """What the server answers to these events, up to one of these types; None where the connection ends."""
    return exchange(f"tcp://127.0.0.1:{server.wyoming}", *events, until=until)


def exchange(uri, *events, until):
    from wyoming.client import AsyncClient

    async def run():
        found = []
        async with asyncio.timeout(PATIENCE), AsyncClient.from_uri(uri) as client:
            with suppress(ConnectionError):  # it may end before all is said
                for event in events:
                    await client.write_event(event.event() if hasattr(event, "event") else event)
            while not found or (found[-1] and found[-1].type) not in until:
                event = await client.read_event()
                assert event is not None or None in until, found
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

    parts = [SynthesizeChunk(TEXT[start : start + 7]) for start in range(-7, len(TEXT), 7)]  # the first: ""
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
    events = Transcribe(language="de-DE").event(), *events[1:], AudioStop().event()
    error, _ = talk(server, *events, until=(None,))
    assert "the ear hears en, not 'de'" in error.data["text"]


def test_ping(server):
    from wyoming.ping import Ping

    (pong,) = talk(server, Ping(text="x").event(), until=("pong",))
    assert pong.data["text"] == "x"


@pytest.mark.parametrize(
    ("text", "voice", "message"),
    [
        ("...", {}, "can be spoken"),
        ("Hello.", {"name": "nobody"}, "nobody"),
        ("Hello.", {"language": "de-DE"}, "this is for en, not for 'de-DE'"),
        ("x" * 5000, {}, "5000 characters, of 4096 at most"),
    ],
)
def test_what_cannot_be_spoken_is_told_and_ends_the_connection(server, text, voice, message):
    """Home Assistant passes over errors: it would wait for the end of the audio."""
    error, end = talk(server, synthesize(text, **voice), until=(None,))
    assert error.type == "error" and message in error.data["text"] and error.data["code"] and end is None


def test_what_breaks_in_the_middle_has_no_end_of_audio(server, monkeypatch):
    """Who hears a part does not take it for the whole."""
    speak_instead(monkeypatch, breaking)
    *heard, error, end = talk(server, synthesize(TEXT), until=(None,))
    assert {event.type for event in heard} == {"audio-start", "audio-chunk"}
    assert error.type == "error" and error.data["code"] == "internal_error" and end is None


def test_a_sentence_without_words_does_not_end_an_llm_s_answer(server, direct):
    from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop

    parts = map(SynthesizeChunk, ("Done! ", "... ", "The lamp is on. "))
    events = talk(server, SynthesizeStart(), *parts, SynthesizeStop(), until=("synthesize-stopped",))
    wanted = [direct.speak(one).samples for one in ("Done!", "The lamp is on.")]
    assert len(audio_of(events)) == sum(map(len, wanted))
    assert [event.type for event in events if event.type != "audio-chunk"][-2:] == [
        "audio-stop",
        "synthesize-stopped",
    ]


@pytest.mark.parametrize(
    "format", [{"rate": 0}, {"width": 5}, {"channels": 0}, {"rate": "fast"}, {"width": None}]
)
def test_a_recording_of_an_impossible_form_ends_the_connection(server, format):
    from wyoming.event import Event

    about = {"rate": 16000, "width": 2, "channels": 1} | format
    events = Event("audio-start", about), Event("audio-chunk", about, b"xx" * 800), Event("audio-stop")
    error, end = talk(server, *events, until=(None,))
    assert error.type == "error" and error.data["code"] and end is None


def test_ssml_is_spoken_as_such(server, direct):
    from wyoming.tts import Synthesize, SynthesizeTextFormat

    ssml = "<speak>One. <break time='500ms'/> Two.</speak>"
    events = talk(server, Synthesize(ssml, text_format=SynthesizeTextFormat.SSML))
    assert len(audio_of(events)) == len(direct.speak(ssml).samples)
    error, _ = talk(server, Synthesize("One.", text_format=SynthesizeTextFormat.SSML), until=(None,))
    assert "SSML" in error.data["text"]


def test_a_slow_reader_is_paused_and_holds_up_nobody():
    from wyoming.client import AsyncTcpClient

    async def run(server):
        async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", server.wyoming) as client:
            await client.write_event(synthesize(" ".join([TEXT] * 60)))
            await client.read_event()
            (job,) = server.service.scheduler._jobs
            await asyncio.to_thread(wait_for, lambda: job.parked, "the pause")
            assert server.speak().status_code == 200 and job.progress.ended is None

    with running(ahead=1.0, wyoming_port=0) as server:
        asyncio.run(run(server))


def test_who_reads_nothing_at_all_is_not_kept():
    from wyoming.client import AsyncTcpClient

    async def run(server):
        async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", server.wyoming) as client:
            await client.write_event(synthesize(" ".join([TEXT] * 60)))
            await client.read_event()
            await asyncio.to_thread(wait_for, lambda: not server.service.running, "the end")

    with running(ahead=1.0, wyoming_port=0, seconds=0.5) as server:
        asyncio.run(run(server))


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n",
        b"[]\n",
        b'{"type": "ping", "data_length": -1}\n',
        b'{"type": "audio-chunk", "payload_length": 99999999999}\n',
        b"x" * 100_000 + b"\n",
        b"[" * 60_000 + b"\n",
        b'{"type": "ping", "data_length": 200000}\n{"text": [' + b"[]," * 66_662 + b"[]]}",
        b'{"type": "synthesize-start"}\n{"type": "synthesize-chunk", "data": {"text": "'
        + b"A. " * 9000
        + b'"}}\n',
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


def test_who_sends_many_events_at_once_does_not_hold_the_loop(server):
    from melforge.common.serve.protocols.wyoming import WyomingClient

    async def run():
        async def drain(): ...

        reader, answers, rounds = asyncio.StreamReader(), [], 0
        writer = SimpleNamespace(write=answers.append, writelines=answers.extend, drain=drain)
        reader.feed_data(b'{"type": "ping"}\n' * 500)
        reader.feed_eof()
        client = asyncio.create_task(WyomingClient(server.service, reader, writer).run())
        while not client.done():
            rounds += 1
            await asyncio.sleep(0)
        await client
        return rounds, b"".join(answers).count(b"pong")

    rounds, answered = asyncio.run(run())
    assert answered == 500 <= rounds


def test_a_client_that_leaves_leaves_nothing_behind(server):
    from wyoming.client import AsyncTcpClient

    async def run():
        async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", server.wyoming) as client:
            await client.write_event(synthesize(" ".join([TEXT] * 30)))
            await client.read_event()

    asyncio.run(run())
    wait_for(lambda: not server.service.running and not server.service.scheduler.jobs)


@contextmanager
def alone(uri):
    """`melforge wyoming` in a process of its own, and where it says that it listens."""
    words = [sys.executable, "-m", "melforge", "wyoming", "--uri", uri]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process, json.loads(process.stderr.readline())["url"]
        finally:
            process.kill()


def test_alone_on_stdin_and_stdout_it_speaks_with_any_speaker():
    from wyoming.event import read_event, write_event
    from wyoming.info import Describe, Info

    with alone("stdio://") as (process, _):
        write_event(Describe().event(), process.stdin)
        (speaks,) = Info.from_event(read_event(process.stdout)).tts
        voices = {voice.name: voice for voice in speaks.voices}
        assert {"hazel", "orchard", "daniel"} <= set(voices)
        assert "daniel" in [speaker.name for speaker in voices["orchard"].speakers]
        heard = []
        for voice in ({"name": "daniel"}, {"name": "orchard", "speaker": "daniel"}, {"name": "emma"}):
            write_event(synthesize("Hello there.", **voice), process.stdin)
            events = [read_event(process.stdout)]
            while events[-1].type != "audio-stop":
                events.append(read_event(process.stdout))
            heard.append(audio_of(events).tolist())
        assert heard[0] == heard[1] != heard[2]
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_what_is_being_spoken_is_finished_when_it_is_to_end(tmp_path):
    with alone(f"unix://{tmp_path}/socket") as (process, uri):
        from wyoming.client import AsyncClient

        async def run():
            found = []
            async with (
                asyncio.timeout(PATIENCE),
                AsyncClient.from_uri(uri) as idle,
                AsyncClient.from_uri(uri) as client,
            ):
                await client.write_event(synthesize(" ".join([TEXT] * 8)))
                while event := await client.read_event():
                    if event.type == "audio-chunk" and "audio-chunk" not in found:
                        process.send_signal(signal.SIGTERM)
                    found.append(event.type)
                assert await idle.read_event() is None
            return found

        assert asyncio.run(run())[-1] == "audio-stop"
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:10200", "tcp://127.0.0.1", "tcp://:1", "unix://", "tcp://h:x"]
)
def test_another_address_is_an_error(uri):
    with pytest.raises(InputError, match=r"give tcp://HOST:PORT, unix://PATH or stdio://"):
        wyoming(["--uri", uri])
    with pytest.raises(OSError, match=r"cannot listen at unix:///nowhere/x: "):
        wyoming(["--uri", "unix:///nowhere/x"])


@pytest.mark.zeroconf
def test_home_assistant_finds_it():
    """By zeroconf, for as long as it is there."""
    from zeroconf import ServiceStateChange
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

    from melforge.common.serve.protocols.wyoming import ANNOUNCED, announce

    async def run():
        seen = asyncio.Queue()

        def changed(zeroconf, service_type, name, state_change):
            if f"-{port}." in name:
                seen.put_nowait((name, state_change))

        port = 20000 + os.getpid() % 20000  # that nobody else on this network tells
        async with asyncio.timeout(PATIENCE), AsyncZeroconf() as zeroconf:
            browser = AsyncServiceBrowser(zeroconf.zeroconf, ANNOUNCED, handlers=[changed])
            announcing = asyncio.create_task(announce("0.0.0.0", port))
            name, change = await seen.get()
            assert change is ServiceStateChange.Added
            found = AsyncServiceInfo(ANNOUNCED, name)
            assert await found.async_request(zeroconf.zeroconf, 10_000) and found.port == port
            assert found.parsed_addresses()
            announcing.cancel()
            while (await seen.get())[1] is not ServiceStateChange.Removed:
                pass
            await browser.async_cancel()

    asyncio.run(run())


def test_keys_and_several_processes_are_refused():
    with pytest.raises(InputError, match="Wyoming has no keys"):
        serve(["--wyoming-port", "10200", "--host", "0.0.0.0"])
    with pytest.raises(InputError, match="for one process here"):
        serve(["--wyoming-port", "10200", "--processes", "2"])


def test_a_load_has_rows_of_wyoming_beside_those_of_http(server, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("Hello there.\nThe second text.\n")
    address = f"tcp://127.0.0.1:{server.wyoming}"
    words = ["--server", f"{server.url},{address}", "--texts", str(texts), "--voice", "hazel"]
    assert benchmark([*words, "--streams", "2", "-o", str(tmp_path)]) == 0
    assert f"{address}, closed loop, 2 streams: first audio" in capsys.readouterr().err
    rows = json.loads((tmp_path / "server.json").read_text())["rows"]
    assert [row["address"][:4] for row in rows] == ["http", "tcp:"] and not any(row["errors"] for row in rows)
    assert rows[0]["audio_s"] == pytest.approx(rows[1]["audio_s"], rel=0.01)
    assert benchmark(["--server", address, "--voice", "nobody"]) != 0
    assert "nobody" in capsys.readouterr().err
    with pytest.raises(InputError, match="no server at tcp://127"):
        benchmark(["--server", "tcp://127.0.0.1:1"])
