"""Harmonics in the noise: their sum, padding, chunks and batches; both runs of training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.errors import InputError
from melforge.common.export.to_onnx import source_stages, with_graphs
from melforge.common.speech import Controls
from melforge.common.synthesis.chunks import ChunkSizes
from melforge.common.synthesis.loading import make_driver
from melforge.common.training.corpus import batches
from melforge.common.training.corpus.sources import SOURCES
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import ModelSource
from melforge.waveglow.config import WaveglowConfig
from melforge.waveglow.noise import DECAY, harmonics, held
from melforge.waveglow.source import SourcedWaveglow
from melforge.waveglow.train import main
from tests.conftest import save_trained, tiny_waveglow
from tests.sourced_corpus import write_sourced_corpus

ROOT = Path(__file__).resolve().parents[2]
CONFIG = replace(tiny_waveglow()[1], source=True, pitch_channels=16, pitch_bins=32)


@pytest.fixture(scope="module")
def network() -> SourcedWaveglow:
    torch.manual_seed(0)
    network = SourcedWaveglow(CONFIG, weight_norm=False).eval()
    with torch.no_grad():
        for net in network.WN:
            for parameter in net.end.parameters():
                parameter.normal_(0, 0.05)
        for value in network.pitch.parameters():  # a pitch that changes from frame to frame
            value.normal_(0, 0.5 / max(1.0, value[0].numel() ** 0.5 if value.dim() > 1 else 8.0))
    return network


@pytest.fixture(scope="module")
def source(network, tmp_path_factory) -> ModelSource:
    path = tmp_path_factory.mktemp("waveglow") / "weights.safetensors"
    return read_checkpoint(save_trained(path, network, CONFIG))


@pytest.fixture(scope="module")
def exported(source, tmp_path_factory) -> ModelSource:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MELFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield with_graphs(source, source_stages(source), 0)


@pytest.fixture(scope="module")
def mel() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((80, 120), np.float32) * 2 - 5


def test_harmonics_fall_off_with_their_frequency():
    frames, steps = 40, CONFIG.noise_length(1)
    pitch = np.linspace(0.004, 0.012, frames, dtype=np.float32)[None]
    made = harmonics(pitch, CONFIG)
    assert made.shape == (1, CONFIG.n_group, frames * steps) and made.dtype == np.float32
    at = (np.arange(frames * steps) + 0.5) / steps - 0.5  # in frames from the first one's centre
    fine = np.arange(-64, (frames + 1) * 64 + 1) / 64
    rate = np.interp(fine, np.arange(frames), pitch[0].astype(np.float64) * CONFIG.hop_length)
    phase = np.concatenate(([0], np.cumsum(0.5 * (rate[1:] + rate[:-1]) / 64)))
    phase = np.interp(at, fine, phase - phase[64])
    each = np.interp(at, fine, rate) / steps
    wanted = sum(np.exp(-DECAY * k * each + 2j * np.pi * k * phase) for k in range(1, 200))
    for channel, part in enumerate((wanted.real, wanted.imag) * (CONFIG.n_group // 2)):
        assert np.abs(made[0, channel] - part).max() < 0.01 * np.abs(wanted).max()


def test_tensors_have_the_same_harmonics_as_arrays():
    pitch = 0.004 + 0.01 * np.random.default_rng(0).random((2, 1000), np.float32)
    made = harmonics(torch.from_numpy(pitch), CONFIG)
    assert made.dtype == torch.float32
    np.testing.assert_allclose(made, harmonics(pitch, CONFIG), rtol=0, atol=1e-3)


def test_behind_an_items_end_its_pitch_stays():
    pitch, lengths = np.linspace(0.004, 0.013, 10, dtype=np.float32).reshape(2, 5), np.array([5, 2])
    wanted = np.stack((pitch[0], pitch[1, [0, 1, 1, 1, 1]]))
    for give in (np.asarray, torch.from_numpy):
        np.testing.assert_array_equal(held(give(pitch), give(lengths)), wanted)
    alone, padded = harmonics(pitch[1:, :2], CONFIG), harmonics(held(pitch, lengths), CONFIG)
    np.testing.assert_array_equal(padded[1:, :, : 2 * CONFIG.noise_length(1)], alone)


@pytest.mark.parametrize(
    ("backend", "given"), [("torch", "source"), pytest.param("onnx", "exported", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_chunks_join_to_the_whole_and_batches_are_each_alone(backend, given, strength, mel, request):
    source, controls = request.getfixturevalue(given), Controls(seed=3, denoising_strength=strength)
    driver = make_driver(source, backend, "cpu")
    (whole,) = driver.vocode_each([mel], controls)
    chunks = list(driver.vocode_chunks(mel[None], ChunkSizes(24, 48), controls))
    assert len(chunks) > 2
    np.testing.assert_allclose(np.concatenate(chunks), whole, rtol=0, atol=1e-4)
    masked = make_driver(source, backend, "cpu", decoder="masked")
    mels, each = [mel, mel[:, :50], mel[:, 30:31]], [controls, Controls(seed=4), Controls(sigma=0.0)]
    read = masked._vocode_batch(mels, each)
    for audio, one, how in zip(read(), mels, each, strict=True):
        (alone,) = driver.vocode_each([one], how) if one.shape[1] > 2 else (audio,)
        np.testing.assert_allclose(audio, alone, rtol=0, atol=1e-3 * np.abs(alone).max())


def test_the_pitch_is_heard_and_sigma_scales_it_too(source, mel):
    driver = make_driver(source, "torch", "cpu")
    (z,) = driver.excerpts(mel[None], Controls(seed=1, sigma=0.5))(0, 120).values()
    (silent,) = driver.excerpts(mel[None], Controls(seed=1, sigma=0.0))(0, 120).values()
    tones = harmonics(driver.pitch.of_whole(mel[None]), CONFIG)
    assert not silent.any() and np.abs(tones).max() > 1
    plain = make_driver(source, "torch", "cpu")
    plain.config = replace(CONFIG, source=False)
    (noise,) = plain.excerpts(mel[None], Controls(seed=1, sigma=0.5))(0, 120).values()
    np.testing.assert_allclose(z - noise, 0.5 * tones, rtol=0, atol=1e-5)


def test_frames_of_an_odd_number_of_steps_are_refused():
    with pytest.raises(InputError, match=r"hop_length 24 must be a multiple of 2 \* n_group 8"):
        WaveglowConfig(source=True, hop_length=24)
    with pytest.raises(InputError, match="must be in order"):
        replace(CONFIG, shortest_period=300)


# Training

TINY = {
    **{"n_flows": 2, "n_early_every": 4, "wn_layers": 2, "wn_channels": 8, "cond_channels": 8},
    **{"pitch_channels": 8, "pitch_bins": 16, "period_channels": 1, "resolution_channels": 1},
    **{"batch_size": 2, "segment_frames": 20, "judged_frames": 8, "warm_up_steps": 1},
}


def train(monkeypatch, corpus: Path, out: Path, *words: str) -> dict:
    given = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    monkeypatch.setattr(batches, "VALIDATION_FRAMES", 30)
    monkeypatch.chdir(ROOT)
    arguments = ["--corpus", str(corpus), "--out", str(out), "--device", "cpu", *given, *words]
    monkeypatch.setattr("sys.argv", ["train", *arguments])
    main()
    return torch.load(out / "last.pt", weights_only=True)["trainer"]["model"]


def test_both_runs_learn_the_pitch_and_the_weights_speak(tmp_path, monkeypatch):
    corpus = write_sourced_corpus(tmp_path / "corpus")
    first = train(monkeypatch, corpus, tmp_path / "1", "--steps", "2")
    begun = "--init", str(tmp_path / "1" / "last.pt"), "--hparam", "hparams/waveglow/train_adversarial.yaml"
    second = train(monkeypatch, corpus, tmp_path / "2", "--steps", "2", *begun)
    for run in "1", "2":
        heading = (tmp_path / run / "losses.csv").read_text().splitlines()[0].split(",")
        assert "pitch" in heading
    assert not torch.equal(first["pitch.post.bias"], second["pitch.post.bias"])
    assert not torch.equal(first["WN.0.end.bias"], second["WN.0.end.bias"])
    source = read_checkpoint(tmp_path / "2" / "weights.safetensors")
    assert source.config.source and source.config.pitch_channels == 8
    (audio,) = make_driver(source, "torch", "cpu").vocode_each([np.full((80, 30), -5, np.float32)])
    assert len(audio) == 30 * 256 and np.isfinite(audio).all() and audio.any()


def test_a_corpus_without_sources_is_refused(tmp_path, monkeypatch):
    corpus = write_sourced_corpus(tmp_path / "corpus")
    (corpus / SOURCES / "u2.npz").unlink()
    with pytest.raises(InputError, match=r"u2\.npz is missing: prepare the corpus with --sources"):
        train(monkeypatch, corpus, tmp_path / "run", "--steps", "1")
    assert not (tmp_path / "run").exists()
