"""Contrast between a mel's bands, in what the last layer of a network says."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from melforge.common.audio.sharpness import sharpen
from melforge.common.runner import TextToSpeech
from melforge.common.weights.voices import load_voice
from recipes.hazel.sharpen import LAST_LAYERS, sharpened


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
        command = [sys.executable, "-m", "recipes.hazel.sharpen", *words]
        return subprocess.run(command, capture_output=True, text=True)

    assert run(trained["fastpitch"]).returncode == 0
    assert TextToSpeech.load(checkpoints=[str(tmp_path / "out.safetensors")], backend="torch", device="cpu")
    refused = run(trained["hifigan"])
    assert refused.returncode == 2 and "is a hifigan" in refused.stderr
