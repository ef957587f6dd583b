"""Bias removal: the published one's answers from the stage on every backend, and PyTorch's transforms."""

from pathlib import Path

import numpy as np
import pytest
import torch

from melforge.common.audio.denoiser import bias_spectrum, denoiser_examples
from melforge.common.audio.denoiser_network import DenoiserNetwork
from melforge.common.engines.backends import make_engine
from melforge.common.export.to_onnx import export_source, source_stages
from melforge.common.synthesis.loading import make_driver
from melforge.common.weights.published import read_checkpoint
from melforge.hifigan.config import HifiganConfig

GOLDEN = Path(__file__).parents[1] / "golden"
MODELS = ("waveglow", "hifigan")
DATA = {name: np.load(GOLDEN / "denoiser" / f"{name}_denoiser.npz") for name in MODELS}


@pytest.fixture(params=MODELS)
def golden(request):
    return DATA[request.param]


@pytest.fixture(scope="module", params=["torch", "onnx"])
def engine(request, tiny_voice):
    """The stage of the tiny voice, whose hop is the published one."""
    from melforge.common.weights.voices import load_voice

    source = load_voice(tiny_voice).source("hifigan")
    return make_engine(source_stages(source)[1], source, request.param)


def denoised(audio: np.ndarray, bias: np.ndarray, strength: float, hop: int = 256) -> np.ndarray:
    """By PyTorch's transforms: audio (..., S) -> (..., S // hop * hop)."""
    how = {"n_fft": 4 * hop, "hop_length": hop, "window": torch.hann_window(4 * hop)}
    spectrum = torch.stft(torch.from_numpy(audio), **how, return_complex=True)
    magnitude = spectrum.abs()
    left = (magnitude - strength * torch.from_numpy(bias)[:, None]).clamp(min=0)
    return torch.istft(spectrum * left / magnitude.clamp(min=1e-38), **how).numpy()


def assert_golden(value: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-4 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("strength", [0.01, 0.1, 1.0])
def test_golden_outputs(golden, engine, strength):
    audio, bias = golden["audio"], golden["bias_spec"][0, :, 0]
    expected = golden[f"out_strength_{strength}"][:, 0]
    assert expected.shape[1] == audio.shape[1] // 256 * 256
    share = np.full(len(audio), strength, np.float32)
    assert_golden(engine(audio=audio, strength=share, bias=bias)["denoised"], expected)
    assert_golden(engine(audio=audio[:1], strength=share[:1], bias=bias)["denoised"], expected[:1])
    assert_golden(denoised(audio, bias, strength), expected)


def test_golden_transform():
    golden, network = DATA["waveglow"], DenoiserNetwork(HifiganConfig())
    real, imaginary = network.spectrum(torch.from_numpy(golden["audio"]), network.tables()).unbind(1)
    magnitude = torch.hypot(real, imaginary).numpy()  # its bins are in another order, some twice
    assert_golden(magnitude, golden["stft_magnitude"][:, network.bins])


@pytest.mark.parametrize("backend", ["torch", pytest.param("onnx", marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", MODELS)
def test_golden_bias_is_measured_on_the_vocoders_engine(model, backend, tmp_path):
    source = read_checkpoint(GOLDEN / model / "checkpoint.pt")
    if backend == "onnx":
        source, _ = export_source(
            source,
            tmp_path,
            [stage for stage in source_stages(source) if not stage.name.startswith("masked_")],
            "few",
        )
    vocoder = make_driver(source, backend, "cpu")
    bias = DATA[model]["bias_spec"][0, :, 0]
    assert_golden(vocoder.hum.bias, bias)
    assert_golden(bias_spectrum(DATA[model]["bias_audio"].ravel(), 256), bias)


@pytest.mark.parametrize("rates", [(16, 4), (10, 10), (5, 3), (15, 20), (7,)])
def test_other_hops_agree_with_pytorchs_transforms(rates):
    config = HifiganConfig(
        upsample_rates=rates, upsample_kernel_sizes=rates, upsample_initial_channel=2 ** len(rates)
    )
    hop, rng = config.hop_length, np.random.default_rng(0)
    inputs = denoiser_examples(hop, {"batch": 2, "samples": 13 * hop + hop // 2}, rng)
    inputs["strength"] = np.array([0.0, 0.7], np.float32)
    (found,) = DenoiserNetwork(config).denoise(**{name: torch.from_numpy(x) for name, x in inputs.items()})
    assert found.shape == (2, 13 * hop)
    np.testing.assert_allclose(found[0].numpy(), inputs["audio"][0, : 13 * hop], rtol=0, atol=1e-5)
    expected = denoised(inputs["audio"][1], inputs["bias"], 0.7, hop)
    np.testing.assert_allclose(found[1].numpy(), expected, rtol=0, atol=1e-5)
    assert np.abs(expected - inputs["audio"][1, : 13 * hop]).max() > 0.01


@pytest.mark.parametrize("samples", [513, 768, 1300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_items_of_a_batch_have_their_own_strength(engine, samples):
    inputs = denoiser_examples(256, {"batch": 4, "samples": samples}, np.random.default_rng(samples))
    together = engine(**inputs)["denoised"]
    assert together.shape == (4, samples // 256 * 256)
    for item in range(4):
        one = slice(item, item + 1)
        alone = engine(audio=inputs["audio"][one], strength=inputs["strength"][one], bias=inputs["bias"])
        np.testing.assert_allclose(together[one], alone["denoised"], rtol=0, atol=1e-5)
        expected = denoised(inputs["audio"][item], inputs["bias"], float(inputs["strength"][item]))
        np.testing.assert_allclose(together[item], expected, rtol=0, atol=1e-5)


def test_silence_stays_silent(engine):
    one = np.ones(1, np.float32)
    found = engine(audio=np.zeros((1, 2048), np.float32), strength=one, bias=np.ones(513, np.float32))
    assert not found["denoised"].any()


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"audio": np.zeros((1, 512), np.float32)}, "samples = 512, outside 513 to 1048576"),
        ({"bias": np.ones(257, np.float32)}, r"'bias' has shape \(257,\), declared \[513\]"),
        ({"strength": np.ones(2, np.float32)}, "'strength' has batch = 2, but 'audio' has batch = 1"),
    ],
)
def test_bad_input_is_refused(engine, wrong, message):
    inputs = denoiser_examples(256, {"batch": 1, "samples": 2048}, np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        engine(**inputs | wrong)


def test_the_graph_is_small_and_needs_no_weights(tiny_voice):
    graph = tiny_voice / "hifigan" / "denoiser.onnx"
    assert graph.stat().st_size < 140_000
    assert '"weights": []' in graph.with_suffix(".json").read_text()
