"""Contrast between a mel's bands: added to mels, or to what the last layer of a network says."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from melforge.common.audio.sharpness import sharpen
from melforge.common.runner import TextToSpeech
from melforge.common.training.sharpen import LAST_LAYERS, sharpened
from melforge.common.weights.voices import load_voice


def test_sharpening_adds_contrast_between_bands_and_nothing_to_what_is_even():
    mel = np.random.default_rng(0).standard_normal((2, 80, 7)).astype(np.float32)
    assert sharpen(mel, np.zeros(2, np.float32)) is mel
    even = np.full((1, 80, 3), -5, np.float32)
    np.testing.assert_allclose(sharpen(even, np.full(1, 0.5, np.float32)), even, atol=1e-6)
    sharper = sharpen(mel, np.full(2, 0.5, np.float32))
    assert sharper.dtype == np.float32
    assert np.abs(np.diff(sharper, axis=1)).mean() > 1.2 * np.abs(np.diff(mel, axis=1)).mean()
    middle = mel[:, 38:43].mean(1)
    np.testing.assert_allclose(sharper[:, 40], mel[:, 40] + 0.5 * (mel[:, 40] - middle), atol=1e-5)
    one = np.array([0.0, 0.5], np.float32)  # each item has its own
    np.testing.assert_array_equal(sharpen(mel, one), np.stack([mel[0], sharper[1]]))
    np.testing.assert_allclose(sharpen(torch.from_numpy(mel), one).numpy(), sharpen(mel, one), atol=1e-6)


@pytest.mark.parametrize("model", LAST_LAYERS)
def test_a_sharpened_last_layer_makes_sharpened_mels(model):
    tts = TextToSpeech.load(model, "hifigan", backend="torch", device="cpu")
    ids = [tts.frontend("The same words.").utterances[0].ids]
    plain = tts.acoustic.synthesise(ids)
    state = sharpened(load_voice().source(model).state, LAST_LAYERS[model], 0.3)
    network = tts.acoustic.decoder.network
    network.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()}, strict=False)
    found = tts.acoustic.synthesise(ids)
    np.testing.assert_array_equal(found.durations, plain.durations)
    wanted = sharpen(np.asarray(plain.mel), np.array([0.3], np.float32))
    np.testing.assert_allclose(found.mel, wanted, rtol=0, atol=1e-4)
    assert np.abs(wanted - plain.mel).max() > 0.05


def test_the_command(trained, tmp_path):
    def run(weights):
        words = [str(weights), "--sharpness", "0.2", "-o", str(tmp_path / "out.safetensors")]
        command = [sys.executable, "-m", "melforge.common.training.sharpen", *words]
        return subprocess.run(command, capture_output=True, text=True)

    assert run(trained["fastpitch"]).returncode == 0
    assert TextToSpeech.load(checkpoints=[str(tmp_path / "out.safetensors")], backend="torch", device="cpu")
    refused = run(trained["hifigan"])
    assert refused.returncode == 2 and "is a hifigan" in refused.stderr
