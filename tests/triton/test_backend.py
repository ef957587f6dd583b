"""The models' classes as Triton calls them, with a stand-in for Triton: tensors on a GPU come as torch's."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from melforge.common.speech import Controls
from melforge.common.text import markup, spoken_by
from melforge.common.triton.backend import MelToAudio, SymbolsToMel, TextToSymbols
from melforge.common.triton.choice import Choice

MELS = (np.full((80, 9), -4.0, np.float32), np.full((80, 5), -3.0, np.float32))


@dataclass
class Given:
    """An input; what is no numpy array says that it is on a GPU."""

    array: Any

    def is_cpu(self) -> bool:
        return isinstance(self.array, np.ndarray)

    def as_numpy(self) -> np.ndarray:
        assert self.is_cpu()
        return self.array

    def to_dlpack(self) -> Any:
        return torch.utils.dlpack.to_dlpack(self.array)


@dataclass
class Output:
    name: str
    array: Any

    @classmethod
    def from_dlpack(cls, name: str, array: torch.Tensor) -> "Output":
        assert array.is_contiguous()
        return cls(name, array)


@dataclass
class Request:
    inputs: dict[str, Any]
    given: str = "{}"
    cancelled: bool = False

    def parameters(self) -> str:
        return self.given

    def is_cancelled(self) -> bool:
        return self.cancelled


@dataclass
class Answer:
    outputs: list[Output]
    error: Any = None


class TritonError(Exception):
    INVALID_ARG, CANCELLED, UNAVAILABLE = 3, 7, 5


class Triton:
    Tensor = Output
    InferenceResponse = Answer
    TritonError = TritonError

    def get_input_tensor_by_name(self, request: Request, name: str) -> Given:
        return Given(request.inputs[name])


@pytest.fixture
def vocoder(tts):
    model = MelToAudio()
    model.triton, model.vocoder = Triton(), tts.vocoder
    model.sources = {"vocoder": tts.vocoder.source}
    return model


def request(place, mel, lengths, pauses, parameters="{}"):
    arrays = {"mel": mel[None], "mel_lengths": np.array([lengths]), "pauses": np.array([pauses])}
    return Request({name: place(array) for name, array in arrays.items()}, parameters)


def test_inputs_on_a_gpu_give_the_audio_of_those_on_the_host(vocoder):
    def ask(place):
        requests = [
            request(place, np.concatenate(MELS, axis=1), [9, 5], [0.1, 0.0]),
            request(place, np.pad(MELS[0], ((0, 0), (0, 3))), [9, -1], [0.0, 0.0], '{"volume": 0.5}'),
        ]
        return vocoder.execute(requests)

    for there, here in zip(ask(torch.from_numpy), ask(np.asarray), strict=True):
        assert there.error is None and here.error is None
        for one, other in zip(there.outputs, here.outputs, strict=True):
            assert one.name == other.name
            np.testing.assert_array_equal(one.array, other.array)
    assert np.abs(here.outputs[0].array).max() > 0


def test_texts_are_read_in_their_speaker_s_accent(tmp_path):
    model = TextToSymbols()
    model.choose(Choice(voice="orchard").parameters(), tmp_path)
    model.load()
    text = "She can't dance in the bath."

    def symbols(speaker):
        ((analysis, _),) = model.make([(text, Controls(speaker=speaker))])
        return [utterance.symbols for utterance in analysis.utterances]

    for speaker in ("heart", "emma"):
        read = markup.analyse(spoken_by(model.frontend, speaker), text)
        assert symbols(speaker) == [utterance.symbols for utterance in read.utterances]
    assert symbols("heart") != symbols("emma") == symbols("emma:0.7,heart:0.3")


def test_an_error_is_that_of_its_own_request(vocoder):
    good = request(torch.from_numpy, MELS[0], [9], [0.0])
    wrong = request(torch.from_numpy, MELS[0], [10], [0.0])
    first, second, third = vocoder.execute([good, wrong, good])
    assert "lengths [10] of a tensor of 9" in str(second.error) and not second.outputs
    np.testing.assert_array_equal(first.outputs[0].array, third.outputs[0].array)


def test_what_a_client_that_left_has_asked_for_is_not_made(vocoder, monkeypatch):
    made, make = [], vocoder.make
    monkeypatch.setattr(vocoder, "make", lambda items: made.append(len(items)) or make(items))
    good = request(torch.from_numpy, MELS[0], [9], [0.0])
    left = request(torch.from_numpy, MELS[0], [9], [0.0])
    left.cancelled = True
    answers = vocoder.execute([left, good])
    assert made == [1] and not answers[0].outputs and "the client has gone" in str(answers[0].error)
    assert answers[1].error is None


def test_mels_leave_as_they_are_on_their_gpu():
    model = SymbolsToMel()
    model.triton = Triton()

    def answer(place):
        views = [place(np.pad(mel, ((0, 0), (0, 4))))[:, : mel.shape[1]] for mel in MELS]
        made = model.answer([[views[0], views[1]], [views[1]]])
        return {name: model.output(name, array).array for name, array in made.items()}

    there, here = answer(torch.from_numpy), answer(np.asarray)
    assert isinstance(there["mel"], torch.Tensor) and there["mel"].dtype == torch.float32
    np.testing.assert_array_equal(there["mel"].numpy(), here["mel"])
    np.testing.assert_array_equal(there["mel_lengths"], [[9, 5], [5, -1]])
    assert here["mel"].shape == (2, 80, 14)


def test_a_fault_says_so_and_is_no_invalid_argument():
    model, told = MelToAudio(), []
    model.triton = SimpleNamespace(
        TritonError=lambda *words: words, Logger=SimpleNamespace(log_error=told.append)
    )
    (text,) = model.error(RuntimeError("no memory"))
    assert "fault of Melforge (RuntimeError: no memory)" in text and told == [text]


@pytest.mark.parametrize(
    ("backend", "device", "asked", "warm"),
    [
        ("cuda", "cuda:0", None, True),
        ("trt", "cuda:1", None, True),
        ("torch", "cuda:0", None, False),
        ("onnx", "cpu", None, False),
        ("cuda", "cuda:0", False, False),
        ("onnx", "cpu", True, True),
    ],
)
def test_lengths_are_warm_where_each_new_one_costs_or_as_asked(
    backend, device, asked, warm, tts, monkeypatch
):
    made = []
    monkeypatch.setattr(
        "melforge.common.triton.backend.warm_up_model", lambda driver, sizes: made.append(sizes) or []
    )
    monkeypatch.setattr("melforge.common.triton.choice.pick_device", lambda backend: device.partition(":")[0])
    monkeypatch.setattr(Choice, "driver", lambda self, kind, sources, place: getattr(tts, kind))
    model = MelToAudio()
    model.instance = ("CPU" if device == "cpu" else "GPU", device.partition(":")[2])
    model.choice = Choice(backend=backend, warm_up=asked)
    model.sources = {"acoustic": tts.acoustic.source, "vocoder": tts.vocoder.source}
    monkeypatch.setattr(Choice, "limits", lambda self, sources: (100, 5))
    assert model.load_driver("vocoder") is tts.vocoder
    assert made == ([[2, 3, 4, 5]] if warm else [])


def test_what_is_said_of_the_warm_up_is_read_again(tmp_path):
    for asked in (None, True, False):
        parameters = Choice(warm_up=asked).parameters()
        assert ("warm_up" in parameters) == (asked is not None)
        assert Choice.read(parameters, tmp_path).warm_up is asked
