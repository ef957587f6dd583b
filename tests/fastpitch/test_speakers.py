"""Several speakers in one model: chosen by name or id, alike on every backend and in every batch."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file

from melforge.common.cli import list as list_command
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls, speaker_shares
from melforge.common.synthesis.loading import make_driver
from melforge.common.training.voice import write_voice
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource, load_voice
from melforge.fastpitch.model import FastPitch
from tests.conftest import check_at_small_sizes, save_trained, tiny_fastpitch

GOLDEN = Path(__file__).parent.parent / "golden" / "fastpitch"
NAMES = ("ann", "ben")
UNITS = {"pitch_means": [200.0, 100.0], "pitch_deviations": [50.0, 20.0]}  # of each, in Hz
MIX = "ann:0.25,ben:0.75"
IDS = [np.arange(1, 12), np.arange(20, 26), np.arange(40, 49)]


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """Of two speakers, as a training run leaves them."""
    _, config = tiny_fastpitch()
    config = dataclasses.replace(config, n_speakers=len(NAMES), speaker_emb_weight=0.5)
    torch.manual_seed(1)
    network = FastPitch(config)
    with torch.no_grad():
        network.duration_predictor.fc.bias.fill_(1.5)
        network.pitch_mean.fill_(200.0), network.pitch_std.fill_(50.0)
        network.proj.bias.fill_(-4.0)
    path = tmp_path_factory.mktemp("run") / "weights.safetensors"
    return save_trained(path, network, config, speakers=NAMES, **UNITS)


@pytest.fixture(scope="module")
def voice(weights, trained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("voices") / "pair"
    with pytest.MonkeyPatch.context() as patch:
        check_at_small_sizes(patch)
        write_voice(
            folder, [read_checkpoint(path) for path in (weights, trained["hifigan"])], in_int8=["fastpitch"]
        )
    return folder


def test_backends_and_batches_give_each_speaker_the_same(voice):
    drivers = [make_driver(load_voice(voice).source("fastpitch"), name, "cpu") for name in ("torch", "onnx")]
    controls = [Controls(speaker="ben"), Controls(speaker=MIX, pitch_semitones=2.0), Controls(speaker=0)]
    wanted, together = (driver.synthesise(IDS, controls) for driver in drivers)
    assert np.array_equal(wanted.durations, together.durations)
    np.testing.assert_allclose(together.mel, wanted.mel, rtol=0, atol=1e-4)
    for row, (ids, one) in enumerate(zip(IDS, controls, strict=True)):
        for driver in drivers:
            alone = driver.synthesise([ids], one)
            frames = int(alone.mel_lengths[0])
            np.testing.assert_allclose(together.mel[row, :, :frames], alone.mel[0], rtol=0, atol=1e-3)
        other = drivers[1].synthesise([ids], Controls(speaker="ann" if row != 2 else "ben"))
        frames = min(frames, other.mel.shape[2])
        assert np.abs(other.mel[0, :, :frames] - together.mel[row, :, :frames]).max() > 0.01


def test_a_voice_lists_its_speakers_and_speaks_as_each(voice, monkeypatch, capsys):
    content = yaml.safe_load((voice / "voice.yaml").read_text())
    extra = content["models"]["fastpitch"]["extra"]
    assert extra["speakers"] == list(NAMES) and {key: extra[key] for key in UNITS} == UNITS
    tts = TextToSpeech.load(voice=voice, device="cpu")
    first, ann, ben, second = (
        tts.speak("Glue the sheet.", Controls(**given)).samples
        for given in ({}, {"speaker": "ann"}, {"speaker": "ben"}, {"speaker": "1"})
    )
    assert np.array_equal(first, ann) and np.array_equal(ben, second)
    assert len(ann) != len(ben) or np.abs(ann - ben).max() > 1e-3
    with pytest.raises(InputError, match=r"speaker 'bob' does not exist: this model has 2 \(ann, ben\)"):
        tts.stream("Glue the sheet.", Controls(speaker="bob"))
    monkeypatch.setenv("MELFORGE_VOICES", str(voice.parent))
    list_command.main(["--json"])
    assert json.loads(capsys.readouterr().out)["voices"][0]["speakers"] == list(NAMES)
    list_command.main([])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["speaker", "ben", "pair"] in rows


def test_large_weights_of_a_voice_in_int8_are_near_those_of_the_run(voice, weights):
    stored, run = load_file(voice / "fastpitch" / "weights.safetensors"), load_file(weights)
    read = load_voice(voice).source("fastpitch").state
    in_int8 = {name for name, value in stored.items() if value.dtype == np.int8}
    assert "encoder.word_emb.weight" in in_int8 and set(read) == set(run)
    for name, value in read.items():
        assert value.dtype == np.float32 and value.shape == run[name].shape
        if name not in in_int8:
            np.testing.assert_allclose(value, run[name], rtol=1e-3, atol=1e-6)
            continue
        scale = stored[f"{name}#scale"].astype(np.float32)
        off = np.abs(value - run[name]).reshape(len(value), -1).max(1)
        assert value.ndim > 1 and value.size >= 4096 and (off <= 0.6 * scale).all()


def test_a_model_that_is_not_there_has_no_weights_to_store(weights, tmp_path):
    with pytest.raises(InputError, match="unknown model to store in int8 'hifigan'"):
        write_voice(tmp_path / "new", [read_checkpoint(weights)], in_int8=["hifigan"])
    assert not any(tmp_path.iterdir())


def test_names_and_ids_of_speakers():
    names = ("1034", "ann", "0")
    for given, row in {0: 0, 2: 2, "1034": 0, 1034: 0, "ann": 1, "0": 2, "1": 1}.items():
        assert speaker_shares(given, names).tolist() == np.eye(3)[row].tolist()
    with pytest.raises(InputError, match=r"speaker 7 does not exist: this model has 3 \(1034, ann, 0\)"):
        speaker_shares(7, names)


def test_shares_of_a_mix():
    mixes = {
        "ann:1": [1, 0, 0],
        "ann:0.3,ben:0.7": [0.3, 0.7, 0],
        " ann : 3, a:b:7 ": [0.3, 0, 0.7],
        "ann:1,ann:1,1:2": [0.5, 0.5, 0],
        "ann:0,ben:2": [0, 1, 0],
        "a:b": [0, 0, 1],
    }
    for given, shares in mixes.items():
        found = speaker_shares(given, ("ann", "ben", "a:b"))
        assert found.dtype == np.float32 and np.array_equal(found, np.array(shares, np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ann:0.3,bob:0.7", r"speaker 'bob' does not exist: this model has 2 \(ann, ben\)"),
        *((mix, f"{part!r} is no NAME:SHARE, with a share of 0 to 1e9") for mix, part in {
            "ann:1e308,ben:1e308": "ann:1e308",
            "ann:x": "ann:x", "ann:0.5,ben": "ben", "ann:nan": "ann:nan", "ann:-1,ben:2": "ann:-1",
            "ann:inf": "ann:inf", ":1": ":1", "ann:1,": "", "ann,ben": "ann",
        }.items()),
        ("ann:0,ben:0", "all shares are 0"),
        ("Ann", "speaker 'Ann' does not exist: did you mean 'ann'?"),
    ],
)  # fmt: skip
def test_a_wrong_mix_names_what_is_wrong(given, message):
    with pytest.raises(InputError, match=message) as caught:
        speaker_shares(given, NAMES)
    assert str(caught.value).count(f"{given!r}") <= 1


def test_a_mix_has_the_mean_embedding_and_pitch_of_its_speakers(weights):
    source = read_checkpoint(weights)
    driver = make_driver(source, "torch", "cpu")
    whole, alone = (driver.synthesise(IDS[:1], Controls(speaker=who)) for who in ("ben:1.0", "ben"))
    assert np.array_equal(whole.mel, alone.mel) and np.array_equal(whole.pitch, alone.pitch)
    state = dict(source.state)
    state["speaker_emb.weight"] = np.array([[0.25], [0.75]], np.float32).T @ state["speaker_emb.weight"]
    state["speaker_emb.weight"] = state["speaker_emb.weight"].repeat(2, 0)
    units = {"pitch_means": (125.0,) * 2, "pitch_deviations": (27.5,) * 2}
    settings = dataclasses.replace(source.settings, **units)
    one = dataclasses.replace(source, given_state=state, settings=settings, networks={})
    wanted = make_driver(one, "torch", "cpu").synthesise(IDS[:1], Controls(pitch_shift=10.0))
    found = driver.synthesise(IDS[:1], Controls(speaker=MIX, pitch_shift=10.0))
    np.testing.assert_allclose(found.mel, wanted.mel, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.pitch, wanted.pitch, rtol=1e-5)


@pytest.mark.parametrize("speaker", ["ann", "ben", MIX])
def test_controls_of_the_pitch_mean_the_same_for_each_speaker(weights, speaker):
    driver = make_driver(read_checkpoint(weights), "torch", "cpu")

    def pitch(**given):
        return driver.synthesise(IDS[:1], Controls(speaker=speaker, **given)).pitch[0]

    mean = {"ann": 200.0, "ben": 100.0, MIX: 125.0}[speaker]
    plain = pitch()
    np.testing.assert_allclose(pitch(pitch_shift=30.0), plain + 30, rtol=1e-5)
    np.testing.assert_allclose(pitch(pitch_semitones=12.0), 2 * plain, rtol=1e-4)
    np.testing.assert_allclose(pitch(pitch_flatten=True), mean, rtol=1e-6)
    np.testing.assert_allclose(pitch(pitch_invert=True), 2 * mean - plain, rtol=1e-4)
    np.testing.assert_allclose(
        pitch(pitch_shift=5.0, pitch_semitones=-12.0, pitch_amplify=0.0), (mean + 5) / 2, rtol=1e-5
    )


def test_speakers_of_a_batch_and_of_a_stream_are_those_alone(voice):
    tts = TextToSpeech.load(voice=voice, device="cpu")
    texts = ["Glue the sheet.", "Four hours of work.", "The birch canoe."]
    controls = [Controls(speaker=who, pitch_semitones=1.5) for who in ("ben", MIX, "ann")]
    for text, one, answer in zip(texts, controls, tts.speak_many(texts, controls, 3), strict=True):
        alone = tts.speak(text, one)
        assert len(alone.samples) == len(answer.samples)
        np.testing.assert_allclose(answer.samples, alone.samples, rtol=0, atol=2e-3)
        streamed = np.concatenate(list(tts.stream(text, one)))
        np.testing.assert_allclose(streamed, alone.samples, rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    "units", [{"pitch_means": (100.0,)}, {"pitch_deviations": ()}, {"pitch_deviations": (20.0, 0.0)}]
)
def test_pitch_is_told_of_each_speaker_or_of_none(weights, units):
    source = read_checkpoint(weights)
    wrong = dataclasses.replace(source, settings=dataclasses.replace(source.settings, **units), networks={})
    with pytest.raises(InputError, match="has 2 speakers, so that pitch_means and pitch_deviations must be"):
        make_driver(wrong, "torch", "cpu")


def test_speakers_are_as_many_as_the_model_has(weights):
    source = read_checkpoint(weights)
    for names in (("ann",), ("ann", "ann"), ("ann", "ben", "cy")):
        wrong = dataclasses.replace(
            source, settings=dataclasses.replace(source.settings, speakers=names), networks={}
        )
        with pytest.raises(InputError, match=f"has 2 speakers, so that .* not {', '.join(names)}"):
            make_driver(wrong, "torch", "cpu")


def test_a_published_checkpoint_of_several_speakers_adds_their_embedding(tmp_path):
    content = torch.load(GOLDEN / "checkpoint.pt", weights_only=True)
    channels = content["state_dict"]["encoder.word_emb.weight"].shape[1]
    torch.manual_seed(3)
    embedding = torch.randn(3, channels)
    content["state_dict"]["speaker_emb.weight"] = embedding
    content["config"] |= {"n_speakers": 3, "speaker_emb_weight": 0.7}
    path = tmp_path / "several.pt"
    torch.save(content, path)
    source = read_checkpoint(path)
    assert source.config.n_speakers == 3 and source.speakers == ("0", "1", "2")
    several = make_driver(source, "torch", "cpu").synthesise(IDS[:1], Controls(speaker=2))
    # One speaker's network, to whose embedding of every symbol that of the speaker was added.
    state = {name: value for name, value in source.state.items() if name != "speaker_emb.weight"}
    state["encoder.word_emb.weight"] = state["encoder.word_emb.weight"] + 0.7 * embedding[2].numpy()
    config = dataclasses.replace(source.config, n_speakers=1)
    one = ModelSource("fastpitch", config, path, source.mel, given_state=state)
    single = make_driver(one, "torch", "cpu").synthesise(IDS[:1])
    np.testing.assert_allclose(several.mel, single.mel, rtol=0, atol=1e-5)
