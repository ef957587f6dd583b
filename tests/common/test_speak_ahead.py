"""The next chunks of several streams, computed in one batch: each is what it would have been alone."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from melforge.common.engines import WrappedEngine
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.driver import Driver
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.voices import load_voice

SAME_DB = 100.0  # float32, in another order of additions
TEXTS = (
    "The birch canoe slid on the smooth planks. Glue the sheet.",
    "It works.",
    "Four hours of steady work faced us. Yes.",
)
CONTROLS = (
    Controls(pace=0.8, seed=1, denoising_strength=0.2),
    Controls(pitch_shift=20.0, seed=2, volume=0.5, denoising_strength=0.0),
    Controls(pace=1.3, seed=3, denoising_strength=0.0),
)


class Counted(WrappedEngine):
    """As a kernel on a GPU: it takes less time for a batch. Notes the batches' sizes, those of one input."""

    def __init__(self, inner, name="mel"):
        super().__init__(inner)
        self.prefers_batches, self.name = True, name
        self.batches = []

    def __call__(self, **inputs):
        self.batches.append(len(inputs[self.name]))
        return super().__call__(**inputs)


def batching(model):
    """The voice's vocoder with padding masked, as on kernels, at any length."""
    driver = make_driver(load_voice().source(model), "torch", "cpu", 1, decoder="masked")
    driver.generator = Counted(driver.generator)
    assert driver.prefers_batches
    return driver


def decibels(wanted, got):
    """How much louder the wanted samples are than the difference."""
    noise = np.mean((wanted.astype(np.float64) - got) ** 2)
    return 10 * np.log10(np.mean(wanted.astype(np.float64) ** 2) / noise) if noise else np.inf


def some_mels(*lengths):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, 80, frames), np.float32) * 2 - 5 for frames in lengths]


@pytest.fixture(scope="module")
def tts():
    """A pair whose models both gain by batches."""
    loaded = TextToSpeech.load("fastpitch", "waveglow", device="cpu", threads=1)
    loaded.vocoder = batching("waveglow")
    loaded.acoustic.decoder = Counted(loaded.acoustic.decoder, "encoded")
    assert loaded.acoustic.prefers_batches
    return loaded


def powers_of_two(monkeypatch):
    """Batches of few sizes, as on kernels."""
    monkeypatch.setattr(Driver, "padded_batch", lambda self, items: 1 << (items - 1).bit_length())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("model", ["hifigan", "waveglow"])
def test_chunks_made_together_are_those_alone(model, padded, monkeypatch):
    if padded:
        powers_of_two(monkeypatch)
    driver = batching(model)
    mels = some_mels(90, 61, 42, 61, 120)
    controls = [
        Controls(seed=1, sigma=0.5, denoising_strength=0.3),
        Controls(seed=2, denoising_strength=0.0),
        Controls(seed=1, sigma=0.9, denoising_strength=1.0),
        Controls(seed=2, sigma=0.7, denoising_strength=0.0),
        Controls(seed=5, denoising_strength=0.2),
    ]
    sizes = [ChunkSizes(*one) for one in ((20, 40), (24, 24), (40, 40), (20, 60), (40, 40))]
    given = list(zip(mels, sizes, controls, strict=True))
    alone = [list(driver.vocode_chunks(*one)) for one in given]
    several = [driver.vocode_chunks(*one) for one in given]
    made: list[list[np.ndarray]] = [[] for _ in several]
    batches = driver.generator.batches
    batches.clear()
    while any(chunks.window for chunks in several):
        driver.make_ahead(several)
        launches = len(batches)
        driver.make_ahead([chunks for chunks in several if not chunks.needs_run])
        assert len(batches) == launches
        for mine, chunks in zip(made, several, strict=True):
            if chunks.window:
                mine.append(next(chunks))
    # Those that are denoised apart from the others; one that is much shorter than the others was alone.
    assert batches == ([2, 4, 2, 2, 1, 2, 2] if padded else [2, 3, 2, 2, 1, 2, 2])
    for mine, wanted in zip(made, alone, strict=True):
        assert [len(chunk) for chunk in mine] == [len(chunk) for chunk in wanted]
        for chunk, other in zip(mine, wanted, strict=True):
            assert np.abs(chunk).max() > 1e-3 and decibels(other, chunk) >= SAME_DB


@pytest.mark.parametrize("model", ["hifigan", "waveglow"])
def test_a_mel_alone_is_made_whole_for_its_first_chunk(model):
    driver = batching(model)
    driver.at_once = 100
    sizes, controls = ChunkSizes(20, 40), Controls(seed=1, sigma=0.5, denoising_strength=0.3)
    batches = driver.generator.batches
    for mel, launches in zip(some_mels(90, 120), (1, 4), strict=True):  # the second is too long for that
        wanted = list(driver.vocode_chunks(mel, sizes, controls))
        chunks = driver.vocode_chunks(mel, sizes, controls, at_once=True)
        batches.clear()
        made = [next(chunks)]
        assert chunks.needs_run == (launches > 1)
        made += chunks
        assert len(batches) == launches and [len(one) for one in made] == [len(one) for one in wanted]
        assert decibels(np.concatenate(wanted), np.concatenate(made)) >= SAME_DB
    several = [driver.vocode_chunks(mel, sizes, controls, at_once=True) for mel in some_mels(90, 80)]
    batches.clear()
    driver.make_ahead(several)  # not whole: others would wait
    assert batches == [2] and all(len(next(one)) == 20 * 256 and one.needs_run for one in several)
    assert len(next(several[0])) == 40 * 256 and batches == [2, 1]


def streams_of(tts):
    return [tts.stream(text, one) for text, one in zip(TEXTS, CONTROLS, strict=True)]


def runs(tts):
    """How often the models ran so far."""
    return len(tts.acoustic.decoder.batches), len(tts.vocoder.generator.batches)


@pytest.mark.parametrize("padded", [False, True])
def test_streams_spoken_ahead_are_those_alone(tts, padded, monkeypatch):
    alone = [tts.speak(text, one).samples for text, one in zip(TEXTS, CONTROLS, strict=True)]
    if padded:
        powers_of_two(monkeypatch)
    streams = streams_of(tts)
    assert {stream.batch_key for stream in streams} == {tts}
    made: list[list[np.ndarray]] = [[] for _ in streams]
    tts.acoustic.decoder.batches.clear()
    going = dict(zip(streams, made, strict=True))
    while going:
        tts.speak_ahead(list(going))
        for stream, mine in list(going.items()):
            if (samples := next(stream, None)) is None:
                del going[stream]
            else:
                mine.append(samples)
    mels = tts.acoustic.decoder.batches
    assert mels[0] == (4 if padded else 3) and len(mels) < 5  # of five utterances
    for mine, wanted, stream in zip(made, alone, streams, strict=True):
        np.testing.assert_allclose(np.concatenate(mine), wanted, rtol=0, atol=2e-3)
        assert stream.timings.stages["acoustic"] > 0 and stream.timings.stages["vocoder"] > 0


def test_what_was_computed_ahead_is_not_computed_again(tts):
    streams = streams_of(tts)
    before = runs(tts)
    tts.speak_ahead(streams)
    assert np.subtract(runs(tts), before).tolist() == [1, 1]  # the one that is denoised would be alone
    before = runs(tts)
    tts.speak_ahead(streams[1:])
    assert len(next(streams[1])) and len(next(streams[2]))
    assert runs(tts) == before
    next(streams[0])
    assert np.subtract(runs(tts), before).tolist() == [0, 1]


def test_a_stream_that_is_closed_drops_what_was_computed(tts):
    streams = streams_of(tts)
    tts.speak_ahead(streams)
    streams[1].close()
    assert streams[1].mel_chunks is None and next(streams[1], None) is None
    assert len(next(streams[2]))


def test_what_was_computed_ahead_is_read_while_others_use_the_models(tts):
    streams = streams_of(tts)[1:]
    tts.speak_ahead(streams)
    with ThreadPoolExecutor(1) as pool, tts.models_turn:
        assert [len(pool.submit(next, one).result(timeout=30)) for one in streams]


def test_an_item_that_is_not_finite_harms_no_other(tts, monkeypatch):
    class Spoilt(WrappedEngine):
        def __call__(self, **inputs):
            audio = np.array(super().__call__(**inputs)["audio"])
            audio[0] = np.nan
            return {"audio": audio}

    wanted = next(streams_of(tts)[2])
    _, spoilt, whole = streams_of(tts)
    monkeypatch.setattr(tts.vocoder, "generator", Spoilt(tts.vocoder.generator))
    tts.speak_ahead([spoilt, whole])
    with pytest.raises(InputError, match="the models gave NaN instead of audio"):
        next(spoilt)
    np.testing.assert_allclose(next(whole), wanted, rtol=0, atol=2e-3)


def test_all_engines_run_in_their_objects_turn():
    """A stream's too, whose vocoder finds the pitch of a whole mel before the first chunk."""
    turn, outside = threading.RLock(), []

    def is_free() -> bool:
        if free := turn.acquire(blocking=False):
            turn.release()
        return free

    class Watched(WrappedEngine):
        def __call__(self, **inputs):
            with ThreadPoolExecutor(1) as other:
                if other.submit(is_free).result():
                    outside.append(self.stage.full_name)
            return super().__call__(**inputs)

    tts = TextToSpeech.load("fastpitch", "hifigan", watch=Watched)
    tts.models_turn = turn
    assert len(list(tts.stream(TEXTS[0]))) > 1
    streams = [tts.stream(text) for text in TEXTS[1:]]
    tts.speak_ahead(streams)
    assert all(len(np.concatenate(list(stream))) for stream in streams)
    tts.speak(TEXTS[1])
    assert not outside
