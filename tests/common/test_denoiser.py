"""Bias removal: the published one's answers, in numpy, in torch and as an exported graph."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from common.audio import MelContract
from common.denoiser import Denoiser, bias_spectrum, istft, stft
from common.denoiser_torch import DenoiserNetwork
from hifigan.checkpoint import load_network as load_hifigan
from waveglow.checkpoint import load_network as load_waveglow
from waveglow.noise import noise_shape

GOLDEN = Path(__file__).parents[1] / "golden"
CONTRACT = MelContract()
DATA = {name: np.load(GOLDEN / "denoiser" / f"{name}_denoiser.npz") for name in ("waveglow", "hifigan")}


@pytest.fixture(params=DATA)
def golden(request):
    return DATA[request.param]


def assert_golden(value: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-4 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("strength", [0.01, 0.1, 1.0])
def test_golden_outputs(golden, strength):
    audio, bias = golden["audio"], golden["bias_spec"][0, :, 0]
    expected = golden[f"out_strength_{strength}"][:, 0]
    assert expected.shape[1] == audio.shape[1] // 256 * 256
    assert_golden(Denoiser(bias)(audio, strength), expected)
    assert_golden(Denoiser(bias)(audio[0], strength), expected[0])
    assert_golden(DenoiserNetwork(bias)(torch.from_numpy(audio), strength).numpy(), expected)


def test_golden_transform_and_back():
    golden = DATA["waveglow"]
    spectrum = stft(golden["audio"], CONTRACT)
    assert_golden(np.abs(spectrum), golden["stft_magnitude"])
    assert_golden(istft(spectrum, CONTRACT), golden["istft_reconstruction"][:, 0])


@torch.no_grad()
def test_golden_bias_of_waveglow():
    network, _ = load_waveglow(GOLDEN / "waveglow" / "checkpoint.pt")

    def vocoder(mel: np.ndarray) -> np.ndarray:
        silence = torch.zeros(noise_shape(network.config, 1, mel.shape[2]))
        (audio,) = network.generate(torch.from_numpy(mel), silence)
        assert_golden(audio.numpy(), DATA["waveglow"]["bias_audio"])
        return audio.numpy()

    bias = bias_spectrum(vocoder, network.config.n_mel_channels, CONTRACT)
    assert_golden(bias, DATA["waveglow"]["bias_spec"][0, :, 0])


@torch.no_grad()
def test_golden_bias_of_hifigan():
    network, _ = load_hifigan(GOLDEN / "hifigan" / "checkpoint.pt")
    bias = bias_spectrum(lambda mel: network(torch.from_numpy(mel)).numpy(), 80, CONTRACT)
    assert_golden(bias, DATA["hifigan"]["bias_spec"][0, :, 0])


@pytest.mark.parametrize(
    "contract",
    [
        MelContract(filter_length=512, hop_length=64, win_length=512),
        MelContract(filter_length=512, hop_length=100, win_length=400),
    ],
    ids=["overlap 8", "uneven hop, short window"],
)
def test_other_sizes_agree_in_numpy_and_torch(contract):
    rng = np.random.default_rng(0)
    audio = rng.standard_normal((2, 3001)).astype(np.float32)
    bias = np.abs(rng.standard_normal(257)).astype(np.float32)
    length = 3001 // contract.hop_length * contract.hop_length
    np.testing.assert_allclose(Denoiser(bias, contract)(audio, 0.0), audio[:, :length], rtol=0, atol=1e-4)
    expected = Denoiser(bias, contract)(audio, 3.0)
    found = DenoiserNetwork(bias, contract)(torch.from_numpy(audio), 3.0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-4)


def test_silence_stays_silent():
    bias, audio = np.ones(513, np.float32), np.zeros((1, 2048), np.float32)
    assert not Denoiser(bias)(audio).any()
    assert not DenoiserNetwork(bias)(torch.from_numpy(audio)).any()


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"bias spectrum \(257,\) does not fit: filter_length makes 513"):
        Denoiser(np.ones(257))
    with pytest.raises(ValueError, match="512 samples are too few to denoise: give more than 512"):
        Denoiser(np.ones(513))(np.zeros(512))
    with pytest.raises(ValueError, match="strength must be a number from 0, not -1"):
        Denoiser(np.ones(513))(np.zeros(2048), -1)


class _Stage(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, audio, strength):
        return self.network.denoise(audio, strength)


def test_exported_graph_equals_numpy(tmp_path):
    golden, dynamic = DATA["waveglow"], torch.export.Dim.DYNAMIC
    bias = golden["bias_spec"][0, :, 0]
    torch.onnx.export(
        _Stage(DenoiserNetwork(bias)).eval(),
        (torch.randn(2, 5000), torch.ones(2)),
        tmp_path / "denoiser.onnx",
        input_names=["audio", "strength"],
        output_names=["denoised"],
        dynamic_shapes=({0: dynamic, 1: dynamic}, {0: dynamic}),
        opset_version=20,
        dynamo=True,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(tmp_path / "denoiser.onnx", providers=["CPUExecutionProvider"])
    for audio in (golden["audio"], golden["audio"][:1, :1300]):
        strength = np.linspace(0.1, 1.0, len(audio)).astype(np.float32)
        (found,) = session.run(None, {"audio": audio, "strength": strength})
        for item, value, one in zip(audio, strength, found, strict=True):
            assert_golden(one, Denoiser(bias)(item, value))
