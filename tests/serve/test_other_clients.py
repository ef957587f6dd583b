"""Clients of others: the plugins of LiveKit and Pipecat, and what Open WebUI sends."""

import asyncio
import http.client
import io
import json

import numpy as np
import pytest
import soundfile

from tests.serve.conftest import PATIENCE, at_24_khz, ratio_db, running, samples_of, wait_for

pytestmark = pytest.mark.serve
TEXT = "The first sentence is here. The second one follows."
SAID = "The birch canoe slid on the smooth planks."
HEARD = "the birch canoe slid on the smooth planks"
LOSSLESS_DB, LOSSY_DB = 45, 15
DELAY = 2400  # samples that an encoder of mp3 and its decoder may take


async def livekit_says(url, text, **how):
    """Samples at 24 kHz."""
    from livekit.plugins.openai import TTS

    tts = TTS(base_url=f"{url}/v1", api_key="none", **how)
    async with tts.synthesize(text) as stream:
        frames = [one.frame async for one in stream]
    await tts.aclose()
    assert {frame.sample_rate for frame in frames} == {24000}
    return samples_of(b"".join(bytes(frame.data) for frame in frames)) / 32767


@pytest.mark.livekit
@pytest.mark.parametrize("model", ["gpt-4o-mini-tts", "tts-1"])  # asked with server-sent events, and without
@pytest.mark.parametrize("format", ["pcm", "wav"])
def test_livekit_speaks_the_sentence(server, direct, model, format):
    wanted = at_24_khz(direct, TEXT)
    got = asyncio.run(livekit_says(server.url, TEXT, model=model, response_format=format))
    frame = 24000 // 50  # it fills its last one
    assert -24 <= len(got) - len(wanted) <= frame and ratio_db(wanted, got) > LOSSLESS_DB


@pytest.mark.livekit
def test_livekit_s_default_is_mp3_and_it_is_whole(server, direct):
    wanted = at_24_khz(direct, TEXT)
    got = asyncio.run(livekit_says(server.url, TEXT))
    delay = np.correlate(got[: len(wanted) // 2 + DELAY], wanted[: len(wanted) // 2]).argmax()
    assert len(wanted) <= len(got) <= len(wanted) + DELAY and ratio_db(wanted, got[delay:]) > LOSSY_DB


@pytest.mark.livekit
def test_livekit_is_told_what_is_wrong(server):
    from livekit.agents import APIConnectOptions, APIStatusError
    from livekit.plugins.openai import TTS

    async def speak():
        tts = TTS(base_url=f"{server.url}/v1", api_key="none", voice="nobody")
        async with tts.synthesize("Hello.", conn_options=APIConnectOptions(max_retry=0)) as stream:
            async for _ in stream:
                pass

    with pytest.raises(APIStatusError, match="unknown voice 'nobody'") as error:
        asyncio.run(speak())
    assert error.value.status_code == 400


@pytest.mark.pipecat
def test_pipecat_speaks_the_sentence(server, direct):
    from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame
    from pipecat.services.openai.tts import OpenAITTSService
    from pipecat.tests.utils import run_test

    async def speak():
        settings = OpenAITTSService.Settings(model="fastpitch-hifigan", voice="alloy", instructions="Calmly.")
        service = OpenAITTSService(api_key="none", base_url=f"{server.url}/v1", settings=settings)
        return await run_test(service, frames_to_send=[TTSSpeakFrame(TEXT)], start_timeout=PATIENCE)

    frames, errors = asyncio.run(speak())
    audio = [frame for frame in frames if isinstance(frame, TTSAudioRawFrame)]
    assert not errors and {frame.sample_rate for frame in audio} == {24000}
    wanted, got = at_24_khz(direct, TEXT), samples_of(b"".join(frame.audio for frame in audio)) / 32767
    assert abs(len(got) - len(wanted)) <= 24 and ratio_db(wanted, got) > LOSSLESS_DB


@pytest.fixture(scope="module")
def recording(direct):
    """A wav of 16 kHz."""
    import soxr

    samples = soxr.resample(direct.speak(SAID).samples, direct.sampling_rate, 16000)
    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format="wav")
    return file.getvalue()


@pytest.mark.livekit
@pytest.mark.parametrize("how", [{}, {"model": "gpt-transcribe"}])
def test_livekit_hears_the_sentence(server, recording, how):
    from livekit import rtc
    from livekit.plugins.openai import STT

    async def hear():
        stt = STT(base_url=f"{server.url}/v1", api_key="none", **how)
        samples = soundfile.read(io.BytesIO(recording), dtype="int16")[0]
        event = await stt.recognize(buffer=rtc.AudioFrame(samples.tobytes(), 16000, 1, len(samples)))
        await stt.aclose()
        return event.alternatives[0].text

    assert asyncio.run(hear()) == HEARD


@pytest.mark.pipecat
def test_pipecat_hears_the_sentence(server, recording):
    from pipecat.services.openai.stt import OpenAISTTService

    async def hear():
        service = OpenAISTTService(api_key="none", base_url=f"{server.url}/v1")
        return [frame.text async for frame in service.run_stt(recording)]

    assert asyncio.run(hear()) == [HEARD]


def open_webui(url, method, path, body=None, key=None):
    """An answer's status, media type and bytes; the headers are those of aiohttp and of requests."""
    headers = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "Python/3.11 aiohttp/3.12"}
    if body is not None:
        headers |= {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        headers |= {"X-OpenWebUI-User-Name": "Ada%20Byron", "X-OpenWebUI-User-Id": "1"}
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    connection.request(method, f"/v1{path}", body if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.getheader("content-type"), answer.read()


def test_open_webui_finds_models_and_voices_speaks_and_shows_the_error():
    with running((b"secret",)) as server:

        def ask(what, body, key="secret"):
            return open_webui(server.url, "POST" if what == "speech" else "GET", f"/audio/{what}", body, key)

        models, voices = (json.loads(ask(what, {})[2])[what] for what in ("models", "voices"))
        assert models[0]["id"] == "fastpitch-hifigan" and "tts-1-hd" in [one["id"] for one in models]
        assert {one["id"]: one["name"] for one in voices}["hazel"] == "hazel"
        for model, voice in ((models[0]["id"], voices[0]["id"]), ("tts-1-hd", "shimmer")):
            body = {"input": TEXT, "voice": voice, "model": model}
            status, kind, data = ask("speech", body)
            assert (status, kind, soundfile.info(io.BytesIO(data)).samplerate) == (200, "audio/mpeg", 24000)
        for other, key, wrong in (({**body, "input": " "}, "secret", 400), (body, "other", 401)):
            status, _, data = ask("speech", other, key)
            assert status == wrong and json.loads(data)["error"]["message"]
        wait_for(lambda: not server.service.running)
