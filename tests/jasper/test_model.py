"""Jasper's network and features against NVIDIA's answers, and what batches change."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.audio.mel import mel_basis
from melforge.common.recognition.transcript import greedy_text
from melforge.jasper.checkpoint import load_checkpoint
from melforge.jasper.config import DEVIATION_FLOOR, LOG_FLOOR, JasperConfig
from melforge.jasper.features import symmetric_window
from melforge.jasper.features_network import JasperFeatures
from melforge.jasper.model import GreedyDecoder, Jasper
from tests.networks import load_network

GOLDEN = Path(__file__).parents[1] / "golden" / "jasper"
DATA = dict(np.load(GOLDEN / "io.npz"))
TEXTS = [
    "qjhyujyryhohyhykjypqyhjrhkrhywjrjqyqyhvyvh",
    "jojqhyjyrqukrohjuykuhyuhkjryhkbhghyb'h",
    "qkohjyoryjyhjuvyhvb'h",
]
FEATURES, LENGTHS = torch.from_numpy(DATA["feats"]), torch.from_numpy(DATA["feat_lens"])
FEATURE_TOLERANCE = 2e-4
# Of log-probabilities, for each unit of the largest one above 1: averaged weights make them 1e5.
TOLERANCE = 1e-3


def close(got: torch.Tensor, wanted: np.ndarray, rtol: float = 1e-6) -> bool:
    return bool(np.all(np.abs(got.numpy() - wanted) <= TOLERANCE + rtol * np.abs(wanted).max()))


def test_log_probabilities_labels_and_texts_are_nvidias():
    network, checkpoint = load_network("jasper", GOLDEN / "checkpoint.pt")
    with torch.no_grad():
        masked, unmasked = network(FEATURES, LENGTHS), network(FEATURES)
    assert close(masked, DATA["log_probs"], 0) and close(unmasked, DATA["nomask_log_probs"], 0)
    steps = network.steps(LENGTHS)
    assert steps.tolist() == DATA["out_lens"].tolist()
    assert [checkpoint.config.steps(int(n)) for n in LENGTHS] == steps.tolist()
    assert (masked.argmax(2).numpy() == DATA["greedy"]).all()
    labels, scores = GreedyDecoder(checkpoint.config).decode(masked, steps)
    assert (labels.numpy() == DATA["greedy_masked"]).all()
    assert scores[0, 0] == masked[0, 0].max() and scores[2, -1] == 0
    whole = masked.argmax(2).numpy()  # NVIDIA's text has what is decoded behind an item's end too
    assert [greedy_text(row, checkpoint.config.labels) for row in whole] == TEXTS


def test_averaged_weights_are_taken_where_asked():
    network, checkpoint = load_network("jasper", GOLDEN / "checkpoint.pt", True)
    assert checkpoint.info["ema_available"]
    with torch.no_grad():
        assert close(network(FEATURES, LENGTHS), DATA["ema_log_probs"])


@pytest.mark.parametrize("block", [0, 1, 3, 5])
def test_blocks_are_nvidias(block):
    network, _ = load_network("jasper", GOLDEN / "checkpoint.pt")
    found = {}
    layer = network.encoder.layers[block]
    layer.register_forward_hook(lambda module, inputs, outputs: found.update(out=outputs[0][-1]))
    with torch.no_grad():
        network(FEATURES, LENGTHS)
    assert close(found["out"], DATA[f"block{block}_out"], 0)


@pytest.fixture(scope="module")
def config() -> JasperConfig:
    return load_checkpoint(GOLDEN / "checkpoint.pt").config


def test_features_of_a_batch_are_nvidias(config):
    got, frames = stage_features(config, DATA["audio"], DATA["audio_lens"], "extract")
    assert got.shape == DATA["audio_feats"].shape and got.dtype == np.float32
    assert np.abs(got - DATA["audio_feats"]).max() <= FEATURE_TOLERANCE
    assert frames.tolist() == DATA["audio_feat_lens"].tolist()


def stage_features(config, audio, lengths, method) -> tuple[np.ndarray, np.ndarray]:
    samples = config.padded_frames(int(lengths.max())) * config.hop_length
    audio = np.pad(audio, ((0, 0), (0, max(0, samples - audio.shape[1]))))[:, :samples]
    got = getattr(JasperFeatures(config), method)(torch.from_numpy(audio), torch.from_numpy(lengths))
    return got[0].numpy(), got[1].numpy()


def features(audio: np.ndarray, config: JasperConfig) -> np.ndarray:
    """Of one item, by PyTorch's transform: normalised log mels [n_mels, T]."""
    samples = torch.from_numpy(audio)
    emphasised = torch.cat((samples[:1], samples[1:] - config.preemphasis * samples[:-1]))
    window = torch.from_numpy(symmetric_window(config)).float()
    how = {"hop_length": config.hop_length, "win_length": config.win_length, "window": window}
    spectrum = torch.stft(emphasised, config.filter_length, **how, return_complex=True)
    power = spectrum.abs().square()[:, : config.frames(len(audio))]
    mel = (torch.tensor(mel_basis(config.mel)) @ power + LOG_FLOOR).log()
    axes = (1,) if config.normalize == "per_feature" else (0, 1)
    deviation, mean = torch.std_mean(mel, axes, keepdim=True)
    return ((mel - mean) / (deviation + DEVIATION_FLOOR)).numpy()


VARIANTS = {
    "published": {},
    "all_features": {"normalize": "all_features"},
    "unpadded": {"pad_align": 0},
    "telephone": {"sampling_rate": 8000, "filter_length": 256, "hop_length": 80, "win_length": 160},
    "wider_windows": {"win_length": 400},
    "no_preemphasis": {"preemphasis": 0.0, "mel_fmin": 50.0, "mel_fmax": 7000.0},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_features_of_each_item_are_its_own(variant):
    changed = VARIANTS[variant]
    if changed.get("sampling_rate") == 8000:
        changed = changed | {"mel_fmax": None}
    config = replace(JasperConfig(), **changed)
    lengths = np.array([16000, 12345, 9001])
    rng = np.random.default_rng(0)
    audio = (rng.standard_normal((3, 16000)) * 0.1).astype(np.float32)
    audio *= np.arange(16000) < lengths[:, None]
    got, counts = stage_features(config, audio, lengths, "extract_each")
    assert counts.tolist() == [config.frames(int(n)) for n in lengths]
    for row, (samples, frames) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        wanted = features(audio[row, :samples], config)
        assert np.abs(got[row, :, :frames] - wanted).max() <= FEATURE_TOLERANCE
        assert not got[row, :, frames:].any()


def test_published_batches_change_the_last_frames_of_short_items(config):
    """The trap of zero-padded batches: shorter items do not end where they end alone."""
    audio, lengths = DATA["audio"], DATA["audio_lens"]
    each, frames = stage_features(config, audio, lengths, "extract_each")
    differs = np.abs(each - DATA["audio_feats"]).max(1) > 10 * FEATURE_TOLERANCE
    assert not differs[0].any()
    assert all(differs[row, frames[row] - 1] for row in (1, 2))


def test_each_item_of_a_masked_batch_is_what_it_is_alone():
    network, _ = load_network("jasper", GOLDEN / "checkpoint.pt")
    with torch.no_grad():
        together = network(FEATURES, LENGTHS)
        for row, (length, steps) in enumerate(zip(LENGTHS, network.steps(LENGTHS), strict=True)):
            alone = network(FEATURES[row : row + 1, :, :length], LENGTHS[row : row + 1])
            assert close(together[row : row + 1, :steps], alone.numpy(), 0)


def tiny(**changes) -> JasperConfig:
    """Four blocks of separable convolutions."""
    blocks = {
        "filters": (8, 8, 8, 12),
        "kernel_sizes": (5, 7, 9, 1),
        "repeats": (1, 2, 3, 1),
        "strides": (2, 1, 1, 1),
        "dilations": (1, 1, 2, 1),
        "dropouts": (0.0,) * 4,
        "residual": (False, True, True, False),
        "residual_dense": (False,) * 4,
        "separable": (True, True, True, False),
    }
    return JasperConfig(**(blocks | changes))


def test_separable_blocks_are_pairs_of_convolutions():
    network = Jasper(tiny()).eval()
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items() if "weight" in name}
    prefix = "encoder.layers.2."
    assert shapes[f"{prefix}conv.0.weight"] == (8, 1, 9) and shapes[f"{prefix}conv.1.weight"] == (8, 8, 1)
    assert shapes[f"{prefix}conv.5.weight"] == (8, 1, 9)  # behind batch norm, activation and dropout
    assert shapes[f"{prefix}res.0.0.weight"] == (8, 8, 1) and f"{prefix}res.1.0.weight" not in shapes
    lengths = torch.tensor([40, 23])
    x = torch.randn(2, 64, 40)
    with torch.no_grad():
        whole = network(x, lengths)
        alone = network(x[1:, :, :23], lengths[1:])
    assert whole.shape == (2, 20, 29) and network.steps(lengths).tolist() == [20, 12]
    torch.testing.assert_close(whole[1:, :12], alone)
    assert torch.allclose(whole.exp().sum(2), torch.ones(2, 20))


@pytest.mark.parametrize("activation", ["hardtanh", "selu"])
def test_other_activations_run(activation):
    assert torch.isfinite(Jasper(tiny(activation=activation)).eval()(torch.randn(1, 64, 32))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"filters": (8, 8)}, "need one value for each block: filters has 2, kernel_sizes has 4"),
        ({"kernel_sizes": (5, 7, 8, 1)}, "kernel_sizes 8 must be odd"),
        ({"activation": "tanh"}, "activation must be relu or hardtanh or selu, not 'tanh'"),
        ({"strides": (2, 2, 1, 1)}, "strides above 1 are for blocks of one convolution"),
        ({"dropouts": (0.0, 1.0, 0.0, 0.0)}, "dropouts must be from 0 to below 1"),
        ({"residual_dense": (True, False, False, False)}, "residual_dense is for blocks with residual"),
        ({"labels": "aa"}, "holds a character twice"),
        ({"normalize": "none"}, "normalize must be per_feature or all_features"),
        ({"dither": -1.0}, "dither -1.0 must not be negative"),
        ({"mel_fmax": 9000.0}, "within 0 to 8000 Hz"),
        ({"repeats": (1, 0, 3, 1)}, "repeats must be at least 1"),
    ],
)
def test_sizes_that_no_network_has_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        tiny(**change)
