"""Every acoustic model speaks through every vocoder: from checkpoints of their own, and the shipped voice."""

import numpy as np
import pytest

from melforge.common.registry import names
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls

PAIRS = [(acoustic, vocoder) for acoustic in names("acoustic") for vocoder in names("vocoder")]

TEXT = "The first sentence is rather long, and it is spoken in some chunks. A second one."


def some_quick(*quick: tuple[str, str]) -> list:
    """Every pair; those that are not named here are slow."""
    return [
        pytest.param(pair, marks=[] if pair in quick else pytest.mark.slow, id=",".join(pair))
        for pair in PAIRS
    ]


@pytest.fixture(scope="module", params=some_quick(("fastpitch", "hifigan"), ("tacotron2", "waveglow")))
def pair(request, tiny_weights) -> TextToSpeech:
    return TextToSpeech.load(
        checkpoints=[str(tiny_weights[name]) for name in request.param], backend="torch", device="cpu"
    )


def test_a_pair_speaks(pair):
    audio = pair.speak(TEXT, Controls(seed=2))
    frames = sum(mel.shape[1] for mel in audio.mels)
    pauses = sum(round(u.pause * audio.sampling_rate) for u in audio.utterances)
    assert len(audio.samples) == frames * 256 + pauses
    assert np.abs(audio.samples).max() > 1e-3
    assert (audio.pitches is not None) == (pair.acoustic.source.model == "fastpitch")
    assert (audio.alignments is not None) == (pair.acoustic.source.model == "tacotron2")


@pytest.mark.parametrize("strength", [0.0, 0.1])
def test_a_stream_joins_to_what_speak_gives(pair, strength):
    controls = Controls(seed=2, denoising_strength=strength)
    samples = np.concatenate(list(pair.stream(TEXT, controls)))
    np.testing.assert_allclose(samples, pair.speak(TEXT, controls).samples, atol=1e-4)


@pytest.mark.parametrize("models", some_quick(("fastpitch", "hifigan")))
def test_the_shipped_voice_says_the_same_on_every_backend(models):
    spoken = {
        backend: TextToSpeech.load(*models, backend=backend, device="cpu").speak("It just works.")
        for backend in ("torch", "onnx")
    }
    torch, onnx = spoken["torch"], spoken["onnx"]
    assert [d.tolist() for d in torch.durations] == [d.tolist() for d in onnx.durations]
    np.testing.assert_allclose(onnx.mel, torch.mel, atol=2e-3)
    np.testing.assert_allclose(onnx.samples, torch.samples, atol=2e-3)
    assert 0.5 < onnx.seconds < 3 and np.abs(onnx.samples).max() > 0.1
