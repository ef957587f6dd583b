"""The plugins of LiveKit and Pipecat for NVIDIA's services: all that changes is an address."""

import asyncio

import numpy as np
import pytest

from tests.serve import test_riva
from tests.serve.conftest import PATIENCE, samples_of
from tests.serve.test_riva import http_pcm, wait_until_idle

pytestmark = [pytest.mark.serve, pytest.mark.riva]
SENTENCES = ("The first sentence is here.", "The second one follows.")
TEXT = " ".join(SENTENCES)
SAID, HEARD = "She said that it was a good day.", "she said that it was a good day"
RATE = 16000
server = test_riva.server


@pytest.fixture(scope="module")
def spoken(direct):
    """The sentence and two seconds of silence, int16 [S] at 16 kHz."""
    import soxr

    samples = soxr.resample(direct.speak(SAID).samples, direct.sampling_rate, RATE)
    return (np.concatenate([samples, np.zeros(2 * RATE, np.float32)]) * 32767).astype(np.int16)


@pytest.mark.livekit_nvidia
def test_livekit_speaks(server):
    from livekit.plugins.nvidia import TTS

    async def speak():
        tts = TTS(server=f"127.0.0.1:{server.riva}", use_ssl=False)
        assert "English-US.hazel" in tts.list_voices()["en-US"]["voices"]
        async with tts.synthesize(TEXT) as stream:
            return [one.frame async for one in stream]

    frames = asyncio.run(speak())
    assert {frame.sample_rate for frame in frames} == {RATE}
    got = samples_of(b"".join(bytes(frame.data) for frame in frames))
    sentences = [http_pcm(server, text, rate=RATE) for text in SENTENCES]  # each is a call of its own
    wanted = samples_of(b"".join(sentences))
    assert 0 <= len(got) - len(wanted) <= RATE and np.array_equal(got[: len(wanted)], wanted)
    wait_until_idle(server)


@pytest.mark.livekit_nvidia
def test_livekit_hears(server, spoken):
    from livekit import rtc
    from livekit.agents.stt import SpeechEventType
    from livekit.plugins.nvidia import STT

    async def hear():
        stt = STT(server=f"127.0.0.1:{server.riva}", use_ssl=False)
        async with stt.stream() as stream:
            for start in range(0, len(spoken), 1600):
                part = spoken[start : start + 1600]
                stream.push_frame(rtc.AudioFrame(part.tobytes(), RATE, 1, len(part)))
            async for event in stream:  # the stream is still open
                if event.type == SpeechEventType.FINAL_TRANSCRIPT:
                    stream.end_input()
                    return event.alternatives[0]

    async def in_time():
        async with asyncio.timeout(PATIENCE):
            return await hear()

    found = asyncio.run(in_time())
    assert found.text == HEARD and len(found.words) == len(HEARD.split())
    wait_until_idle(server)


@pytest.mark.pipecat_nvidia
@pytest.mark.parametrize("mode", ["per_sentence", "stitched"])
def test_pipecat_speaks(server, mode):
    from pipecat.frames.frames import TTSAudioRawFrame, TTSSpeakFrame
    from pipecat.services.nvidia.tts import NvidiaTTSService
    from pipecat.tests.utils import run_test

    async def speak():
        settings = NvidiaTTSService.Settings(synthesis_mode=mode)
        address = {"server": f"127.0.0.1:{server.riva}", "use_ssl": False}
        service = NvidiaTTSService(**address, sample_rate=22050, settings=settings)
        return await run_test(service, frames_to_send=[TTSSpeakFrame(TEXT)], start_timeout=PATIENCE)

    frames, errors = asyncio.run(speak())
    audio = [frame for frame in frames if isinstance(frame, TTSAudioRawFrame)]
    assert not errors and {frame.sample_rate for frame in audio} == {22050}
    got, wanted = b"".join(frame.audio for frame in audio), http_pcm(server, TEXT)
    assert got == wanted
    wait_until_idle(server)


@pytest.mark.pipecat_nvidia
def test_pipecat_hears(server, spoken):
    from pipecat.frames import frames as of
    from pipecat.services.nvidia.stt import NvidiaSegmentedSTTService
    from pipecat.tests.utils import run_test

    async def hear():
        service = NvidiaSegmentedSTTService(
            server=f"127.0.0.1:{server.riva}", use_ssl=False, sample_rate=RATE
        )
        heard = of.InputAudioRawFrame(spoken.tobytes(), RATE, 1)
        frames = [of.VADUserStartedSpeakingFrame(), heard, of.VADUserStoppedSpeakingFrame()]
        return await run_test(service, frames_to_send=frames, start_timeout=PATIENCE)

    frames, upstream = asyncio.run(hear())
    assert not any(isinstance(frame, of.ErrorFrame) for frame in (*frames, *upstream))
    assert [frame.text for frame in frames if isinstance(frame, of.TranscriptionFrame)] == [HEARD]
    wait_until_idle(server)


@pytest.mark.pipecat_nvidia
def test_pipecat_hears_a_stream_as_it_comes(server, spoken):
    from pipecat.frames import frames as of
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineParams, PipelineWorker
    from pipecat.processors.frame_processor import FrameProcessor
    from pipecat.services.nvidia.stt import NvidiaSTTService
    from pipecat.workers.runner import WorkerRunner

    class Listener(FrameProcessor):
        async def process_frame(self, frame, direction):
            await super().process_frame(frame, direction)
            found.put_nowait(frame)
            await self.push_frame(frame, direction)

    async def next_of(kinds):
        while not isinstance(frame := await found.get(), kinds):
            pass
        return frame

    async def hear():
        service = NvidiaSTTService(server=f"127.0.0.1:{server.riva}", use_ssl=False, sample_rate=RATE)
        params = PipelineParams(audio_in_sample_rate=RATE)
        worker, runner = PipelineWorker(Pipeline([service, Listener()]), params=params), WorkerRunner()
        await runner.add_workers(worker)
        running = asyncio.create_task(runner.run())
        heard = []
        for _ in range(2):
            for start in range(0, len(spoken), 320):
                part = spoken[start : start + 320].tobytes()
                await worker.queue_frame(of.InputAudioRawFrame(part, RATE, 1))
            heard.append((await next_of((of.TranscriptionFrame, of.ErrorFrame))).text)
        await worker.queue_frame(of.EndFrame())
        await running
        return heard

    async def in_time():
        async with asyncio.timeout(PATIENCE):
            return await hear()

    found = asyncio.Queue()
    assert asyncio.run(in_time()) == [HEARD, HEARD]
    wait_until_idle(server)
