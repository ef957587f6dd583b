"""Each item of a batch has its own controls, and gets what it gets alone with them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.arrays import pad_to
from melforge.common.audio.contract import MelContract
from melforge.common.config.deployment import Deployment
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls, controls_of_each
from melforge.common.synthesis.loading import make_driver
from melforge.common.text.frontends import get_frontend
from melforge.common.weights.voices import ModelSource, load_voice
from tests.conftest import tiny_fastpitch

BACKENDS = ("torch", "onnx")
TEXTS = ("The birch canoe slid.", "Glue it.", "Four hours of work.")
OF_ITEMS = {
    "fastpitch": (
        Controls(pace=0.7, pitch_shift=30.0),
        Controls(pitch_amplify=1.5, pitch_invert=True),
        Controls(pace=1.3, pitch_flatten=True, pitch_shift=-20.0),
    ),
    "fastspeech": (Controls(pace=0.7), Controls(), Controls(pace=1.3)),
    "tacotron2": (Controls(seed=3, sharpness=0.0), Controls(seed=1), Controls(seed=7, sharpness=0.8)),
}
FORMS = [
    *((model, None, backend) for model in OF_ITEMS for backend in BACKENDS),
    ("fastspeech", "kernels", "torch"),
    ("tacotron2", "steps", "torch"),
]


@pytest.fixture(scope="module")
def ids() -> list[np.ndarray]:
    frontend = get_frontend("english")
    return [frontend(text).utterances[0].ids for text in TEXTS]


def limited(controls):
    """With few steps of a decoder."""
    return [replace(one, step_limit=40) for one in controls]


@pytest.mark.parametrize(("model", "form", "backend"), FORMS)
def test_items_of_an_acoustic_batch_are_those_alone(model, form, backend, ids):
    driver = make_driver(load_voice().source(model), backend, "cpu", decoder=form)
    controls = OF_ITEMS[model] if model != "tacotron2" else limited(OF_ITEMS[model])
    together = driver.synthesise(ids, controls)
    for row, (item, one) in enumerate(zip(ids, controls, strict=True)):
        alone = driver.synthesise([item], one)
        frames, symbols = int(alone.mel_lengths[0]), len(item)
        assert together.mel_lengths[row] == frames
        assert np.array_equal(together.durations[row, :symbols], alone.durations[0])
        np.testing.assert_allclose(together.mel[row, :, :frames], alone.mel[0], rtol=0, atol=1e-3)
        if alone.pitch is not None:
            np.testing.assert_allclose(together.pitch[row, :symbols], alone.pitch[0], rtol=1e-4, atol=1e-2)
        # The controls change something: the neighbour's give another mel.
        other = driver.synthesise([item], controls[row - 1])
        size = max(frames, other.mel.shape[2])
        mels = (pad_to(mel, (1, 80, size)) for mel in (alone.mel, other.mel))
        assert np.abs(np.subtract(*mels)).max() > 0.1
    if model != "tacotron2":
        assert np.array_equal(driver.predict_lengths(ids, controls), together.mel_lengths)


def test_each_item_has_its_speaker():
    network, config = tiny_fastpitch()
    config = replace(config, n_speakers=3)
    torch.manual_seed(0)
    state = {name: value.numpy() for name, value in type(network)(config).state_dict().items()}
    source = ModelSource("fastpitch", config, Path("weights"), MelContract(), given_state=state)
    driver = make_driver(source, "torch", "cpu")
    item = np.arange(1, 12)
    controls = [Controls(speaker=speaker) for speaker in (2, 0, 2)]
    together = driver.synthesise([item] * 3, controls).mel
    assert np.abs(together[0, :, :8] - together[1, :, :8]).max() > 1e-3
    np.testing.assert_allclose(together[0], together[2], rtol=0, atol=1e-5)
    with pytest.raises(InputError, match=r"speaker 3 does not exist: this model has 3 \(0 to 2\)"):
        driver.synthesise([item] * 2, [Controls(), Controls(speaker=3)])


def test_what_a_stage_takes_once_cannot_differ_in_a_batch(ids):
    fixed = make_driver(
        load_voice().source("fastspeech"),
        "torch",
        "cpu",
        decoder="fixed",
        deployment=Deployment(trt_max_input_seq_len=64, trt_max_output_seq_len=512),
    )
    assert fixed.batch_key(Controls(pace=1.3)) != fixed.batch_key(Controls())
    assert fixed.batch_key(Controls(seed=1, volume=2.0)) == fixed.batch_key(Controls())
    with pytest.raises(ValueError, match="fastspeech cannot have these controls in one batch"):
        fixed.synthesise(ids[:2], [Controls(), Controls(pace=1.3)])


@pytest.mark.parametrize("model", ["hifigan", "waveglow"])
def test_items_of_a_vocoders_batch_are_those_alone(model, monkeypatch):
    """As kernels on a GPU take them: by one launch, those that are denoised apart from the others."""
    how = Deployment(trt_max_output_seq_len=100, mask_padding=True)
    driver = make_driver(load_voice().source(model), "torch", "cpu", deployment=how)
    monkeypatch.setattr(driver.generator, "prefers_batches", True)
    rng = np.random.default_rng(0)
    mels = [rng.standard_normal((80, frames), np.float32) * 2 - 5 for frames in (40, 61, 33, 61)]
    controls = [
        Controls(seed=1, sigma=0.5, denoising_strength=0.3),
        Controls(seed=2, denoising_strength=0.0),
        Controls(seed=1, sigma=0.9, denoising_strength=1.0),
        Controls(seed=2, sigma=0.7, denoising_strength=0.0),
    ]
    batches, vocode_batch = [], driver._vocode_batch
    monkeypatch.setattr(driver, "_vocode_batch", lambda *a: batches.append(a[1]) or vocode_batch(*a))
    together = driver.vocode_each(mels, controls)
    assert [{one.denoising_strength > 0 for one in batch} for batch in batches] == [{True}, {False}]
    for mel, one, samples in zip(mels, controls, together, strict=True):
        (alone,) = driver.vocode_each([mel], [one])
        assert samples.shape == alone.shape == (mel.shape[1] * 256,)
        np.testing.assert_allclose(samples, alone, rtol=0, atol=2e-5)
        (other,) = driver.vocode_each([mel], [replace(one, denoising_strength=0.6)])
        assert np.abs(other - samples).max() > 1e-4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "pair", [("fastpitch", "waveglow"), ("fastspeech", "hifigan"), ("tacotron2", "hifigan")]
)
def test_texts_with_controls_of_their_own_are_spoken_as_alone(pair, backend):
    tts = TextToSpeech.load(*pair, backend=backend, device="cpu")
    known = tts.acoustic.controls | tts.vocoder.controls | {"seed", "volume"}
    asked = (
        {"pace": 0.7, "seed": 4, "volume": 0.5, "denoising_strength": 0.2},
        {"pitch_shift": 20.0, "sigma": 0.4, "seed": 9},
        {"pace": 1.3, "sigma": 0.8, "volume": 1.5, "denoising_strength": 0.0, "sharpness": 0.6},
    )
    controls = [Controls(**{name: value for name, value in one.items() if name in known}) for one in asked]
    each = [tts.speak(text, one) for text, one in zip(TEXTS, controls, strict=True)]
    for text, alone, answer in zip(TEXTS, each, tts.speak_many(TEXTS, controls, 3), strict=True):
        assert answer.text == text and len(answer.samples) == len(alone.samples)
        np.testing.assert_allclose(answer.samples, alone.samples, rtol=0, atol=2e-3)
    answers = dict(tts.speak_each(TEXTS, controls, batch_size=1))
    for number, alone in enumerate(each):
        np.testing.assert_array_equal(answers.pop(number).samples, alone.samples)
    assert not answers


def test_texts_that_differ_in_what_a_batch_has_once_come_into_different_batches(monkeypatch):
    tts = TextToSpeech.load("tacotron2", "hifigan", device="cpu")
    calls, synthesise = [], tts.acoustic.synthesise
    monkeypatch.setattr(tts.acoustic, "synthesise", lambda *a: calls.append(a[1]) or synthesise(*a))
    controls = [Controls(seed=number, step_limit=30 + 10 * (number % 2)) for number in range(5)]
    answers = tts.speak_many(["One.", "And two.", "Three.", "Four.", "So five."], controls, batch_size=4)
    assert [[one.seed for one in call] for call in calls] == [[0, 2, 4], [3, 1]]
    assert all(len({one.step_limit for one in call}) == 1 for call in calls)
    assert [answer.text for answer in answers] == ["One.", "And two.", "Three.", "Four.", "So five."]


def test_controls_are_as_many_as_texts(tts):
    one, other = Controls(pace=0.8), Controls(pace=1.2)
    assert controls_of_each(None, 2) == [Controls(), Controls()]
    assert controls_of_each(one, 2) == [one, one] and controls_of_each([one, other], 2) == [one, other]
    for texts in (["One.", "Two.", "Three."], ["One."]):
        with pytest.raises(InputError, match=f"2 controls for {len(texts)} texts: give one for each"):
            tts.speak_many(texts, [one, other])
        spoken = []
        with pytest.raises(InputError, match=f"2 controls for {len(texts)} texts: give one for each"):
            for number, _ in tts.speak_each(iter(texts), [one, other], batch_size=1):
                spoken.append(number)
        assert spoken == list(range(len(spoken)))
    with pytest.raises(InputError, match="the control 'sigma' would change nothing"):
        tts.speak_many(["One.", "Two."], [one, Controls(sigma=0.5)])
    assert tts.speak_many([], []) == []


@pytest.mark.parametrize("pair", [("tacotron2", "hifigan"), ("fastpitch", "waveglow")])
def test_streams_whose_acoustic_step_was_made_together_are_those_alone(pair, monkeypatch):
    tts = TextToSpeech.load(*pair, device="cpu")
    assert tts.acoustic.prefers_batches == (pair[0] == "tacotron2")
    monkeypatch.setattr(tts.acoustic.decoder, "prefers_batches", True)
    calls, synthesise = [], tts.acoustic.synthesise
    monkeypatch.setattr(tts.acoustic, "synthesise", lambda *a: calls.append(len(a[0])) or synthesise(*a))
    texts = ("It works. It really does.", "Glue the sheet.", "Yes. No. All of it.")
    controls = [Controls(seed=number, volume=1.0 - number / 4) for number in range(3)]
    alone = [tts.speak(text, one) for text, one in zip(texts, controls, strict=True)]
    calls.clear()
    streams = [tts.stream(text, one) for text, one in zip(texts, controls, strict=True)]
    chunks: list[list[np.ndarray]] = [[] for _ in streams]
    while any(stream.needs_mel for stream in streams):
        waiting = [stream for stream in streams if stream.needs_mel]
        tts.speak_ahead(streams)
        assert not any(stream.needs_mel for stream in streams) and calls[-1] == len(waiting)
        made = len(calls)
        tts.speak_ahead(streams)  # nobody needs anything
        for number, stream in enumerate(streams):
            if stream in waiting:
                chunks[number].append(next(stream))
                while not stream.needs_mel and (more := next(stream, None)) is not None:
                    chunks[number].append(more)
        assert len(calls) == made
    assert calls == [3, 2, 1]
    for stream, made, wanted in zip(streams, chunks, alone, strict=True):
        assert stream.starts == list(wanted.starts) and stream.timings.stages["acoustic"] > 0
        np.testing.assert_allclose(np.concatenate(made), wanted.samples, rtol=0, atol=2e-3)


def test_what_cannot_be_spoken_ahead_is_an_error_of_its_own_stream(tts, monkeypatch):
    monkeypatch.setattr(tts.acoustic.decoder, "prefers_batches", True)
    synthesise = tts.acoustic.synthesise

    def refusing(ids, controls, styles=()):
        if any(one.seed == 1 for one in controls):
            raise InputError("no such seed")
        return synthesise(ids, controls, styles)

    monkeypatch.setattr(tts.acoustic, "synthesise", refusing)
    streams = [tts.stream("It works.", Controls(seed=seed)) for seed in (0, 1, 2)]
    tts.speak_ahead(streams)
    assert [stream.needs_mel for stream in streams] == [False, True, False]
    assert len(np.concatenate(list(streams[0])))
    with pytest.raises(InputError, match="no such seed"):
        next(streams[1])
