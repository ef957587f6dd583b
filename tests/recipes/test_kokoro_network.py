"""Kokoro's network with small random weights: batches, lengths, the source, the inverse STFT, its weights'
names."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from recipes.kokoro import network as kokoro
from recipes.kokoro.network import FRAME, HALF, RATE, Kokoro, Prosody, inside, phase_of
from recipes.kokoro.weights import gates, lstm_weights, module_of, named_parameters, restored
from tests.kokoro import SMALL


@pytest.fixture
def network() -> Kokoro:
    torch.manual_seed(0)
    return Kokoro(SMALL).eval()


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    lengths = torch.tensor([9, 4, 6])
    ids = torch.randint(1, SMALL.symbols, (3, 9)) * inside(lengths, 9)
    return ids, lengths, torch.randn(3, 2 * SMALL.style)


def test_a_batch_has_the_prosody_that_each_item_has_alone(network, batch):
    ids, lengths, styles = batch
    together = network.prosody(ids, lengths, styles)
    for row, length in enumerate(lengths.tolist()):
        alone = network.prosody(ids[row : row + 1, :length], lengths[row : row + 1], styles[row : row + 1])
        frames = int(alone.frames[0])
        assert torch.equal(together.durations[row, :length], alone.durations[0])
        assert not together.durations[row, length:].any()
        for name, size in (("pitch", 2 * frames), ("energy", 2 * frames)):
            torch.testing.assert_close(getattr(together, name)[row, :size], getattr(alone, name)[0])
        torch.testing.assert_close(together.content[row, :, :frames], alone.content[0])


def test_a_batch_sounds_as_each_item_alone(network, batch):
    ids, lengths, styles = batch
    together = network.prosody(ids, lengths, styles)
    pitch = together.pitch.abs() * 100 + 80  # random weights have no voice
    audio = network.decode(together._replace(pitch=pitch), styles, noise=0.0)
    for row, length in enumerate(lengths.tolist()):
        frames = int(together.frames[row])
        one = Prosody(
            together.durations[row : row + 1, :length],
            together.frames[row : row + 1],
            pitch[row : row + 1, : 2 * frames],
            together.energy[row : row + 1, : 2 * frames],
            together.content[row : row + 1, :, :frames],
        )
        alone = network.decode(one, styles[row : row + 1], noise=0.0)
        assert alone.shape == (1, frames * FRAME)
        torch.testing.assert_close(audio[row, : frames * FRAME], alone[0], atol=2e-4, rtol=1e-3)


def test_the_noise_is_the_only_chance(network, batch):
    ids, lengths, styles = batch
    prosody = network.prosody(ids, lengths, styles)
    assert torch.equal(network.decode(prosody, styles, 0.0), network.decode(prosody, styles, 0.0))
    assert not torch.equal(network.decode(prosody, styles), network.decode(prosody, styles))


def test_the_phase_of_a_constant_pitch_is_a_line():
    turns = phase_of(torch.full((1, 20), 120.0))[0].numpy()
    steps = np.diff(turns)[HALF:-HALF]  # both ends stay at their first and last value
    np.testing.assert_allclose(steps, 120.0 / RATE, rtol=1e-9)


def test_the_inverse_stft_gives_back_the_wave():
    generator = Kokoro(SMALL).decoder.generator
    torch.manual_seed(0)
    wave, samples = torch.randn(2, 600), torch.tensor([600, 450])
    parts = generator.spectrum(wave, samples)
    magnitude, phase = parts.chunk(2, dim=1)
    mask = inside(samples // kokoro.HOP + 1, parts.size(2))[:, None].float()
    made = generator.waveform(torch.polar(magnitude, phase), mask)
    for row, length in enumerate(samples.tolist()):
        torch.testing.assert_close(made[row, :length], wave[row, :length], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("encoder.bert.encoder.albert_layer_groups.0.albert_layers.0.attention.query", "albert.layer.query"),
        ("encoder.bert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output", "albert.layer.ffn_output"),
        ("encoder.text_encoder.cnn.1.cnn.1.0", "text_encoder.convs.1"),
        ("encoder.predictor.text_encoder.lstms.3.fc", "predictor.text_encoder.layers.3.fc"),
        ("encoder.F0.1.pool", "predictor.F0.1.pool"),
        ("decoder.decoder.decode.3.norm1.fc", "decoder.decode.3.norm1.fc"),
        ("decoder.decoder.generator.m_source.l_linear", "decoder.generator.source"),
        ("decoder.decoder.generator.istft.stft", ""),
        ("Reshape", ""),
    ],
)
def test_names_of_the_graph_are_the_modules(path, module):
    assert module_of(path) == module


def test_every_module_of_the_network_has_a_name_that_the_graph_can_give():
    state = Kokoro(replace(SMALL)).state_dict()
    assert "decoder.generator.resblocks.5.alpha2.2" in state
    alpha = {"decoder.decoder.generator.resblocks.5.alpha2.2": np.ones((1, 4, 1), np.float32)}
    assert list(named_parameters(alpha)) == ["decoder.generator.resblocks.5.alpha2.2"]
    norm = {"encoder.text_encoder.cnn.2.1.gamma": np.ones(8, np.float32)}
    assert list(named_parameters(norm)) == ["text_encoder.norms.2.weight"]


def test_integers_become_floats_again():
    kept = np.array([0, 128, 255], np.uint8)
    constants = {"w_quantized": kept, "w_scale": np.float32(0.5), "zero": np.uint8(128)}
    np.testing.assert_array_equal(restored("w_quantized", "zero", constants), [-64, 0, 63.5])
    np.testing.assert_array_equal(restored("w", None, {"w": np.float32([1, 2])}), [1, 2])


def test_an_lstm_of_the_graph_is_pytorchs():
    torch.manual_seed(0)
    lstm, hidden = torch.nn.LSTM(5, 3, bidirectional=True), 3
    state = {name: value.detach().numpy() for name, value in lstm.named_parameters()}

    def of_onnx(values: np.ndarray) -> np.ndarray:  # gates input, output, forget, cell
        i, f, c, o = np.split(values, 4)
        return np.concatenate((i, o, f, c))

    def both(name: str) -> np.ndarray:
        return np.stack([of_onnx(state[name]), of_onnx(state[f"{name}_reverse"])])

    scale = 0.01
    constants = {"one": np.full(2, scale, np.float32), "zero": np.zeros(2, np.int8)}
    for key, name in (("w", "weight_ih_l0"), ("r", "weight_hh_l0")):
        constants[key] = np.rint(both(name).transpose(0, 2, 1) / scale).astype(np.int8)
    constants["b"] = np.concatenate((both("bias_ih_l0"), both("bias_hh_l0")), axis=1)
    found = lstm_weights(["x", "w", "r", "b", "", "", "", "", "one", "zero", "one", "zero"], constants)
    assert set(found) == set(state)
    for name, value in found.items():
        np.testing.assert_allclose(value, state[name], atol=scale / 2 + 1e-6)
    np.testing.assert_array_equal(gates(np.arange(4 * hidden)), [0, 1, 2, 6, 7, 8, 9, 10, 11, 3, 4, 5])
