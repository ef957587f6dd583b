"""The recipe: corpora, augmentation, and a tiny network that learns, stops and goes on."""

import csv
import itertools
import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.cli.training import recipe_parser
from melforge.common.config.hparams import load_hparams
from melforge.common.training.corpus.recordings import load_recordings, save_recordings
from melforge.common.training.loop import GraphedSteps, TrainingPlan
from melforge.common.weights.published import read_checkpoint
from melforge.jasper.augment import (
    Augmentation,
    augmented_features,
    clean_features,
    coded,
    degrade,
    read_at_speeds,
    smeared,
    spec_augment,
    transform_size,
    unevenly_paced,
    warped_bases,
)
from melforge.jasper.config import JasperConfig
from melforge.jasper.features_network import JasperFeatures
from melforge.jasper.train import JasperRecipe, JasperTrainer, evenly_chosen, main

RATE = 16000
LETTERS = {"a": 300.0, "b": 700.0, "c": 1500.0, "d": 3000.0, "e": 5500.0}
FULL = Augmentation(
    **{"speed_min": 0.85, "speed_max": 1.15, "warp": 0.15, "room_share": 1.0, "noise_share": 1.0},
    **{"babble_share": 0.5, "band_share": 1.0, "level_min": -20.0, "freq_masks": 2, "time_masks": 2},
    **{"smear_share": 1.0, "codec_share": 1.0, "pace_share": 1.0},
)


def sung(text: str) -> np.ndarray:
    """A tone of 80 ms for each letter, with 60 ms of silence behind it; a space is silence."""
    time = np.arange(int(0.08 * RATE)) / RATE
    rows = []
    for letter in text:
        tone = 0.3 * np.sin(2 * np.pi * LETTERS[letter] * time) if letter in LETTERS else 0 * time
        rows += [tone * np.hanning(len(time)), np.zeros(int(0.06 * RATE))]
    return np.concatenate(rows).astype(np.float32)


def texts(count: int) -> list[str]:
    rng = np.random.default_rng(0)
    words = ["abc", "bad", "cab", "dea", "ebb", "ace", "bed", "cede"]
    return [" ".join(rng.choice(words, int(rng.integers(1, 4)))) for _ in range(count)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Wavs with metadata.csv at another rate, and a packed part; both sing."""
    folder = tmp_path_factory.mktemp("corpus")
    said = texts(48)
    (folder / "wavs").mkdir()
    with (folder / "metadata.csv").open("w", newline="") as file:
        rows = csv.writer(file, delimiter="|", quoting=csv.QUOTE_NONE)
        for number, text in enumerate(said[:8]):
            soundfile.write(folder / "wavs" / f"{number}.wav", sung(text), RATE)
            rows.writerow([number, "raw", text.upper()])
    for name, part in (("more", said[8:40]), ("val", said[40:])):
        audio = [np.int16(sung(text) * 32767) for text in part]
        offsets = np.cumsum([0, *map(len, audio)])
        save_recordings(folder / name, np.concatenate(audio), offsets, part, RATE)
    return folder


def test_corpora_of_either_form_are_read_together(corpus):
    found = load_recordings(corpus, RATE)
    assert len(found.texts) == 48 and found.held_out.sum() == 8
    assert sorted(text.lower() for text in found.texts) == sorted(texts(48))
    for number in (0, 40, 47):
        part = found.audio[found.offsets[number] : found.offsets[number + 1]]
        assert np.abs(part / 32768 - sung(found.texts[number].lower())).max() < 1e-3


def test_what_is_no_corpus_is_refused(corpus, tmp_path):
    with pytest.raises(FileNotFoundError, match="none not found"):
        load_recordings(tmp_path / "none", RATE)
    with pytest.raises(ValueError, match=r"neither recordings\.npz nor metadata\.csv"):
        load_recordings(tmp_path, RATE)
    with pytest.raises(ValueError, match="is of 16000 Hz, not 8000"):
        load_recordings(corpus / "more", 8000)
    with pytest.raises(ValueError, match="1 texts do not fit 2 recordings"):
        save_recordings(tmp_path, np.zeros(4), np.array([0, 2, 4]), ["a"], RATE)
    (tmp_path / "metadata.csv").write_text("name\n")
    with pytest.raises(ValueError, match=r"metadata\.csv, line 1: write name\|text"):
        load_recordings(tmp_path, RATE)


def test_speeds_resample_each_recording():
    audio = np.int16(np.concatenate([sung("ab"), sung("cd")]) * 32767)
    half = len(audio) // 2
    starts, lengths = torch.tensor([0, half]), torch.tensor([half, half])
    given = (torch.from_numpy(audio), starts, lengths)
    made, new = read_at_speeds(*given, torch.tensor([1.0, 0.5]), 2 * half + 100)
    assert new.tolist() == [half, 2 * half]
    assert torch.equal(made[0, :half], given[0][:half].float() / 32768) and not made[0, half:].any()
    assert torch.allclose(made[1, : 2 * half : 2], given[0][half:].float() / 32768, atol=1e-6)
    short, new = read_at_speeds(*given, torch.tensor([1.0, 0.5]), 1000)
    assert short.shape == (2, 1000) and new.tolist() == [1000, 1000]


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rows = [sung(text) for text in ("abcde abc", "bad", "ebb de", "a")]
    samples = 160 * 160
    audio = np.stack([np.pad(row, (0, samples - len(row))) for row in rows])
    return torch.from_numpy(audio), torch.tensor([len(row) for row in rows])


def test_without_augmentation_features_are_the_stages(batch):
    config = replace(JasperConfig(), dither=0.0)
    features = JasperFeatures(config)
    wanted, frames = features.extract_each(*batch)
    for made, counts in (
        augmented_features(features, None, *batch, Augmentation()),
        clean_features(features, *batch),
    ):
        assert torch.equal(made, wanted) and torch.equal(counts, frames)


def test_augmentation_changes_recordings_and_keeps_their_lengths(batch):
    torch.manual_seed(0)
    config = JasperConfig()
    features = JasperFeatures(config)
    bases = warped_bases(features, config, 0.15)
    middle = bases[len(bases) // 2]
    assert torch.allclose(middle, features.basis, atol=1e-6) and not torch.allclose(
        bases[0], middle, atol=1e-4
    )
    audio = degrade(*batch, FULL, RATE)
    assert audio.shape == batch[0].shape and torch.isfinite(audio).all()
    assert all(
        not row[length:].any() and row[:length].any() for row, length in zip(audio, batch[1], strict=True)
    )
    made, frames = augmented_features(features, bases, *batch, FULL)
    assert torch.isfinite(made).all() and frames.tolist() == [-(-int(n) // 160) for n in batch[1]]
    other, _ = augmented_features(features, bases, *batch, FULL)
    assert not torch.allclose(made, other, atol=0.1)


def test_fourier_transforms_have_sizes_without_large_factors():
    found = [transform_size(samples) for samples in (1, 11, 13, 48000, 267201, 322223)]
    assert found == [2, 12, 14, 48000, 268800, 322560]


def test_smearing_moves_features_towards_or_away_from_their_average_over_time():
    torch.manual_seed(0)
    x = torch.randn(200, 1, 256)
    made = smeared(x, Augmentation(smear_share=0.5, smear_frames=3.0))
    untouched = (made - x).abs().amax((1, 2)) < 1e-5
    assert 70 < untouched.sum() < 130
    changes = made.diff().square().mean((1, 2)) / x.diff().square().mean((1, 2))
    assert changes.min() < 0.2 and 1.5 < changes.max() < 2.5
    assert torch.allclose(made.mean(2), x.mean(2), atol=1e-5)


def test_codecs_keep_what_is_loud():
    torch.manual_seed(0)
    time = torch.arange(4000) / RATE
    audio = 0.5 * torch.sin(2 * torch.pi * 440 * time) + 0.003 * torch.sin(2 * torch.pi * 3000 * time)
    audio = audio.repeat(64, 1)
    made = coded(audio, 0.75)
    off = (made - audio)[:, 600:-600].square().mean(1).sqrt()
    untouched, law = off == 0, (off > 0) & (off < 0.005)
    assert untouched.any() and law.any() and off.max() < 0.03 and not made[~untouched].eq(audio[0]).all()
    faint = torch.fft.rfft(made[:, 600:-600] * torch.hann_window(2800))[:, 525].abs()
    assert faint.min() < 0.05 * faint.max()  # 45 dB below: gone where parts are left out


def test_an_uneven_pace_moves_parts_and_keeps_order_and_ends():
    torch.manual_seed(0)
    x = torch.arange(100.0).repeat(64, 2, 1)
    frames = torch.full((64,), 80)
    made = unevenly_paced(x, frames, Augmentation(pace_share=0.5, unevenness=0.4))
    moved = (made - x).abs().amax((1, 2)) > 1e-3
    assert 15 < moved.sum() < 50
    steps = made[moved][:, 0, :80].diff()
    assert steps.min() > 0.55 and steps.max() < 1.45 and steps.max() > 1.1
    assert torch.equal(made[:, :, 0], x[:, :, 0]) and torch.equal(made[:, :, 80:], x[:, :, 80:])


def test_what_is_looked_at_is_of_every_part():
    assert evenly_chosen(np.arange(228), 100)[[0, -1]].tolist() == [0, 227]
    assert np.diff(evenly_chosen(np.arange(228), 100)).max() == 3
    assert evenly_chosen(np.arange(3), 100).tolist() == [0, 1, 2]
    assert not len(evenly_chosen(np.arange(0), 100))


def test_masks_are_no_larger_than_they_may_be():
    torch.manual_seed(0)
    ones = torch.ones(64, 64, 200)
    how = Augmentation(freq_masks=1, max_freq_mask=20, time_masks=1, max_time_mask=75)
    made = spec_augment(ones, how)
    bands, times = (made.amax(2) == 0).sum(1), (made.amax(1) == 0).sum(1)
    assert bands.max() <= 20 and times.max() <= 75 and bands.float().mean() > 5 and times.float().mean() > 20


SIZES = {
    **{"filters": [32, 32, 32], "kernel_sizes": [11, 9, 1], "repeats": [1, 2, 1], "strides": [2, 1, 1]},
    **{"dilations": [1, 1, 1], "dropouts": [0.0, 0.0, 0.0], "residual": [False, True, False]},
    **{"residual_dense": [False, True, False], "separable": [True, True, False]},
}


def options(corpus: Path, out: Path, *words: object, device: str = "cpu") -> list[str]:
    sizes = [word for name, value in SIZES.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    settings = {
        **{"seconds_per_batch": 12, "warm_up_steps": 10, "ema_decay": 0.9, "bucket_seconds": [1.5, 3.0]},
        **{"learning_rate": 0.01, "final_learning_rate": 0.001},
    }
    sizes += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    words = ("--corpus", corpus, "--out", out, "--device", device, *sizes, *words)
    return [*map(str, words)]


def train(monkeypatch, corpus: Path, out: Path, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["train", *options(corpus, out, *words)])
    main()


OFF = [
    word
    for f in fields(Augmentation)
    for word in ("--set", f"{f.name}={str(f.default).lower() if isinstance(f.default, bool) else f.default}")
]


def losses(folder: Path) -> list[dict[str, float]]:
    with (folder / "losses.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_a_run_is_resumed_and_its_weights_are_a_recognisers(monkeypatch, corpus, tmp_path):
    train(monkeypatch, corpus, tmp_path / "one", "--steps", 10)
    rows = losses(tmp_path / "one")
    assert [row["step"] for row in rows] == [1, 10] and all(
        np.isfinite(list(row.values())).all() for row in rows
    )
    assert {"ctc", "validation_ctc", "validation_wer"} <= rows[0].keys()
    train(monkeypatch, corpus, tmp_path / "two", "--steps", 12, "--resume", tmp_path / "one" / "last.pt")
    source = read_checkpoint(tmp_path / "two" / "weights.safetensors")
    assert (source.model, source.mel.sampling_rate, source.config.filters) == ("jasper", 16000, (32, 32, 32))
    assert source.state["encoder.layers.1.conv.2.running_var"].dtype == np.float32


@pytest.mark.gpu
def test_captured_steps_learn_what_steps_without_graphs_do(corpus, tmp_path):
    """Without augmentation, two lengths of batches in turns: three eager steps of each, then its graphs."""
    words = ("--steps", 1, *OFF, "--set", "dither=0", "--set", "learning_rate=1e-3")
    args = recipe_parser("jasper", JasperRecipe).parse_args(options(corpus, tmp_path, *words, device="cuda"))
    recordings, device = load_recordings(corpus, RATE), torch.device("cuda")
    made = []
    for captured in (False, True):
        torch.manual_seed(0)
        trainer = JasperTrainer(TrainingPlan(*args.built), recordings, device)
        if not captured:
            trainer.hear, trainer.learn = trainer._hear, trainer._learn
        batches = list(itertools.islice(trainer.batches(0), 24))
        assert len({key for key, _ in batches}) > 1
        made.append([float(trainer.step(key, **inputs)["ctc"]) for key, inputs in batches])
        if captured:
            assert len(trainer.hear.graphs) == len(trainer.learn.graphs) > 1
    assert np.allclose(made[0], made[1], rtol=0.05), made
    assert made[1][-1] < made[1][0]


def test_all_captured_parts_are_forgotten(corpus, tmp_path):
    """NCCL would wait for one that is left."""
    args = recipe_parser("jasper", JasperRecipe).parse_args(options(corpus, tmp_path, "--steps", 1))
    trainer = JasperTrainer(TrainingPlan(*args.built), load_recordings(corpus, RATE), torch.device("cpu"))
    parts = [part for part in vars(trainer).values() if isinstance(part, GraphedSteps)]
    assert len(parts) == 2
    for part in parts:
        part.graphs["a key"] = None
    trainer.forget_graphs()
    assert not any(part.graphs for part in parts)


@pytest.mark.slow
def test_a_small_network_learns_a_small_corpus(monkeypatch, corpus, tmp_path):
    train(monkeypatch, corpus, tmp_path, "--steps", 300, *OFF)
    from melforge.common.recognition.loading import load_recogniser
    from melforge.common.recognition.long_recordings import transcribe
    from melforge.common.recognition.transcript import error_rate

    recogniser = load_recogniser(checkpoint=tmp_path / "weights.safetensors", backend="torch", device="cpu")
    said = texts(48)[40:]  # held out
    heard = transcribe(recogniser, [(sung(text), RATE) for text in said])
    pairs = [(text.split(), made.text.split()) for text, made in zip(said, heard, strict=True)]
    assert error_rate(pairs) < 0.2, [made.text for made in heard]


def test_recordings_that_do_not_fit_are_refused(monkeypatch, tmp_path):
    audio = np.int16(sung("ab") * 32767)
    save_recordings(tmp_path, audio, np.array([0, len(audio)]), ["abcdeabcdeabcdeabcdeabcde"], RATE)
    with pytest.raises(ValueError, match="none of 1 recordings is up to 3 s and as long as its text"):
        train(monkeypatch, tmp_path, tmp_path / "out", "--steps", 1)


@pytest.mark.parametrize("setting", ["room_share=2", "smear_share=-0.1", "band_share=1.5"])
def test_shares_are_from_0_to_1(monkeypatch, corpus, tmp_path, setting):
    name, value = setting.split("=")
    with pytest.raises(ValueError, match=f"{name} must be a share from 0 to 1, not {value}"):
        train(monkeypatch, corpus, tmp_path / "out", "--steps", 1, "--set", setting)
    assert not (tmp_path / "out").exists()


def test_the_published_recipes_say_what_nvidias_say():
    folder = Path(__file__).parents[2] / "hparams" / "jasper"
    published = sorted(folder.glob("train_10x5dr_*.yaml"))
    assert len(published) == 7
    from melforge.common.audio.contract import MelContract

    for path in published:
        config, _, recipe = load_hparams(path, JasperConfig, MelContract, JasperRecipe, model="jasper")
        masks = recipe.freq_masks, recipe.max_freq_mask, recipe.time_masks, recipe.max_time_mask
        assert masks == ((2, 20, 2, 75) if "speca" in path.stem else (0, 20, 0, 75))
        assert config.use_conv_masks == ("nomask" not in path.stem)
        assert replace(config, use_conv_masks=True) == JasperConfig()
        speeds = recipe.speed_min, recipe.speed_max, recipe.speed_discrete
        expected = (0.85, 1.15, False) if "online_" in path.stem else (0.9, 1.1, True)
        assert speeds == (expected if "speedp" in path.stem else (1.0, 1.0, False))
        assert recipe.warp == recipe.noise_share == recipe.room_share == 0
