"""Speaking: streams equal whole texts, batches equal single texts, controls do what they say."""

import contextlib
import dataclasses
import gc
import itertools
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from melforge.common.audio.denoiser import bias_spectrum
from melforge.common.errors import InputError
from melforge.common.processes import interrupts_held
from melforge.common.runner import ChunkSizes, TextToSpeech
from melforge.common.speech import Controls, shown
from melforge.common.synthesis import parallel
from melforge.common.synthesis.finish import FADE, KNEE, complete_peaks, finish, soft_clip
from melforge.common.text import Analysis, Frontend, Utterance
from melforge.hifigan.config import HifiganSettings
from melforge.hifigan.infer import HifiganVocoder
from tests.common.test_denoiser import denoised
from tests.conftest import tiny_fastpitch, tiny_hifigan

TEXT = (
    "The first sentence is rather long, so that it is spoken in several chunks, one after the other. "
    "The second is short. Is there a third?"
)


@pytest.fixture(scope="module")
def spoken(tts):
    return tts.speak(TEXT)


def test_audio_tells_what_was_spoken(spoken):
    assert spoken.sampling_rate == 22050 and spoken.samples.dtype == np.float32
    assert len(spoken.utterances) == 3 == len(spoken.starts)
    assert spoken.mel.shape == (80, sum(int(d.sum()) for d in spoken.durations))
    frames = sum(mel.shape[1] for mel in spoken.mels)
    pauses = sum(round(u.pause * 22050) for u in spoken.utterances)
    assert len(spoken.samples) == frames * 256 + pauses
    assert np.abs(spoken.samples).max() <= 1
    assert repr(spoken) == f"<Audio of {shown(TEXT)}, {spoken.seconds:.2f} s at 22050 Hz>"
    for start, mel, following in zip(spoken.starts, spoken.mels, spoken.starts[1:], strict=False):
        assert following > start + mel.shape[1] * 256 / 22050


def test_backends_mix_and_a_seed_changes_nothing_of_models_that_draw_no_noise(tiny_voice, tts, spoken):
    mixed = TextToSpeech.load(voice=tiny_voice, backend="acoustic=torch,vocoder=onnx", device="cpu")
    assert (mixed.acoustic.encoder.backend, mixed.vocoder.generator.backend) == ("torch", "onnx")
    np.testing.assert_allclose(mixed.speak(TEXT).samples, spoken.samples, atol=1e-4)
    np.testing.assert_array_equal(tts.speak(TEXT, Controls(seed=3)).samples, spoken.samples)


@pytest.mark.parametrize("vocoder", ["hifigan", "waveglow"])
@pytest.mark.parametrize("acoustic", ["fastpitch", "fastspeech", "tacotron2"])
def test_the_memory_of_models_goes_with_them(acoustic, vocoder):
    """In a process with many objects Python looks for cycles too seldom to wait for it."""
    tts = TextToSpeech.load(acoustic, vocoder, device="cpu")
    gc.collect()
    gc.disable()
    try:
        tts.speak("Hello.", Controls(denoising_strength=0.01))
        list(tts.stream("Hello."))
        models = [weakref.ref(tts.acoustic), weakref.ref(tts.vocoder), weakref.ref(tts.vocoder.generator)]
        del tts
        assert [model() for model in models] == [None] * 3
    finally:
        gc.enable()


def test_published_files_speak_with_their_own_text_chain(tmp_path):
    """Both published layouts in one go; the weights are random, the files as NVIDIA's scripts write them."""
    network, config = tiny_fastpitch()
    setup = {"symbol_set": "english_basic", "text_cleaners": ["english_cleaners_v2"], "p_arpabet": 1.0}
    content = {"state_dict": network.state_dict(), "config": dataclasses.asdict(config), "train_setup": setup}
    torch.save(content, tmp_path / "acoustic.pt")
    network, config = tiny_hifigan()
    torch.save(
        {"generator": network.state_dict(), "config": dataclasses.asdict(config)}, tmp_path / "vocoder.pt"
    )
    files = [str(tmp_path / "acoustic.pt"), f"vocoder={tmp_path}/vocoder.pt"]
    published = TextToSpeech.load(checkpoints=files, backend="torch", device="cpu")
    assert published.frontend.name == "fastpitch"
    assert published.acoustic.pitch_units.tolist() == [[200.0], [50.0]]
    assert published.speak("Hello there.").seconds > 0.1
    with pytest.raises(ValueError, match="two checkpoints for the vocoder"):
        TextToSpeech.load(checkpoints=[files[1], files[1]])
    with pytest.raises(InputError, match="device must be str, not None"):
        TextToSpeech.load(checkpoints=files, device=None)


def test_stream_leaves_before_the_rest_is_computed(tts, monkeypatch):
    calls = []
    synthesise = tts.acoustic.synthesise
    monkeypatch.setattr(tts.acoustic, "synthesise", lambda *a: calls.append(1) or synthesise(*a))
    stream = tts.stream(TEXT)
    next(stream)
    assert len(calls) == 1
    assert 0 < stream.timings.first_audio == stream.timings.total
    list(stream)
    assert len(calls) == 3 and stream.timings.first_audio < stream.timings.total


@pytest.mark.parametrize(
    "frames, first, chunk", [(1, 1, 1), (7, 3, 3), (60, 24, 24), (61, 1, 17), (150, 24, 64)]
)
def test_chunked_vocoder_equals_one_shot(tts, frames, first, chunk):
    mel = np.random.default_rng(frames).standard_normal((1, 80, frames), np.float32) * 2 - 5
    whole = tts.vocoder.generator(mel=mel)["audio"][0]
    chunks = list(tts.vocoder.vocode_chunks(mel, ChunkSizes(first, chunk)))
    assert len(chunks[0]) == min(first, frames) * 256
    np.testing.assert_allclose(np.concatenate(chunks), whole, atol=1e-4)
    even = list(tts.vocoder.vocode_chunks(mel, ChunkSizes(first, chunk, growth=3, even=True)))
    np.testing.assert_allclose(np.concatenate(even), whole, atol=1e-4)


def test_onnx_runtime_makes_a_long_mels_audio_in_pieces_on_a_cpu(tts, monkeypatch):
    mel = np.random.default_rng(0).standard_normal((1, 80, 700), np.float32)
    vocoder, taken = tts.vocoder, []
    (whole,) = vocoder.vocode_chunks(mel, ChunkSizes(700, 700))
    run = vocoder._run_chunks
    monkeypatch.setattr(
        vocoder, "_run_chunks", lambda batch: taken.extend(window for _, window in batch) or run(batch)
    )
    (audio,) = vocoder.vocode(mel, np.array([700]))
    np.testing.assert_allclose(audio, whole, rtol=0, atol=1e-5)
    assert len(taken) == 2 and max(window.frames for window in taken) < 400


def test_objects_that_share_drivers_speak_side_by_side(tts, tiny_voice, spoken):
    assert tts.acoustic.engines.can_be_shared and tts.vocoder.engines.can_be_shared
    other = TextToSpeech.load(voice=tiny_voice, backend="vocoder=torch", device="cpu")
    assert other.acoustic.engines.can_be_shared and not other.vocoder.engines.can_be_shared
    parts = (tts.frontend, tts.acoustic, tts.vocoder, tts.sampling_rate)
    together = threading.Barrier(4)

    def speak(_):
        alone = TextToSpeech(*parts, models_turn=contextlib.nullcontext())
        together.wait(60)
        return alone.speak(TEXT).samples

    with ThreadPoolExecutor(4) as pool:
        for samples in pool.map(speak, range(4)):
            np.testing.assert_array_equal(samples, spoken.samples)


def test_chunks_grow_and_the_last_are_even(tts):
    def frames_of(frames, *sizes, **how):
        mel = np.full((1, 80, frames), -5, np.float32)
        return [len(chunk) // 256 for chunk in tts.vocoder.vocode_chunks(mel, ChunkSizes(*sizes, **how))]

    assert frames_of(150, 10, 40) == [10, 20, 40, 40, 40]
    assert frames_of(162, 10, 40) == [10, 20, 40, 40, 40, 12]
    how = {"growth": 4, "even": True}
    assert frames_of(162, 10, 40, **how) == [10, 40, 40, 36, 36]
    assert frames_of(143, 10, 40, **how) == [10, 40, 40, 53]
    assert frames_of(13, 10, 40, **how) == [13]
    assert frames_of(14, 10, 40, **how) == [7, 7]
    sizes, found = ChunkSizes(10, 40, **how), [frames_of(n, 10, 40, **how) for n in range(1, 300)]
    assert max(map(max, found)) == sizes.longest == 53 and ChunkSizes(10, 40).longest == 40


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_is_the_same_whatever_its_chunks_are_stretched_to(tts, spoken, seed):
    chance, lengths = np.random.default_rng(seed), []
    stream, parts = tts.stream(TEXT, sizes=ChunkSizes(4, 16, even=True, stretched=90)), []
    while not stream.ended:
        stream.stretch(lambda: chance.uniform(0, 1.2))
        parts.append(next(stream))
        lengths.append(len(parts[-1]) // 256)
    np.testing.assert_allclose(np.concatenate(parts), spoken.samples, atol=1e-4)
    assert min(lengths) < 24 < max(lengths) <= ChunkSizes(stretched=90).longest


def test_only_a_streams_first_utterance_begins_with_small_chunks(tts):
    few, many = ([len(part) for part in tts.stream(TEXT, sizes=ChunkSizes(n, 1000))] for n in (1000, 2))
    assert len(few) == 3 < len(many) and many[-2:] == few[-2:]


def test_a_stream_keeps_nothing_of_the_audio_that_it_gave(tts):
    stream = tts.stream(TEXT, sizes=ChunkSizes(24, 24))
    samples = next(stream)
    memory = weakref.ref(samples if samples.base is None else samples.base)
    del samples
    assert memory() is None and len(next(stream))


def test_a_chunk_that_is_computed_is_not_stretched(tts):
    mel = np.full((1, 80, 200), -5, np.float32)
    chunks = tts.vocoder.vocode_chunks(mel, ChunkSizes(10, 20, stretched=50))
    chunks.stretch(8)  # it has more
    assert len(next(chunks)) == 10 * 256
    chunks.stretch(1000)
    tts.vocoder._run_chunks([(chunks, chunks.window)])
    chunks.stretch(30)
    assert [len(chunk) // 256 for chunk in chunks] == [50, 20, 20, 20, 20, 20, 20, 20]


@pytest.mark.parametrize("frames, first, chunk", [(1, 1, 1), (7, 3, 3), (61, 1, 17), (150, 24, 64)])
def test_denoised_chunks_equal_the_whole_denoised(tts, frames, first, chunk):
    mel = np.random.default_rng(frames).standard_normal((1, 80, frames), np.float32) * 2 - 5
    whole = tts.vocoder.generator(mel=mel)["audio"][0]
    if frames > 2:  # less makes no spectrum, and stays as it is
        silent = tts.vocoder.generator(mel=np.zeros((1, 80, 88), np.float32))["audio"][0]
        noisy, whole = whole, denoised(whole, bias_spectrum(silent, 256), 0.5)
        assert np.abs(noisy - whole).max() > 1e-3
    chunks = list(tts.vocoder.vocode_chunks(mel, ChunkSizes(first, chunk), Controls(denoising_strength=0.5)))
    np.testing.assert_allclose(np.concatenate(chunks), whole, atol=1e-4)


def test_the_voice_says_how_much_is_denoised_and_controls_overrule_it(tts):
    source = dataclasses.replace(tts.vocoder.source, settings=HifiganSettings(0.5))
    denoising = HifiganVocoder(source, tts.vocoder.engines)
    mel = np.random.default_rng(0).standard_normal((1, 80, 40), np.float32) * 2 - 5
    lengths = np.array([40])
    plain = tts.vocoder.vocode(mel, lengths)[0]
    assert np.abs(denoising.vocode(mel, lengths)[0] - plain).max() > 1e-3
    np.testing.assert_allclose(
        denoising.vocode(mel, lengths, Controls(denoising_strength=0.0))[0], plain, atol=1e-6
    )
    np.testing.assert_allclose(
        tts.vocoder.vocode(mel, lengths, Controls(denoising_strength=0.5))[0],
        denoising.vocode(mel, lengths)[0],
        atol=1e-6,
    )
    with pytest.raises(ValueError, match="denoising_strength must be a number from 0 to 10"):
        Controls(denoising_strength=-1.0)


def test_speak_many_answers_in_the_order_asked(tts):
    texts = [
        "A much longer text, with some more words in it, comes first.",
        "Short.",
        TEXT,
        "Middle length.",
    ] * 3
    answers = tts.speak_many(texts, batch_size=4)
    assert [answer.text for answer in answers] == texts
    for text, answer in zip(texts[:4], answers, strict=False):
        alone = tts.speak(text)
        np.testing.assert_allclose(answer.samples, alone.samples, atol=1e-4)
        assert all(np.array_equal(a, b) for a, b in zip(answer.durations, alone.durations, strict=True))


def test_speak_many_takes_any_iterable_lazily(tts):
    texts = ("Word." for _ in itertools.count())
    first = next(tts.speak_each(texts, batch_size=2))
    assert first[0] == 0
    assert tts.speak_many([]) == []


def test_a_network_that_hears_its_padding_is_not_batched_unasked(tts, monkeypatch):
    assert tts.choose_batch_size(None) > 1
    config = dataclasses.replace(tts.acoustic.config, mask_padding=False)
    monkeypatch.setattr(tts.acoustic, "config", config)
    assert tts.choose_batch_size(None) == 1 and tts.choose_batch_size(4) == 4
    with pytest.raises(ValueError, match="batch size must be from 1 to 32, not 99"):
        tts.choose_batch_size(99)


def test_batches_are_larger_where_a_batch_is_one_launch(tts, monkeypatch):
    usual = tts.choose_batch_size(None)
    monkeypatch.setattr(type(tts.vocoder), "prefers_batches", True)
    assert tts.choose_batch_size(None) == 32 > usual


def test_pace_changes_the_length(tts, spoken):
    fast, slow = (tts.speak(TEXT, Controls(pace=pace)) for pace in (2.0, 0.5))
    assert fast.seconds < 0.7 * spoken.seconds and slow.seconds > 1.6 * spoken.seconds


def test_even_at_the_highest_pace_something_is_spoken(tts):
    audio = tts.speak("Hello.", Controls(pace=10.0))
    assert audio.durations[0].sum() >= 1 and len(audio.samples)


def test_at_a_pace_too_slow_for_the_model_pieces_are_spoken(tts, monkeypatch):
    monkeypatch.setattr(tts.acoustic, "longest_mel", 500)
    audio = tts.speak("word " * 30 + ".", Controls(pace=0.1))
    assert re.fullmatch(r"spoken in \d+ pieces", audio.notes[0])
    assert audio.mels[0].shape[1] == audio.durations[0].sum() > 500
    monkeypatch.setattr(tts.acoustic, "longest_mel", 20)  # not even a letter
    with pytest.raises(ValueError, match=r"at pace 0\.1 a sentence of \d+ symbols has \d+ frames"):
        tts.speak("word.", Controls(pace=0.1))


def test_no_mel_is_longer_than_memory_allows_and_long_ones_take_turns(tts, monkeypatch):
    made, decode, turns = [], tts.acoustic.two_engines.decode, threading.BoundedSemaphore(1)

    def watched(encoded, mel_lengths):
        made.append((mel_lengths.max(), turns._value))
        return decode(encoded, mel_lengths)

    monkeypatch.setattr(parallel, "_long_turns", turns)
    monkeypatch.setattr(tts.acoustic.two_engines, "decode", watched)
    audio = tts.speak("word " * 60 + ".", Controls(pace=0.1))
    assert audio.mels[0].shape[1] > parallel.LONGEST_MEL
    tts.speak("word.")
    assert all(frames <= parallel.LONGEST_MEL for frames, _ in made)
    assert all((left == 0) == (frames > parallel.LONG_MEL) for frames, left in made)
    assert {left for _, left in made} == {0, 1}


def test_pitch_controls_change_the_sound_and_the_hz_that_are_reported(tts, spoken):
    given = spoken.pitches[0]
    for control, wanted in (
        ({"pitch_shift": 30.0}, given + 30.0),
        ({"pitch_flatten": True}, 200.0),
        ({"pitch_invert": True}, 400 - given),
        ({"pitch_amplify": 2.0}, 2 * given - 200),
    ):
        other = tts.speak(TEXT, Controls(**control))
        np.testing.assert_allclose(other.pitches[0], wanted, atol=1e-2)
        assert len(other.samples) == len(spoken.samples)
        assert np.abs(other.samples - spoken.samples).max() > 1e-4


def test_an_utterance_longer_than_the_model_takes_is_cut(tts, spoken, monkeypatch):
    longest = max(len(u.ids) for u in spoken.utterances)
    monkeypatch.setattr(tts.acoustic, "longest_text", longest - 1)
    audio = tts.speak(TEXT)
    assert len(audio.utterances) == len(spoken.utterances) + 1
    assert max(len(u.ids) for u in audio.utterances) < longest
    words = [u.normalised for u in audio.utterances]
    assert " ".join(words) == " ".join(u.normalised for u in spoken.utterances)
    np.testing.assert_allclose(np.concatenate(list(tts.stream(TEXT))), audio.samples, atol=1e-4)


@pytest.mark.parametrize(
    "control, has_it",
    [
        ({"sigma": 0.7}, "waveglow has it"),
        ({"dropout": False}, "tacotron2 has it"),
        ({"gate_threshold": 0.4}, "tacotron2 has it"),
        ({"step_limit": 100}, "tacotron2 has it"),
    ],
)
def test_a_control_that_would_change_nothing_is_refused(tts, control, has_it):
    (name,) = control
    for call in (tts.speak, tts.stream):
        with pytest.raises(ValueError, match=f"{name}' would change nothing: {has_it}, not fastpitch or hif"):
            call("Hello.", Controls(**control))


def test_a_model_that_reports_nothing_has_no_problems(tts, spoken):
    assert spoken.problems == () and spoken.notes == ("", "", "")
    assert spoken.alignments is None
    again = tts.speak(TEXT, retries=10**12)  # none of which is made
    np.testing.assert_array_equal(again.samples, spoken.samples)
    with pytest.raises(ValueError, match="retries must be at least 0, not -1"):
        tts.speak(TEXT, retries=-1)


def test_only_a_decoder_that_has_forms_can_be_chosen(tiny_voice):
    with pytest.raises(ValueError, match="fastpitch has no choice of decoders: leave out 'loop'"):
        TextToSpeech.load(voice=tiny_voice, device="cpu", decoder="loop")


def test_engines_are_made_when_they_are_asked_for(tiny_voice):
    made = []
    TextToSpeech.load(
        voice=tiny_voice, device="cpu", watch=lambda engine: made.append(engine.stage.name) or engine
    )
    assert made == ["encoder", "decoder", "generator"]


def test_volume_scales_and_never_clips(tts, spoken):
    np.testing.assert_allclose(tts.speak(TEXT, Controls(volume=0.5)).samples, spoken.samples * 0.5, atol=1e-6)
    loud = tts.speak(TEXT, Controls(volume=10.0)).samples
    assert np.abs(spoken.samples).max() > 0.1 and np.abs(loud).max() == pytest.approx(1, abs=1e-6)
    assert np.abs(loud).max() <= 1 and loud.dtype == np.float32


def waves(size: float, seconds: float = 0.5) -> np.ndarray:
    """A wave that swells up to this size and down again, with a few notes in it."""
    time = np.arange(round(22050 * seconds)) / 22050
    wave = np.sin(2 * np.pi * 110 * time) + 0.5 * np.sin(2 * np.pi * 437 * time)
    wave *= np.sin(np.pi * time / seconds)
    return (wave * size / np.abs(wave).max()).astype(np.float32)


def excursions(samples: np.ndarray) -> list[slice]:
    """The runs of samples above the knee."""
    found, start = [], None
    for i, size in enumerate([*np.abs(samples), 0.0]):
        if size > KNEE and start is None:
            start = i
        elif size <= KNEE and start is not None:
            found.append(slice(start, i))
            start = None
    return found


@pytest.mark.parametrize("size", [0.0, 0.5, 0.9, 1.0])
def test_what_stays_within_one_is_left_as_it_is_and_a_peak_just_above_it_nearly(size):
    """So that a chunk's last digits, which differ from the whole's, are all that differs afterwards."""
    samples, above = waves(size), waves(1 + 1e-5)
    np.testing.assert_array_equal(soft_clip(samples), samples)
    np.testing.assert_allclose(soft_clip(above), soft_clip(waves(1.0)), atol=3e-5)


@pytest.mark.parametrize("size", [1.0001, 1.1, 2.0, 50.0])
def test_only_an_excursion_beyond_one_is_rounded_off(size):
    samples = waves(size)
    rounded = soft_clip(samples)
    touched = np.zeros(len(samples), bool)
    seen = set()
    for run in excursions(samples):
        beyond = np.abs(samples[run]).max() > 1
        touched[run] = beyond
        seen.add(bool(beyond))
        if beyond:
            before, after = np.abs(samples[run]), np.abs(rounded[run])
            assert after.max() == pytest.approx(1, abs=1e-6)
            assert (after <= before).all() and (after > KNEE).all()  # meets the rest of the wave at the knee
            rising = before.argsort()
            assert (np.diff(after[rising]) >= 0).all()  # bent, not folded
    assert True in seen and (False in seen or size > 2)
    np.testing.assert_array_equal(rounded[~touched], samples[~touched])
    assert rounded.dtype == np.float32 and np.abs(rounded).max() <= 1
    np.testing.assert_array_equal(np.sign(rounded), np.sign(samples))
    np.testing.assert_allclose(soft_clip(-samples), -rounded)


def test_an_excursion_that_goes_on_is_not_complete_peaks():
    assert complete_peaks(np.array([0.1, 0.9, -0.3, 0.2], np.float32)) == 4
    assert complete_peaks(np.array([0.1, 0.9, -0.3, 0.9, -1.5], np.float32)) == 3
    assert complete_peaks(np.array([2.0, 2.0], np.float32)) == 0
    assert complete_peaks(np.zeros(0, np.float32)) == 0


class LoudVocoder:
    """Its audio swings beyond 1, so many times a second; `vocode_chunks` gives it in chunks."""

    hop = 256
    source = SimpleNamespace(model="loud", controls=frozenset())
    prefers_batches = False

    def __init__(self, swings: float):
        self.swings = swings

    def vocode_later(self, mels, controls):
        counts = [mel.shape[1] * 256 for mel in mels]
        return lambda: [2.5 * np.cos(np.arange(n, dtype=np.float32) / 3509 * self.swings) for n in counts]

    def vocode_chunks(self, mel, sizes, controls, at_once):
        (samples,) = self.vocode_later(mel, controls)()
        yield from np.split(samples, range(sizes.first * 256, len(samples), sizes.largest * 256))


class LateVocoder(LoudVocoder):
    """Launches batches, as on a GPU, and notes in `events` what happens when."""

    prefers_batches = True

    def __init__(self, fails_at: int = 0):
        super().__init__(1)
        self.events, self.fails_at = [], fails_at

    def vocode_later(self, mels, controls):
        self.events.append("launch")
        if self.events.count("launch") == self.fails_at:
            raise RuntimeError("no memory")
        read = super().vocode_later(mels, controls)
        return lambda: (self.events.append("read"), read())[1]


def test_a_batch_is_launched_before_the_one_before_it_is_read(tts):
    late = LateVocoder()
    other = TextToSpeech(tts.frontend, tts.acoustic, late, 22050)
    spoken = other.speak_many(["One.", "Two, and more.", "Three."], batch_size=1)
    assert late.events == ["launch", "launch", "read", "launch", "read", "read"]
    plain = TextToSpeech(tts.frontend, tts.acoustic, LoudVocoder(1), 22050)
    for text, audio in zip(["One.", "Two, and more.", "Three."], spoken, strict=True):
        np.testing.assert_array_equal(audio.samples, plain.speak(text).samples)


def test_what_was_launched_before_an_error_is_not_lost(tts):
    answers = TextToSpeech(tts.frontend, tts.acoustic, LateVocoder(fails_at=2), 22050).speak_each(
        ["One.", "Two.", "Three."], batch_size=1
    )
    assert next(answers)[0] == 0
    with pytest.raises(RuntimeError, match="no memory"):
        next(answers)


def test_processes_that_analyse_texts_begin_without_interrupts():
    """One that is interrupted before it can ignore that would break the pool."""
    with interrupts_held():
        own = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('here')"]
        child = subprocess.run(own, capture_output=True, text=True, timeout=60)
    assert (child.returncode, child.stdout) == (0, "here\n")


def test_texts_are_analysed_by_processes_as_by_one(tiny_voice, tts):
    texts = [f"{TEXT} Number {number}." for number in range(20)]
    other = TextToSpeech.load(voice=tiny_voice, text_processes=2)
    for process in other._text_processes._pool._processes:
        os.kill(process, signal.SIGINT)  # a terminal's Ctrl-C, which is for the program alone
    for one, analysed in zip(texts, other.analyse_each(texts, [0] * len(texts)), strict=True):
        alone = tts.analyse(one)
        assert [u.text for u in analysed.utterances] == [u.text for u in alone.utterances]
        assert all(map(np.array_equal, *([u.ids for u in a.utterances] for a in (analysed, alone))))
    with pytest.raises(ValueError, match="the text is empty"):
        other.speak_many(["Hello.", "", "There."])


@pytest.mark.parametrize("volume", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("swings", [0, 1, 10, 2000])
def test_audio_beyond_one_is_rounded_off_alike_by_speak_and_stream(tts, swings, volume):
    """Without swings all of an utterance is one excursion, and leaves when it is over."""
    loud = TextToSpeech(tts.frontend, tts.acoustic, LoudVocoder(swings), tts.sampling_rate)
    spoken = loud.speak(TEXT, Controls(volume=volume)).samples
    chunks = list(loud.stream(TEXT, Controls(volume=volume)))
    assert len(chunks) > (4 if swings else 2) and all(len(chunk) for chunk in chunks)
    np.testing.assert_array_equal(np.concatenate(chunks), spoken)
    assert 0.999 < np.abs(spoken).max() <= 1


def test_utterances_begin_and_end_in_silence():
    piece = finish(np.ones(4000, np.float32), 22050, pause=0.1)
    fade = round(FADE * 22050)
    assert piece[0] == 0 and piece[3999] == 0 and (piece[fade:3000] == 1).all()
    assert len(piece) == 4000 + 2205 and not piece[4000:].any()
    assert np.abs(np.diff(piece)).max() < 0.05


@pytest.mark.parametrize(
    "control, message",
    [
        ({"pace": 0}, "pace must be a number from 0.1 to 10, not 0"),
        ({"pace": -1.0}, "pace must be"),
        ({"pace": math.nan}, "pace must be"),
        ({"pace": math.inf}, "pace must be"),
        ({"pace": "fast"}, "pace must be"),
        ({"volume": -0.1}, "volume must be"),
        ({"pitch_shift": math.nan}, "pitch_shift must be"),
        ({"pitch_amplify": math.inf}, "pitch_amplify must be"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"speaker": 0.5}, "speaker must be a whole number"),
        ({"sigma": -0.1}, "sigma must be a number from 0 to 10"),
        ({"gate_threshold": 1.5}, "gate_threshold must be a number from 0 to 1"),
        ({"step_limit": 0}, "step_limit must be a whole number from 1 on"),
    ],
)
def test_controls_are_checked(control, message):
    with pytest.raises(ValueError, match=message):
        Controls(**control)


def test_a_wrong_name_of_an_argument_or_a_model_names_the_call_and_the_way_out(tts):
    with pytest.raises(TypeError, match=r"TextToSpeech.speak\(\) got an unexpected keyword argument 'pace'"):
        tts.speak("Hello.", pace=2)
    with pytest.raises(InputError, match="hazel is a voice, no acoustic model: give voice hazel"):
        TextToSpeech.load("hazel")


def test_controls_may_be_numbers_of_numpy(tts):
    asked = Controls(pace=np.float32(1.25), seed=np.int64(3), pitch_flatten=np.bool_(True))
    assert asked == Controls(pace=1.25, seed=3, pitch_flatten=True)
    assert type(asked.seed) is int and type(asked.pace) is float
    with pytest.raises(TypeError, match="cannot be pickled or copied: load one in each process"):
        pickle.dumps(tts)


@pytest.mark.parametrize("speaker", [3, "3", "ann"])
def test_a_voice_of_one_speaker_has_no_control_of_it(tts, speaker):
    with pytest.raises(InputError, match="'speaker' would change nothing: this voice has one speaker"):
        tts.speak("Hello.", Controls(speaker=speaker))
    tts.require_controls(Controls(speaker="0"))


@pytest.mark.parametrize("text", ["", "  \n", "...", "?!"])
def test_nothing_to_speak_is_an_error(tts, text):
    for call in (tts.speak, tts.stream):
        with pytest.raises(ValueError, match="no audio made"):
            call(text)


def test_of_several_texts_the_one_at_fault_is_named(tts):
    with pytest.raises(InputError, match="text 4: no audio made: the text is empty"):
        tts.speak_many(["A longer one.", "Fine.", "Fine too.", ""])


@pytest.mark.parametrize("text", [None, b"Hello.", 3, ["Hello."]])
def test_what_is_no_text_is_refused(tts, text):
    shown = re.escape(repr(text))
    for call in (tts.speak, tts.stream, tts.analyse, lambda text: tts.speak_many(["Hello.", text])):
        with pytest.raises(InputError, match=rf"texts? must be .*str.*, not .*{shown}"):
            call(text)
    with pytest.raises(InputError, match=f"a text must be a str, not {type(text).__name__}"):
        list(tts.speak_each(iter([text])))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("threads", value) for value in ("two", 0, True, 10**30)),
        *(("voice", 5), ("voice", "a\0b"), ("lexicon", ["a"]), ("overrides", {"fastpitch": 3})),
        *(("backend", None), ("text_processes", -1), ("watch", 1)),
    ],
)
def test_a_wrong_argument_is_named(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be .*, not {re.escape(repr(value))}"):
        TextToSpeech.load(**{name: value})


def test_numbers_of_numpy_and_whatever_is_like_a_type_are_right(tts):
    """Only what is no such number, path, words or sequence at all is refused."""
    for wrong in ({"own_words": {"a": "b"}}, {"speaker": 2.5}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} must be"):
            tts.analyse("Hello.", **wrong)

    class Words:
        entries = staticmethod(lambda word: [])
        add_to = staticmethod(lambda said, text: said)

    assert tts.analyse("Hello.", Words(), np.int64(0)).utterances
    assert len(tts.speak_many(np.array(["Hi."]), batch_size=np.int64(1), retries=np.uint8(0))) == 1


def test_one_text_for_many_and_controls_of_another_kind_are_refused(tts):
    with pytest.raises(InputError, match=r'texts must be several: give a list, or speak\("Hello."\)'):
        tts.speak_many("Hello.")
    for call in (tts.speak, tts.stream, lambda text, given: tts.speak_many([text], [given])):
        with pytest.raises(InputError, match=r"controls must be Controls.*, not .*{'pace': 2}"):
            call("Hello.", {"pace": 2})


def test_foreign_symbols_are_refused(tts, monkeypatch):
    class Foreign(Frontend):
        symbols = ("x",) * 501

        def __call__(self, text: str, said=()) -> Analysis:
            return Analysis((Utterance("x", "x", ("x",), np.array([500]), 0.0),))

    monkeypatch.setattr(tts, "frontend", Foreign())
    with pytest.raises(ValueError, match="text frontend and model do not belong together"):
        tts.speak("x")


def test_each_text_is_analysed_once(tts, monkeypatch):
    analysed, frontend = [], tts.frontend

    class Counting(Frontend):
        symbols = frontend.symbols

        def __call__(self, text: str, said=()) -> Analysis:
            analysed.append(text)
            return frontend(text)

    monkeypatch.setattr(tts, "frontend", Counting())
    ready = tts.analyse("One.")
    audio = tts.speak(ready)
    tts.speak_many([ready, "Two."])
    b"".join(chunk.tobytes() for chunk in tts.stream(ready))
    assert analysed == ["One.", "Two."]
    assert audio.text == "One." and audio.timings.stages["text"] == ready.seconds


def test_a_generator_of_texts_is_spoken_as_it_comes(tts):
    heard = threading.Event()

    def dialogue():
        yield "Who is there?"
        assert heard.wait(60), "the first text waits for the second"
        yield "Nobody."

    answers = tts.speak_each(dialogue())
    assert next(answers)[0] == 0
    heard.set()
    assert [number for number, _ in answers] == [1]


def test_threads_get_what_they_would_get_alone(tts):
    texts = [
        "One word.",
        "Two words, a comma.",
        "Three more words follow here. And then a sentence.",
        "Four!",
    ]
    alone = {text: tts.speak(text).samples for text in texts}

    def call(number: int) -> bool:
        text = texts[number % len(texts)]
        if number % 3:
            return np.array_equal(tts.speak(text).samples, alone[text])
        streamed = np.concatenate(list(tts.stream(text)))
        return np.allclose(streamed, alone[text], atol=1e-4)

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(call, range(500)))


def test_nan_audio_is_an_error(tts, monkeypatch):
    broken = [np.full(512, np.nan, np.float32)]
    monkeypatch.setattr(tts.vocoder, "vocode_later", lambda *arguments: lambda: broken)
    with pytest.raises(ValueError, match="gave NaN instead of audio"):
        tts.speak("Hello.")


def test_timings_cover_every_stage(spoken, tts):
    clock = spoken.timings
    assert set(clock.stages) == {"text", "acoustic", "vocoder", "join"}
    assert clock.audio == pytest.approx(spoken.seconds)
    assert clock.rtf == pytest.approx(clock.audio / sum(clock.stages.values()))
    assert set(tts.load_timings.stages) == {"voice", "frontend", "acoustic", "vocoder"}
