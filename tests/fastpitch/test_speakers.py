"""Several speakers in one model: chosen by name or id, alike on every backend and in every batch."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from melforge.common.audio.contract import MelContract
from melforge.common.cli import list as list_command
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls, speaker_id
from melforge.common.synthesis.loading import make_driver
from melforge.common.training.voice import write_voice
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource, load_voice
from melforge.fastpitch.model import FastPitch
from tests.conftest import check_at_small_sizes, save_trained, tiny_fastpitch

GOLDEN = Path(__file__).parent.parent / "golden" / "fastpitch"
NAMES = ("ann", "ben")
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
    return save_trained(path, network, config, speakers=NAMES)


@pytest.fixture(scope="module")
def voice(weights, trained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("voices") / "pair"
    with pytest.MonkeyPatch.context() as patch:
        check_at_small_sizes(patch)
        write_voice(folder, [read_checkpoint(path) for path in (weights, trained["hifigan"])])
    return folder


def test_backends_and_batches_give_each_speaker_the_same(voice):
    drivers = [make_driver(load_voice(voice).source("fastpitch"), name, "cpu") for name in ("torch", "onnx")]
    controls = [Controls(speaker="ben"), Controls(), Controls(speaker=1)]
    wanted, together = (driver.synthesise(IDS, controls) for driver in drivers)
    assert np.array_equal(wanted.durations, together.durations)
    np.testing.assert_allclose(together.mel, wanted.mel, rtol=0, atol=1e-4)
    for row, (ids, one) in enumerate(zip(IDS, controls, strict=True)):
        for driver in drivers:
            alone = driver.synthesise([ids], one)
            frames = int(alone.mel_lengths[0])
            np.testing.assert_allclose(together.mel[row, :, :frames], alone.mel[0], rtol=0, atol=1e-3)
        other = drivers[1].synthesise([ids], Controls(speaker="ann" if row != 1 else "ben"))
        frames = min(frames, other.mel.shape[2])
        assert np.abs(other.mel[0, :, :frames] - together.mel[row, :, :frames]).max() > 0.01


def test_a_voice_lists_its_speakers_and_speaks_as_each(voice, monkeypatch, capsys):
    content = yaml.safe_load((voice / "voice.yaml").read_text())
    assert content["models"]["fastpitch"]["extra"]["speakers"] == list(NAMES)
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


def test_names_and_ids_of_speakers():
    names = ("1034", "ann", "0")
    assert [speaker_id(given, names) for given in (0, 2, "1034", 1034, "ann", "0", "1")] == [
        *(0, 2, 0, 0, 1, 2, 1)
    ]
    with pytest.raises(InputError, match=r"speaker 7 does not exist: this model has 3 \(1034, ann, 0\)"):
        speaker_id(7, names)


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
    one = ModelSource("fastpitch", config, path, MelContract(), given_state=state)
    single = make_driver(one, "torch", "cpu").synthesise(IDS[:1])
    np.testing.assert_allclose(several.mel, single.mel, rtol=0, atol=1e-5)
