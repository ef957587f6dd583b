"""OpenAI's own client against the server: ways of streaming, our fields, errors."""

import numpy as np
import pytest

from tests.serve.conftest import running, samples_of, wait_for

pytestmark = [pytest.mark.serve, pytest.mark.openai]
TEXT = "The first sentence is here. The second one follows."


@pytest.fixture(scope="module")
def openai():
    import openai

    return openai


@pytest.fixture(scope="module")
def create(server, openai):
    """`client.audio.speech`, without a second attempt at anything."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0).audio.speech


def test_three_ways_of_streaming_give_the_same(create, direct):
    how = {"model": "gpt-4o-mini-tts", "voice": "coral", "input": TEXT, "response_format": "pcm"}
    whole = create.create(**how, instructions="Calmly.").content
    with create.with_streaming_response.create(**how) as answer:
        assert b"".join(answer.iter_bytes(999)) == whole  # which cuts samples in the middle
    with create.with_streaming_response.create(**how, stream_format="sse") as answer:
        assert sum("speech.audio.d" in line for line in answer.iter_lines()) >= 2
    samples = samples_of(whole)
    assert abs(len(samples) / 24000 - direct.speak(TEXT).seconds) < 0.001 and np.abs(samples).max() > 1000


def test_our_fields_travel_as_extra_ones(create, direct):
    from melforge.common.speech import Controls

    extra = {"pitch_shift": 30.0, "sample_rate": 22050}
    how = {
        "model": "fastpitch-hifigan",
        "voice": "hazel",
        "input": TEXT,
        "response_format": "pcm",
        "speed": 2.0,
    }
    samples = samples_of(create.create(**how, extra_body=extra).content)
    wanted = direct.speak(TEXT, Controls(pace=2.0, pitch_shift=30.0)).samples
    assert len(samples) == len(wanted) and np.abs(samples - np.rint(wanted * 32767)).max() <= 1


def test_errors_have_the_client_s_classes(create, openai):
    with pytest.raises(openai.BadRequestError) as error:
        create.create(model="tts-1", voice="alloy", input="Hello.", response_format="pcm", speed=9)
    assert error.value.param == "speed" and error.value.body["message"]
    with pytest.raises(openai.BadRequestError, match="unknown model 'tts-7'"):
        create.create(model="tts-7", voice="alloy", input="Hello.")
    with running((b"right",)) as server:
        how = {"base_url": f"{server.url}/v1", "max_retries": 0}
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(**how, api_key="wrong").models.list()
        client = openai.OpenAI(**how, api_key="right")
        assert client.models.list().data[0].id == "fastpitch-hifigan"
        assert client.models.retrieve("tts-1").id == "tts-1"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt-5")
        server.service.draining = True
        with pytest.raises(openai.InternalServerError) as stopping:
            client.audio.speech.create(model="tts-1", voice="alloy", input="Hello.")
        assert stopping.value.status_code == 503
        wait_for(lambda: not server.service.running)
