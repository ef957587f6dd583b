"""A replica without Ray: it answers as the server does, and is healthy as long as it speaks."""

import asyncio
import json

import numpy as np
import pytest

from melforge.common.errors import InputError

pytestmark = pytest.mark.serve
TEXT = "Hello there. Here is more of it."


def run_with_replica(voice, use):
    """What `use(replica)` gives."""
    from melforge.common.cluster.server import Replica
    from melforge.common.serve.keys import Access
    from melforge.common.serve.pairs import LoadOptions
    from melforge.common.serve.settings import ServeSettings

    async def run():
        options = LoadOptions(voice=str(voice), device="cpu", threads=1)
        replica = Replica.__new__(Replica)
        await Replica.__init__(replica, ServeSettings(workers=1), options, Access())
        try:
            return await use(replica)
        finally:
            replica.service.stop()

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def no_log(monkeypatch):
    monkeypatch.setattr("melforge.common.cluster.server.set_up_logging", lambda: None)


async def ask(replica, method, path, **fields):
    from melforge.common.cluster.forward import Asked

    headers = ((b"x-request-id", b"mine"), (b"content-type", b"application/json"))
    request = Asked(method, path, b"", headers, json.dumps(fields).encode(), "1.1")
    _, *messages = [message async for message in replica.answer(request)]
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages[1:])


def test_it_speaks_as_speak_does_and_says_that_it_is_healthy(tiny_voice):
    from melforge.common.runner import TextToSpeech

    async def use(replica):
        await replica.check_health()
        how = {"model": "tts-1", "voice": "alloy", "response_format": "pcm", "sample_rate": 22050}
        spoken = await ask(replica, "POST", "/v1/audio/speech", input=TEXT, **how)
        wrong = await ask(replica, "POST", "/v1/audio/speech", input="", **how)
        return spoken, wrong, await ask(replica, "GET", "/ready")

    spoken, wrong, ready = run_with_replica(tiny_voice, use)
    wanted = TextToSpeech.load(voice=tiny_voice, device="cpu", threads=1).speak(TEXT).samples
    samples = np.frombuffer(spoken[1], "<i2") / 32768
    assert spoken[0] == 200 and len(samples) == len(wanted) and np.allclose(samples, wanted, atol=1e-4)
    assert wrong[0] == 400 and b"the text is empty" in wrong[1]
    assert ready == (200, b'{"status":"ready"}')


def test_one_that_cannot_speak_is_not_healthy(tiny_voice, monkeypatch):
    async def use(replica):
        replica.service.last_step = float("-inf")  # nothing was spoken lately: it has to speak now

        def failing(*_):
            raise RuntimeError("the engine is gone")

        monkeypatch.setattr(replica.service.pairs, "chunk_sizes", failing)
        with pytest.raises(RuntimeError, match="a short text could not be spoken: the engine is gone"):
            await replica.check_health()
        return True

    assert run_with_replica(tiny_voice, use)


def test_one_whose_models_cannot_be_loaded_says_why(tiny_voice, monkeypatch):
    def failing(*_):
        raise InputError("no such file")

    monkeypatch.setattr("melforge.common.serve.pairs.Pairs._load", failing)
    with pytest.raises(InputError, match="no such file"):
        run_with_replica(tiny_voice, None)
