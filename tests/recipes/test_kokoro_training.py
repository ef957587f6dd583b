"""The two trainings on tiny corpora of tones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.config.hparams import load_hparams
from melforge.common.training.corpus.batches import Utterances
from melforge.common.training.corpus.dataset import HOP, load_labels, save_labels
from melforge.common.training.loop import TrainingPlan
from melforge.fastpitch.config import FastPitchConfig
from melforge.fastpitch.train import FastPitchRecipe, FastPitchTrainer
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.train import HifiganRecipe
from recipes.kokoro import vocoder
from recipes.kokoro.vocoder import AllVoicesTrainer, PitchedSegments
from tests.kokoro import write_corpus

CPU = torch.device("cpu")


@pytest.fixture
def corpora(tmp_path):
    write_corpus(tmp_path, "acoustic", "ab", 8)
    write_corpus(tmp_path, "vocoder", "ab", 4, higher=1.2)
    return tmp_path


def small_plan() -> TrainingPlan[HifiganConfig, HifiganRecipe]:
    classes = HifiganConfig, MelContract, HifiganRecipe
    config, contract, recipe = load_hparams(vocoder.HPARAM, *classes, model="hifigan")
    small = {"upsample_initial_channel": 8, "noise_channels": 2, "pitch_channels": 16, "pitch_bins": 40}
    short = {"batch_size": 4, "edge_segments": 1, "segment_frames": 40, "judged_frames": 24}
    narrow = {"period_channels": 1, "resolution_channels": 1, "learning_rate": 1e-3}
    return TrainingPlan(replace(config, **small), contract, replace(recipe, **short, **narrow))


def make_trainer(*corpora: Path) -> AllVoicesTrainer:
    plan = small_plan()
    torch.manual_seed(0)
    return AllVoicesTrainer(plan, PitchedSegments(corpora, plan.contract, [], CPU, plan.recipe.edge_segments))


def test_the_shipped_recipes_are_whole():
    config, *_ = load_hparams(vocoder.HPARAM, HifiganConfig, MelContract, HifiganRecipe, model="hifigan")
    assert config.source and 22_050 / config.longest_period < 60 and 22_050 / config.shortest_period > 500
    hparam = vocoder.HPARAM.with_name("acoustic.yaml")
    load_hparams(hparam, FastPitchConfig, MelContract, FastPitchRecipe, model="fastpitch")


def test_segments_of_several_corpora_have_their_sources(corpora):
    contract = small_plan().contract
    acoustic_frames = int(load_labels(corpora / "acoustic").frames.sum())
    mels = corpora / "mels.npy"
    np.save(mels, np.full((80, acoustic_frames), -3, np.float16))
    segments = PitchedSegments([corpora / "vocoder", corpora / "acoustic"], contract, [mels], CPU, 1)
    others = segments.frames - acoustic_frames
    assert torch.equal(segments.predicted[0][:, :others], segments.mel[:, :others])
    assert (segments.predicted[0][:, others:] == -3).all()
    _, drawn = next(segments.batches(4, 40, 0.5, seed=0))
    batch = segments.place(segments.fetch(drawn, 40), 40)
    assert batch["source"].shape == (4, 2, 40) and batch["weight"].shape == (4, 40)
    steps = (batch["source"][:, 0].diff() - batch["source"][:, 1, 1:] * HOP) % 1
    sure = (batch["weight"] > 0.5)[:, 1:] & (batch["weight"] > 0.5)[:, :-1]
    assert torch.minimum(steps, 1 - steps)[sure].median() < 0.01  # its phase is the sum of its pitch


def test_a_step_changes_generator_and_pitch_network(corpora):
    trainer = make_trainer(corpora / "vocoder", corpora / "acoustic")
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    key, drawn = next(trainer.batches(0))
    losses = trainer.step(key, **trainer.inputs(key, drawn))
    assert {"mel", "phase", "pitch", "discriminator"} <= set(losses)
    changed = {n for n, v in trainer.model.state_dict().items() if not torch.equal(v, before[n])}
    assert any(name.startswith("pitch.") for name in changed) and any(
        name.startswith("conv_") for name in changed
    )
    assert set(trainer.validate()) == {"validation_mel", "semitones", "far_off"}


def test_the_pitch_network_is_taught_alone(corpora, monkeypatch):
    monkeypatch.setattr(vocoder, "LESSON_BATCH", 8)
    trainer = make_trainer(corpora / "acoustic")
    before = trainer.pitch_errors()["semitones"]
    trainer.teach_pitch(trainer.lessons(seed=0), 60)
    after = trainer.pitch_errors()
    assert after["semitones"] < 0.3 * before


def test_pitch_is_in_deviations_from_each_speakers_mean(corpora):
    labels = load_labels(corpora / "acoustic")
    rng = np.random.default_rng(0)
    means = {0: 110.0, 1: 220.0}
    labels.pitch = [np.abs(rng.normal(means[s], 10, 3)).astype(np.float32) for s in labels.speaker]
    labels.ids = [np.array([3, 4, 5]) for _ in labels.names]
    labels.durations = [np.array([n - 20, 10, 10]) for n in labels.frames]
    save_labels(corpora / "acoustic", labels)
    corpus = Utterances(corpora / "acoustic", MelContract(), CPU)
    found, deviations = corpus.pitch_units
    np.testing.assert_allclose(found, [110, 220], atol=8)
    for number in range(2):
        own = corpus.pitch[corpus.speaker == number]
        assert abs(own.mean()) < 0.01 and abs(own.std(correction=0) - 1) < 0.01
    classes = FastPitchConfig, MelContract, FastPitchRecipe
    hparam = vocoder.HPARAM.with_name("acoustic.yaml")
    plan = TrainingPlan(*load_hparams(hparam, *classes, model="fastpitch"))
    trainer = FastPitchTrainer(plan, Utterances(corpora / "acoustic", plan.contract, CPU))
    assert trainer.config.n_speakers == 2 and trainer.info["speakers"] == ["a", "b"]
    np.testing.assert_allclose(trainer.info["pitch_means"], found, atol=0.6)
    np.testing.assert_allclose(trainer.info["pitch_deviations"], deviations, atol=0.6)
