"""Layers and stages of every model on ONNX Runtime against PyTorch, and a weight that is wrong is found."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from melforge.common.config.deployment import Deployment
from melforge.common.engines.layer_outputs import layer_names, listening, match
from melforge.common.engines.torch_engine import TorchEngine, build_network
from melforge.common.export.to_onnx import source_stages
from melforge.common.registry import get_model
from melforge.common.speech import Audio
from melforge.common.stages import plan_of, stages_of
from melforge.common.synthesis.chunk_check import CHUNK_TOLERANCE, chunk_error
from melforge.common.synthesis.loading import make_driver
from melforge.common.verify.compare import Comparison, SpeechComparison, shared_frames
from melforge.common.verify.report import conclusion, out_of_tolerance, within_tolerance
from melforge.common.verify.stages import ComparedEngine, Setup, perturb, share_layers
from melforge.common.verify.verification import verify
from melforge.common.weights.ears import stored_source
from tests.conftest import spoken_audio

TEXT = "Hello."


def layers_of(model: str) -> tuple[str, ...]:
    return plan_of(model).layers


def run(sources, model: str, wrong: str = "", patterns: tuple[str, ...] = (), decoder: str | None = None):
    """The model's other side, with one weight changed, beside a partner on PyTorch."""
    kind = get_model(model).kind
    partner = "hifigan" if kind == "acoustic" else "fastpitch"
    source = sources(model)
    other = perturb(source, wrong) if wrong else source
    setup = Setup(other, "onnx", "cpu", Deployment(), patterns or layers_of(model), bool(patterns), calls=2)
    pair = {kind: source, get_model(partner).kind: sources(partner)}
    pair = {kind: pair[kind] for kind in ("acoustic", "vocoder")}
    return verify(TEXT, pair, {kind: setup}, decoder)


def test_outputs_of_kernels_are_compared_up_to_the_longest_items_end(monkeypatch):
    """Jasper's features of recordings in a longer batch, by PyTorch in the kernels' place."""
    source = stored_source("jasper", None, None)
    stage = next(s for s in stages_of("jasper", source.config) if s.name == "masked_features")
    monkeypatch.setattr(TorchEngine, "precision", "fp32", raising=False)
    monkeypatch.setattr(Setup, "engine", lambda setup, stage, bucket: TorchEngine(stage, source, "cpu"))
    setup = Setup(source, "cuda", "cpu", Deployment(kernels=(stage.name,)), layers_of("jasper"))
    audio = np.random.default_rng(0).normal(size=(2, 80 * source.config.hop_length)).astype(np.float32)
    ComparedEngine(stage, source, setup, None)(audio=audio, lengths=np.array([9000, 11000]))
    assert setup.comparisons and all(one.ok for one in setup.comparisons.values()), setup.comparisons


MODELS = ("fastpitch", "fastspeech", "tacotron2", "hifigan", "waveglow")


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_layer_agrees(sources, model):
    found = run(sources, model)
    assert found.ok and found.first_wrong is None
    layers = {one.name for one in found.comparisons if one.layer}
    weights = {name.rpartition(".")[0] for name in found.setups[0].source.state}
    called = set(layer_names(build_network(source_stages(sources(model))[0], sources(model))))
    assert len(layers & weights & called) >= 5
    assert all(one.calls and one.excess < 0.5 for one in found.comparisons)
    report = json.loads(json.dumps(found.report()))
    assert report["ok"] and report["speech"]["mel"] < 1e-3
    assert len(report["tensors"]) == len(found.comparisons)


@pytest.mark.slow
def test_other_layers_are_compared_where_asked(sources):
    found = run(sources, "fastpitch", patterns=("*.layer_norm",))
    names = {one.name for one in found.comparisons if one.layer}
    assert names and all(name.endswith("layer_norm") for name in names)
    with pytest.raises(ValueError, match=r"--layers 'attention\.\*': no such layer runs"):
        run(sources, "fastpitch", patterns=("attention.*",))
    setup = Setup(sources("fastpitch"), "onnx", "cpu", Deployment(), ("encoder.layer.*",), True)
    with pytest.raises(
        ValueError, match=r"'encoder\.layer\.\*' means no layer: fastpitch has .*encoder\.lay"
    ):
        share_layers({"acoustic": setup})


@pytest.mark.parametrize("model", ["hifigan", "waveglow"])
def test_a_receptive_field_that_is_too_short_is_found(sources, model, monkeypatch):
    source = sources(model)
    mel = np.random.default_rng(0).standard_normal((1, source.mel.n_mel_channels, 40), np.float32) - 5
    vocoder = make_driver(source, "torch", "cpu")
    assert chunk_error(vocoder, mel) < CHUNK_TOLERANCE / 10
    vocoder.context //= 2
    assert chunk_error(vocoder, mel) > CHUNK_TOLERANCE
    infer = get_model(model).module("infer")
    field = infer.receptive_field
    monkeypatch.setattr(infer, "receptive_field", lambda config: field(config) // 2)
    found = run(sources, model)
    assert found.first_wrong is None and not found.ok and not found.report()["chunks"]["ok"]
    assert "OUT: the vocoder's receptive field is longer than it says" in "\n".join(conclusion(found))


class Block(nn.Module):
    """Layers that make one tensor together, one called twice, and one whose method is called."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
        self.twice = nn.Linear(3, 3)
        self.mix = Mix()
        self.eval()

    def compute(self, x):
        x = self.inner(x)
        return (self.mix.undo(self.twice(self.twice(x))),)


class Mix(nn.Module):
    def undo(self, x):
        return x * 2


def test_layers_in_the_order_in_which_they_end():
    network = Block()
    names = [name for hits in match(network, ("inner*", "twice", "mix:undo")).values() for name in hits]
    made: dict[str, torch.Tensor] = {}
    with listening(network, names, made):
        (out,) = network.compute(torch.ones(1, 3))
    assert list(made) == ["inner.0", "inner.1", "inner", "twice", "twice#2", "mix:undo"]
    assert made["mix:undo"] is out
    assert not network._modules["inner"]._forward_hooks and "undo" not in network.mix.__dict__


def compared(wanted, got, tolerance: float = 1e-3) -> Comparison:
    one = Comparison("model.stage", "tensor", True, tolerance)
    one.add(np.asarray(wanted), np.asarray(got))
    return one


def test_what_a_comparison_says():
    wanted = np.array([[0.0, 2.0], [-4.0, 1.0]], np.float32)
    got = wanted + np.array([[0, 0], [0.02, 0]], np.float32)
    one = compared(wanted, got)
    assert one.at == (1, 0) and one.values == pytest.approx((-4.0, -3.98))
    assert one.max_error == pytest.approx(0.02) and one.share == pytest.approx(0.005)
    assert not one.ok and compared(wanted, got, 1e-2).ok
    one.add(wanted, wanted)  # a better call changes nothing
    assert (one.call, one.calls) == (1, 2) and not one.ok
    one.add(wanted, wanted + 1)
    assert one.call == 3 and one.max_error == 1


def test_nothing_passes_that_is_no_number_or_of_another_shape():
    ones = np.ones(3, np.float32)
    assert not compared(ones, ones * np.nan).ok and not compared(ones * np.nan, ones).ok
    other = compared(ones, np.ones(4, np.float32))
    assert not other.ok and other.reason == "its shape is [4], not [3]"
    other.add(ones, ones)
    assert not other.ok
    assert compared(np.array([3]), np.array([3]), 0.0).ok and not compared([3], [4], 0.0).ok


def spoken(durations: list[int]) -> Audio:
    frames = sum(durations)
    mel = np.arange(frames, dtype=np.float32)[None]
    samples = np.zeros(frames * 256, np.float32)
    return spoken_audio(samples, mels=(mel,), durations=(np.array(durations),))


def test_frames_belong_together_where_symbols_last_as_long():
    (ours, theirs), other, symbols = shared_frames(spoken([2, 3, 1]), spoken([2, 4, 1]))
    assert (ours.tolist(), theirs.tolist(), other, symbols) == ([0, 1, 5], [0, 1, 6], 1, 3)
    (ours, theirs), other, _ = shared_frames(spoken([2, 3]), spoken([2, 3]))
    assert ours.tolist() == theirs.tolist() == [0, 1, 2, 3, 4] and not other


def test_from_which_frame_on_two_mels_part():
    wanted, got = spoken([3, 3]), spoken([3, 4])
    got.mels[0][0, 2:] += [2e-4, 0, 0.5, np.nan, 0]
    speech = SpeechComparison(wanted, got, 0.1, False, *shared_frames(wanted, got))
    assert [speech.frames_within(level) for level in (1e-5, 1e-3, 1.0)] == [2, 4, 5]
    assert (
        SpeechComparison(wanted, wanted, 0.1, False, *shared_frames(wanted, wanted)).frames_within(1e-5) == 6
    )


def test_one_tensor_is_no_plural():
    assert within_tolerance(1) == "the tensor is within tolerance"
    assert within_tolerance(2) == "all 2 tensors are within tolerance"
    assert out_of_tolerance(1, 13) == "1 of 13 tensors is out of tolerance"
    assert out_of_tolerance(2, 13) == "2 of 13 tensors are out of tolerance"
