"""Callers who share batches: each gets what it gets alone."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.voices import load_voice
from tests.serve.conftest import PATIENCE, ROOT, SPEECH, Running, own_pcm, running, samples_of, wait_for

pytestmark = pytest.mark.serve
TEXTS = (
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background. It works.",
    "Four hours of steady work faced us.",
    "Yes.",
    "The boy was there when the sun rose.",
    "A rod is used to catch pink salmon. Kick the ball.",
    "It really does.",
    "The source of the huge river is the clear spring.",
)
STEPS = 64  # of 16 bits: sums in another order, through all layers


@pytest.fixture(scope="module", params=["tacotron2-hifigan", "fastpitch-hifigan"])
def batching(request) -> Iterator[Running]:
    """Tacotron 2 gains by batches on ONNX Runtime; the other pair gets a vocoder that does, as on a GPU."""
    with running(pairs=request.param, workers=1) as one:
        pairs = one.service.pairs
        if request.param == "fastpitch-hifigan":
            tts, source = pairs.get(pairs.first), load_voice(ROOT / "voices" / "hazel").source("hifigan")
            vocoder = make_driver(source, "torch", "cpu", 1, decoder="masked")
            vocoder.generator.prefers_batches = True
            pairs._ready[pairs.first] = TextToSpeech(tts.frontend, tts.acoustic, vocoder, tts.sampling_rate)
        yield one


def fields_of(server: Running, number: int) -> dict:
    """Those of one caller: no other has the same."""
    fields = {"seed": number, "volume": 1.0 - number / 20, "denoising_strength": 0.2 * (number % 2)}
    if server.service.pairs.first.acoustic == "fastpitch":
        fields["speed"] = (0.8, 1.0, 1.25, 1.5)[number % 4]
    return {**own_pcm(TEXTS[number], **fields), "model": "tts-1"}


def alone(server: Running, number: int) -> np.ndarray:
    """What that caller would get with nobody else there."""
    fields = fields_of(server, number)
    pace = fields.get("speed", 1.0)
    controls = Controls(
        **{name: fields[name] for name in ("seed", "volume", "denoising_strength")}, pace=pace
    )
    pairs = server.service.pairs
    samples = pairs.get(pairs.first).speak(TEXTS[number], controls).samples
    return np.clip(np.rint(samples * 32767), -32768, 32767).astype(np.int64)


@pytest.fixture
def gate(batching, monkeypatch) -> Iterator[threading.Event]:
    """No step is made until it is set, so that callers meet."""
    opened, make = threading.Event(), batching.service.scheduler._make_chunks

    def held(*step):
        opened.wait(PATIENCE)
        return make(*step)

    monkeypatch.setattr(batching.service.scheduler, "_make_chunks", held)
    yield opened
    opened.set()


def sizes(server: Running) -> tuple[float, float]:
    """Batches so far, and texts in them, from /metrics."""
    with server.client() as client:
        page = client.get("/metrics").text
    count, total = (re.search(rf"^melforge_batch_size_{name} (.+)$", page, re.M) for name in ("count", "sum"))
    assert count and total
    return float(count[1]), float(total[1])


def ask_at_once(server: Running, gate: threading.Event, numbers) -> list[np.ndarray | int]:
    """What callers get who are all there before the first of them is spoken to: samples, or a status."""

    def ask(number: int) -> np.ndarray | int:
        with server.client() as client:
            answer = client.post(SPEECH, json=fields_of(server, number))
            return samples_of(answer.content) if answer.status_code == 200 else answer.status_code

    with ThreadPoolExecutor(len(numbers)) as callers:
        answers = [callers.submit(ask, number) for number in numbers]
        wait_for(lambda: server.service.scheduler.jobs == len(numbers), "all callers")
        gate.set()
        return [answer.result(PATIENCE) for answer in answers]


def same(got, wanted) -> bool:
    return len(got) == len(wanted) and np.abs(got - wanted).max() <= STEPS


def test_eight_callers_with_their_own_controls_get_what_they_get_alone(batching, gate):
    before = sizes(batching)
    answers = ask_at_once(batching, gate, range(8))
    for number, got in enumerate(answers):
        assert same(got, alone(batching, number))
    batches, texts = np.subtract(sizes(batching), before)
    assert batches >= 2 and texts >= 2 * batches


def test_an_utterance_that_cannot_be_spoken_harms_no_other_of_its_batch(batching, gate, monkeypatch):
    acoustic = batching.service.pairs.get(batching.service.pairs.first).acoustic
    synthesise = acoustic.synthesise

    def refusing(ids, controls, *others):
        if any(one.seed == 2 for one in controls):
            raise InputError("no such seed")
        return synthesise(ids, controls, *others)

    with monkeypatch.context() as patch:
        patch.setattr(acoustic, "synthesise", refusing)
        answers = ask_at_once(batching, gate, range(4))
    assert answers.pop(2) == 400
    for number, got in zip((0, 1, 3), answers, strict=True):
        assert same(got, alone(batching, number))


def test_a_fault_of_a_batch_leaves_each_to_itself(batching, gate, monkeypatch, caplog):
    pairs = batching.service.pairs

    def broken(streams):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(pairs.get(pairs.first), "speak_ahead", broken)
        answers = ask_at_once(batching, gate, range(4))
    for number, got in enumerate(answers):
        assert same(got, alone(batching, number))
    assert "a batch failed: each text is spoken alone" in caplog.text


def test_who_leaves_in_the_middle_of_a_batch_is_not_missed(batching, gate, monkeypatch):
    tts = batching.service.pairs.get(batching.service.pairs.first)
    speak_ahead, left = tts.speak_ahead, []

    def leaving(streams):
        """One of them leaves while its first chunk is made."""
        speak_ahead(streams)
        silent = [stream for stream in streams if not stream.timings.audio]
        if silent and not left:
            left.append(silent[-1])
            next(job for job in batching.service.scheduler._jobs if job.chunks is left[0]).cancel()

    with monkeypatch.context() as patch:
        patch.setattr(tts, "speak_ahead", leaving)
        answers = ask_at_once(batching, gate, range(4))
    assert len(left) == 1 and left[0].mel_chunks is None and next(left[0], None) is None
    gone = TEXTS.index(left[0].analysis.text)
    assert answers[gone] == 503
    for number in {0, 1, 2, 3} - {gone}:
        assert same(answers[number], alone(batching, number))
