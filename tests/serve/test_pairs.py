"""Pairs of models: their names, what they share, and what is let go of."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from melforge.common.errors import InputError
from melforge.common.serve.pairs import OPENAI_VOICES, LoadOptions, Pairs
from tests.serve.conftest import ROOT

OPTIONS = LoadOptions(voice=str(ROOT / "voices" / "hazel"), device="cpu", threads=1)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def find(pairs, name):
    return pairs.find(name, "hazel")


def test_names_are_found():
    pairs = Pairs(OPTIONS, "tacotron2-hifigan,fastpitch-waveglow")
    assert pairs.names == ("tacotron2-hifigan", "fastpitch-waveglow")
    assert pairs.find("tts-1-hd", "verse") == find(pairs, "tacotron2-hifigan") == pairs.first
    with pytest.raises(InputError, match=r"^model: unknown model 'fastpitch-hifigan'"):
        find(pairs, "fastpitch-hifigan")
    with pytest.raises(InputError, match=r"^voice: unknown voice 'hazle': did you mean 'hazel'"):
        pairs.find("tts-1", "hazle")
    with pytest.raises(InputError, match="unknown pair 'fastpitch'"):
        Pairs(OPTIONS, "fastpitch")


def test_a_voice_is_a_voice_a_speaker_a_mix_or_a_name_of_openai_s():
    pairs = Pairs(LoadOptions(device="cpu", threads=1))
    assert pairs.voices[0] == "hazel" and pairs.first.voice == "hazel"
    named = {
        **{"hazel": ("hazel", ""), "orchard": ("orchard", ""), "emma": ("orchard", "emma")},
        **{mix: ("orchard", mix) for mix in ("emma:0.3,heart:0.7", "emma : 1, daniel : 2")},
        **{name: ("orchard", speaker) for name, speaker in OPENAI_VOICES.items()},
    }
    for name, (voice, speaker) in named.items():
        pair = pairs.find("tts-1", name)
        assert (pair.voice, pairs.speaker(pair, name)) == (voice, speaker)
    assert set(OPENAI_VOICES.values()) == set(pairs.speakers_of("orchard"))
    asked = ["alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse"]
    assert len({OPENAI_VOICES[name] for name in asked}) == len(asked)
    assert pairs.voice_names[:3] == ["hazel", "orchard", "heart"] and "verse" in pairs.voice_names
    # Only hazel has this pair: a name of OpenAI's means her, a speaker cannot be had.
    assert pairs.find("tacotron2-hifigan", "alloy").voice == "hazel"
    with pytest.raises(InputError, match=r"^model: voice 'orchard' has no tacotron2"):
        pairs.find("tacotron2-hifigan", "emma")
    with pytest.raises(InputError, match=r"^voice: unknown voice 'ema': did you mean 'emma'"):
        pairs.find("tts-1", "ema")


def test_pairs_share_drivers_and_nothing_is_loaded_before_it_is_asked_for():
    pairs = Pairs(OPTIONS)
    assert len(pairs.names) == 6 and pairs.loaded == []
    one, other = (pairs.get(find(pairs, name)) for name in ("fastpitch-hifigan", "fastspeech-hifigan"))
    assert one.vocoder is other.vocoder and one.frontend is other.frontend
    assert sorted(pairs.loaded) == ["hazel/fastpitch", "hazel/fastspeech", "hazel/hifigan"]
    assert pairs.can_be_shared and pairs.get(find(pairs, "fastpitch-hifigan")) is one


def test_a_pair_that_several_ask_for_is_loaded_once():
    pairs = Pairs(OPTIONS)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: pairs.get(pairs.first), range(4)))
    assert all(one is found[0] for one in found)


def test_idle_models_are_unloaded_but_for_the_first_pair_s():
    clock = Clock()
    pairs = Pairs(OPTIONS, clock=clock)
    names = ("fastpitch-hifigan", "fastspeech-hifigan", "fastpitch-waveglow")
    for clock.now, name in zip((0.0, 10.0, 20.0), names, strict=True):
        pairs.get(find(pairs, name))
    clock.now = 35.0
    pairs.unload_idle(20.0)
    assert sorted(pairs.loaded) == ["hazel/fastpitch", "hazel/hifigan", "hazel/waveglow"]
    assert not pairs.is_ready(find(pairs, "fastspeech-hifigan")) and pairs.is_ready(pairs.first)
    pairs.unload_idle(1.0)
    assert sorted(pairs.loaded) == ["hazel/fastpitch", "hazel/hifigan"]


def test_a_limit_of_memory_lets_go_of_what_was_not_asked_for_longest():
    clock = Clock()
    measured = Pairs(OPTIONS)
    measured.get(find(measured, "fastpitch-hifigan"))
    pairs = Pairs(OPTIONS, memory_limit=measured.memory_bytes * 1.1 / 1e6, clock=clock)
    spoken = pairs.get(find(pairs, "fastpitch-hifigan"))
    clock.now = 1.0
    stream = spoken.stream("One sentence.")
    pairs.get(find(pairs, "fastspeech-hifigan"))
    assert sorted(pairs.loaded) == ["hazel/fastspeech", "hazel/hifigan"]
    # What is being spoken goes on with the models that were let go of.
    wanted = spoken.speak("One sentence.").samples
    np.testing.assert_allclose(np.concatenate(list(stream)), wanted, atol=1e-4)


def test_a_chunk_has_no_more_seconds_than_may_wait():
    pairs = Pairs(OPTIONS, "fastpitch-hifigan")
    tts = pairs.get(pairs.first)
    usual, shorter, least = (pairs.chunk_sizes(tts, seconds) for seconds in (10.0, 1.25, 0.0))
    assert usual == pairs.chunk_sizes(tts) and usual.stretched > usual.largest
    assert shorter.largest == shorter.stretched == int(1.25 * 22050 / 256) and shorter.first == usual.first
    assert least.first == least.largest == least.stretched


def test_engines_that_threads_cannot_share_take_turns():
    torch = LoadOptions(voice=OPTIONS.voice, device="cpu", backend="acoustic=torch", threads=1)
    assert OPTIONS.shares_engines and not torch.shares_engines
    assert LoadOptions(device="cpu").with_threads().threads == 1
    for backend in ("torch", "cuda", "onnx,vocoder=cuda"):
        how = LoadOptions(device="cpu", backend=backend)
        assert not how.shares_engines and how.with_threads().threads is None


def test_what_was_not_asked_for_longest_goes_first():
    pairs = Pairs(OPTIONS, memory_limit=3.5)
    driver = SimpleNamespace(engines=SimpleNamespace(memory_bytes=10**6))
    used = {"tacotron2": 3.0, "fastspeech": 1.0, "waveglow": 2.0, "fastpitch": 0.0, "hifigan": 0.0}
    pairs._drivers = {("hazel", model): driver for model in used}
    pairs._used = {("hazel", model): when for model, when in used.items()}
    pairs._keep_to_limit(find(pairs, "fastpitch-hifigan"))
    assert sorted(pairs.loaded) == ["hazel/fastpitch", "hazel/hifigan", "hazel/tacotron2"]


def test_a_pair_that_was_asked_for_again_is_not_idle():
    clock = Clock()
    pairs = Pairs(OPTIONS, clock=clock)
    pair = find(pairs, "fastspeech-waveglow")
    drivers = {
        name: SimpleNamespace(source=SimpleNamespace(model=name)) for name in (pair.acoustic, pair.vocoder)
    }
    pairs._drivers = {("hazel", name): driver for name, driver in drivers.items()}
    pairs._used = {("hazel", name): 0.0 for name in drivers}
    pairs._ready[pair] = SimpleNamespace(acoustic=drivers[pair.acoustic], vocoder=drivers[pair.vocoder])
    clock.now = 100.0
    assert pairs.get(pair) is pairs._ready[pair]
    clock.now = 140.0
    pairs.unload_idle(50.0)
    assert pairs.is_ready(pair) and len(pairs.loaded) == 2
    pairs.unload_idle(30.0)
    assert not pairs.is_ready(pair) and not pairs.loaded


def test_all_processes_together_have_a_worker_for_each_core(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(6))
    assert [OPTIONS.workers(processes) for processes in (1, 2, 4, 9)] == [6, 3, 1, 1]
    assert LoadOptions(device="cpu", backend="torch").workers() == 1
