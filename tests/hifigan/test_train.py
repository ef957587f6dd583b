"""The recipes of a generator with a source: what they regress, and both runs on a corpus of three seconds."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.cli import voice_train
from melforge.common.cli.training import vocoder_parser
from melforge.common.errors import InputError
from melforge.common.synthesis.loading import make_driver
from melforge.common.training.corpus import batches, dataset
from melforge.common.training.corpus.dataset import HOP, RATE
from melforge.common.training.corpus.sources import SOURCES
from melforge.common.training.loop import RunSettings, TrainingPlan
from melforge.common.training.pitch import FAINT_WEIGHT, pitch_loss, pitch_weight
from melforge.common.weights.published import read_checkpoint
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.source_filter import SourceFilterGenerator
from melforge.hifigan.train import HifiganRecipe, SourceFilterTrainer, main, make_trainer, phase_loss
from tests.sourced_corpus import write_sourced_corpus

ROOT = Path(__file__).resolve().parents[2]
REGRESSION, ADVERSARIAL = "hparams/hifigan/train_source.yaml", "hparams/hifigan/train_source_adversarial.yaml"
TINY = {
    **{"upsample_initial_channel": 16, "resblock_dilation_sizes": "[[1, 2]]", "noise_channels": 4},
    **{"pitch_channels": 16, "pitch_bins": 32, "period_channels": 1, "resolution_channels": 1},
    **{"batch_size": 4, "segment_frames": 20, "judged_frames": 8, "edge_segments": 1, "warm_up_steps": 1},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_sourced_corpus(tmp_path_factory.mktemp("sources") / "corpus")


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch) -> None:
    monkeypatch.setattr(batches, "VALIDATION_FRAMES", 30)
    monkeypatch.chdir(ROOT)


def words_of(corpus: Path, out: Path, recipe: str, *words: str, **values: object) -> list[str]:
    given = [part for name, value in (TINY | values).items() for part in ("--set", f"{name}={value}")]
    return ["--corpus", str(corpus), "--out", str(out), "--device", "cpu", "--hparam", recipe, *given, *words]


def train(monkeypatch, corpus: Path, out: Path, recipe: str, *words: str, **values: object) -> dict:
    """A run; what its last.pt holds."""
    monkeypatch.setattr("sys.argv", ["train", *words_of(corpus, out, recipe, *words, **values)])
    main()
    return torch.load(out / "last.pt", weights_only=True)


def trainer_of(corpus: Path, out: Path, **values: object) -> SourceFilterTrainer:
    words = words_of(corpus, out, REGRESSION, "--steps", "1", **values)
    args = vocoder_parser("hifigan", HifiganRecipe).parse_args(words)
    settings = RunSettings(out, steps=1, device="cpu")
    trainer = make_trainer(TrainingPlan(*args.built), args.corpus, settings)
    assert isinstance(trainer, SourceFilterTrainer)
    return trainer


def same(one: dict, other: dict) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=1e-5, atol=1e-6) for name in one)


# Runs


@pytest.mark.slow
def test_the_second_run_goes_on_from_the_first_and_speaks(corpus, tmp_path, monkeypatch):
    first, second, still = (tmp_path / name for name in ("first", "second", "still"))
    before = train(monkeypatch, corpus, first, REGRESSION, "--steps", "3")["trainer"]
    heading = (first / "losses.csv").read_text().splitlines()[0].split(",")
    assert {"mel", "phase", "pitch", "validation_mel"} <= set(heading) and "adversarial" not in heading
    begun = "--init", str(first / "last.pt"), "--steps", "1"
    after = train(monkeypatch, corpus, second, ADVERSARIAL, *begun, edge_segments=2)["trainer"]
    heading = (second / "losses.csv").read_text().splitlines()[0].split(",")
    assert {"adversarial", "discriminator", "matching", "phase", "pitch"} <= set(heading)
    assert not same(before["generator"], after["generator"])
    assert not same(before["discriminators"], after["discriminators"])
    rates = {"learning_rate": 0, "final_learning_rate": 0}
    kept = train(monkeypatch, corpus, still, ADVERSARIAL, *begun, **rates)["trainer"]
    for name in ("generator", "discriminators"):
        assert same(before[name], kept[name])
    for run in (first, second):
        source = read_checkpoint(run / "weights.safetensors")
        assert source.config.source and source.config.upsample_initial_channel == 16
        assert not any("parametrizations" in name for name in source.state)
        mel = np.full((80, 30), -5, np.float32)
        (audio,) = make_driver(source, "torch", "cpu").vocode_each([mel])
        assert len(audio) == 30 * HOP and np.isfinite(audio).all() and audio.any()


def test_a_resumed_run_ends_as_one_that_was_never_interrupted(corpus, tmp_path, monkeypatch):
    words = "--steps", "4", "--save-minutes", "1e-9"
    whole = train(monkeypatch, corpus, tmp_path / "whole", REGRESSION, *words)
    step, seen = SourceFilterTrainer.step, []

    def killed(self, key, **inputs):
        seen.append(inputs["source"])
        if len(seen) == 3:
            raise KeyboardInterrupt
        return step(self, key, **inputs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SourceFilterTrainer, "step", killed)
        train(patch, corpus, tmp_path / "twice", REGRESSION, *words)
    last = "--resume", str(tmp_path / "twice" / "last.pt")
    twice = train(monkeypatch, corpus, tmp_path / "twice", REGRESSION, *words, *last)
    assert twice["schedule"]["step"] == whole["schedule"]["step"] == 4
    assert torch.equal(twice["random"]["cpu"], whole["random"]["cpu"])
    for name in ("generator", "ema"):
        assert same(whole["trainer"][name], twice["trainer"][name])


def test_the_regression_learns_a_segment(corpus, tmp_path):
    torch.manual_seed(0)
    trainer = trainer_of(corpus, tmp_path / "run", upsample_initial_channel=32, learning_rate=0.003)
    key, drawn = next(trainer.batches(seed=0))
    batch = trainer.inputs(key, drawn)
    losses = [trainer.step(key, **batch) for _ in range(40)]
    for name, share in (("mel", 0.25), ("phase", 0.9), ("pitch", 0.7)):
        last = sum(one[name].item() for one in losses[-5:]) / 5
        assert last < share * losses[0][name].item()

    def phase_of(source: torch.Tensor) -> float:
        with torch.no_grad():
            _, harmonic = trainer.generate_parts(batch["mel"], source)
        return phase_loss(trainer.judged(harmonic), trainer.judged(batch["harmonic"])).item()

    late = batch["source"] + torch.tensor([[[0.3], [0.0]]])  # of a cycle
    assert phase_of(late) > 1.05 * phase_of(batch["source"])


def test_each_loss_of_a_generator_with_a_source_has_its_weight(corpus, tmp_path, monkeypatch):
    followed = []
    monkeypatch.setattr(
        "melforge.common.training.vocoder.set_gradients", lambda _, loss: followed.append(loss.item())
    )
    trainer = trainer_of(corpus, tmp_path / "run")
    monkeypatch.setattr(trainer, "update", lambda: None)
    key, drawn = next(trainer.batches(seed=0))
    batch = trainer.inputs(key, drawn)
    names = ("mel", "phase", "part", "pitch")

    def step(**weights: float) -> dict[str, torch.Tensor]:
        given = {f"{name}_loss_weight": weights.get(name, 0.0) for name in names}
        trainer.recipe = replace(trainer.recipe, **given)
        torch.manual_seed(0)
        return trainer.step(key, **batch)

    for name in names:
        losses = step(**{name: 3.0})
    step(**dict.fromkeys(names, 1.0))
    *apart, together = followed
    for name, total in zip(names, apart, strict=True):
        assert total > 0 and (name == "part" or total == pytest.approx(3 * losses[name].item()))
    assert together == pytest.approx(sum(apart) / 3)


def test_losses_are_of_the_utterances_edges_and_of_the_middle_of_the_others(corpus, tmp_path):
    trainer = trainer_of(corpus, tmp_path / "run", edge_segments=1)
    frames = torch.arange(20.0) + 100 * torch.arange(4)[:, None]
    judged = trainer.judged(frames.repeat_interleave(HOP, dim=1)[:, None])
    assert judged.shape == (4, 1, 8 * HOP)
    assert judged[:, 0, ::HOP][:, [0, -1]].tolist() == [[0, 7], [112, 119], [206, 213], [306, 313]]


@pytest.mark.slow
def test_a_voices_generator_goes_on_without_sources(corpus, tmp_path, monkeypatch):
    """On recordings, of which no sources are known: beside the generator the pitch network stays."""
    monkeypatch.setattr("melforge.hifigan.train.can_measure_pitch", lambda: False)
    train(monkeypatch, corpus, tmp_path / "first", REGRESSION, "--steps", "1")
    start = tmp_path / "first" / "weights.safetensors"
    monkeypatch.setattr(dataset, "LEAST_SECONDS", 1.0)
    bare = write_sourced_corpus(tmp_path / "bare")
    for path in (bare / SOURCES).iterdir():
        path.unlink()
    words = ["--model", "hifigan", "--steps", "1", "--device", "cpu", "--learning-rate", "0.01"]
    voice_train.main([str(bare), "-o", str(tmp_path / "run"), "--from", str(start), *words])
    tuned = torch.load(tmp_path / "run" / "hifigan" / "last.pt", weights_only=True)["trainer"]["generator"]
    begun = {name: torch.from_numpy(value) for name, value in read_checkpoint(start).state.items()}
    pitch = [name for name in begun if name.startswith("pitch.")]
    assert pitch and all(torch.equal(tuned[name], begun[name]) for name in pitch)
    assert not torch.equal(tuned["conv_post.bias"], begun["conv_post.bias"])


# What is refused


def test_a_corpus_without_sources_is_refused(tmp_path, monkeypatch):
    corpus = write_sourced_corpus(tmp_path / "corpus")
    (corpus / SOURCES / "u2.npz").unlink()
    with pytest.raises(InputError, match=r"u2\.npz is missing: prepare the corpus with --sources"):
        train(monkeypatch, corpus, tmp_path / "run", REGRESSION, "--steps", "1")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("edges", [-1, 3])
def test_more_edges_than_a_batch_holds_are_refused(edges, corpus, tmp_path, monkeypatch):
    message = rf"edge_segments={edges}: a batch of 4 has room for 0 to 2 at either end"
    with pytest.raises(InputError, match=message):
        train(monkeypatch, corpus, tmp_path / "run", REGRESSION, "--steps", "1", edge_segments=edges)


def test_settings_of_a_source_are_refused_where_there_is_none(corpus, tmp_path, monkeypatch):
    words = ["--corpus", str(corpus), "--out", str(tmp_path / "run"), "--steps", "1", "--device", "cpu"]
    words += ["--set", "adversarial=false", "--set", "phase_loss_weight=1"]
    monkeypatch.setattr("sys.argv", ["train", *words])
    with pytest.raises(
        InputError, match="adversarial, phase_loss_weight: for a generator with a source alone"
    ):
        main()
    assert not (tmp_path / "run").exists()


# Losses


def tone(samples: int, turned: float = 0.0, period: float = 100.0) -> torch.Tensor:
    """Ten harmonics (1, 1, S), all turned by so many radians."""
    at = 2 * math.pi / period * torch.arange(samples, dtype=torch.float64)
    return sum(0.1 / k * (k * at + turned).cos() for k in range(1, 11)).float()[None, None]


def test_the_phase_loss_grows_with_the_phase():
    true = tone(8 * HOP)
    assert phase_loss(true, true).item() < 1e-9
    losses = [phase_loss(tone(8 * HOP, angle), true).item() for angle in (0.1, 0.3, 1.0, math.pi)]
    assert 0 < losses[0] < losses[1] < losses[2] < losses[3]
    assert phase_loss(tone(8 * HOP, -0.3), true).item() == pytest.approx(losses[1], rel=0.05)
    # Mel spectra would hardly tell these apart.
    made = true.clone().requires_grad_()
    phase_loss(made, tone(8 * HOP, 0.1)).backward()
    assert made.grad is not None and made.grad.isfinite().all() and made.grad.any()


def test_the_phase_loss_of_silence_has_a_slope():
    made = torch.zeros(1, 1, 8 * HOP, requires_grad=True)
    phase_loss(made, tone(8 * HOP)).backward()
    assert made.grad is not None and made.grad.isfinite().all() and made.grad.any()


@pytest.fixture(scope="module")
def certain() -> SourceFilterGenerator:
    """A network that finds one pitch everywhere: 200 Hz."""
    sizes = {"upsample_initial_channel": 8, "pitch_channels": 4, "pitch_bins": 64, "noise_channels": 2}
    sizes |= {"resblock": "2", "resblock_kernel_sizes": (3,), "resblock_dilation_sizes": ((1,),)}
    stft = {"upsample_rates": (), "upsample_kernel_sizes": (), "istft_n_fft": 1024, "istft_hop_length": 256}
    network = SourceFilterGenerator(HifiganConfig(source=True, **sizes, **stft))
    pitch = network.pitch
    width = pitch.places[1] - pitch.places[0]
    with torch.no_grad():
        pitch.post.weight.zero_()
        pitch.post.bias.copy_(-0.5 * ((pitch.places + pitch.middle - math.log(200 / RATE)) / width).square())
    return network


def test_the_pitch_loss_is_least_at_the_pitch_that_is_found(certain):
    mel, weight = torch.zeros(1, 80, 9), torch.ones(1, 9)

    def loss(hertz: float) -> float:
        return pitch_loss(certain.pitch, mel, torch.full((1, 9), hertz / RATE), weight).item()

    losses = [loss(hertz) for hertz in (200, 205, 215, 240, 300, 400)]
    assert losses == sorted(losses) and losses[0] == min(map(loss, np.linspace(100, 400, 61)))
    assert loss(190) > losses[0]
    octave = losses[-1] - losses[0]
    assert octave > 12  # semitones


def test_the_pitch_loss_hears_jitter_and_only_what_has_weight(certain):
    mel, weight = torch.zeros(1, 80, 10), torch.ones(1, 10)
    ratio = torch.tensor([[1.02, 1 / 1.02]]).repeat(1, 5)
    steady, shaken = (200 / RATE * one for one in (ratio.sort().values, ratio))
    calm = pitch_loss(certain.pitch, mel, steady, weight)
    assert pitch_loss(certain.pitch, mel, shaken, weight) > calm + 0.3
    weight[:, 5:] = 0
    wild = torch.where(weight > 0, steady, 400 / RATE)
    assert pitch_loss(certain.pitch, mel, wild, weight) == pitch_loss(certain.pitch, mel, steady, weight)
    assert pitch_loss(certain.pitch, mel, steady, 0 * weight) == 0


def test_a_frames_pitch_counts_where_it_is_heard():
    frames = 12
    harmonic, noise = tone(frames * HOP), torch.randn(1, 1, frames * HOP)
    voiced = torch.ones(1, frames)
    voiced[:, -2:] = 0
    clear = pitch_weight(harmonic + 0.01 * noise, harmonic, voiced)
    assert clear.shape == (1, frames)
    assert torch.equal(clear, voiced * (1 + FAINT_WEIGHT))
    for audio, tones in ((harmonic + noise, harmonic), (1e-3 * harmonic, 1e-3 * harmonic)):
        assert torch.equal(pitch_weight(audio, tones, voiced), voiced * FAINT_WEIGHT)
