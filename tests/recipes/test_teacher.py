"""Yes/no questions rise in what the teacher says, and nothing else does."""

import random
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import pytest

from recipes.hazel.intonation import GLIDE, RISE_FROM, RISE_TO, asks_yes_or_no, with_rise
from recipes.hazel.teacher import DURATIONS, FRAMES, PITCH, Teacher, rising_part
from recipes.hazel.texts import CONVERSATION, fill


@pytest.mark.parametrize(
    "text",
    [
        "Is it late?",
        "Did you see who came?",
        "You did it?",
        "Really?",
        "And is that all?",
        "It is late, isn't it?",
        "Won’t you come?",
        'He asked, "Is it late?"',
    ],
)
def test_questions_that_want_yes_or_no_rise(text):
    assert asks_yes_or_no(text)


@pytest.mark.parametrize(
    "text",
    ["It is late.", "Is it late!", "Why is it late?", "And for how long?", "Is it one or two?", "?", ""],
)
def test_statements_question_words_and_choices_fall(text):
    assert not asks_yes_or_no(text)


@pytest.mark.parametrize(
    ("kind", "rises"),
    [("yes/no question", True), ("question with a question word", False), ("choice", False)],
)
def test_questions_of_the_templates_rise_by_their_kind(kind, rises):
    rng = random.Random(0)
    texts = [fill(template, rng) for template in CONVERSATION[kind][1]]
    assert [text for text in texts if asks_yes_or_no(text) != rises] == []


def test_the_rise_is_even_in_semitones_and_leaves_the_rest():
    pitch = np.full(60, 200, np.float32)
    pitch[:5] = pitch[20:23] = pitch[50:] = -1  # unvoiced
    risen = with_rise(pitch, begin=30, end=55)
    semitones = 12 * np.log2(risen[30:50] / 200)
    assert semitones == pytest.approx(np.linspace(RISE_FROM, RISE_TO, 20), abs=1e-3)
    assert risen[: 30 - GLIDE] == pytest.approx(pitch[: 30 - GLIDE])
    assert np.array_equal(risen[pitch < 0], pitch[pitch < 0])
    assert risen.dtype == np.float32
    silent = np.zeros(9, np.float32)
    assert with_rise(silent, 3, 6) is silent


def test_the_rise_takes_the_last_stressed_vowel_and_what_is_voiced_after_it():
    assert rising_part("ɪz ðə ɡˈɑɹdən lˈAt?") == (15, 16)
    assert rising_part("ɪz hi?") == (4, 4)
    assert rising_part("?") == (0, 0)


def test_a_rising_question_is_decoded_from_the_raised_pitch(tmp_path, monkeypatch):
    tensor, node, floats = onnx.helper.make_tensor_value_info, onnx.helper.make_node, onnx.TensorProto.FLOAT
    frames = FRAMES * 10
    flat = onnx.numpy_helper.from_array(np.full((1, frames), 200, np.float32), "flat")
    graph = onnx.helper.make_graph(
        [
            node("Cast", ["ids"], [DURATIONS], to=floats),
            node("Mul", ["flat", "speed"], [PITCH]),
            node("Identity", [PITCH], ["spectrum"]),
        ],
        "teacher",
        [tensor("ids", onnx.TensorProto.INT64, [1, "L"]), tensor("speed", floats, [1])],
        [tensor("spectrum", floats, [1, "F"]), tensor(PITCH, floats, [1, "F"])],
        [flat],
    )
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "teacher.onnx")
    hibari = ModuleType("hibari")
    hibari.dsp = SimpleNamespace(synth=lambda spectrum, pitch, rng: (spectrum, pitch))
    monkeypatch.setitem(sys.modules, "hibari", hibari)
    teacher = Teacher.__new__(Teacher)
    # Each character's id is its duration too: two pads of 1, "ˈ" and the vowel of 2, "t" and "?" of 2.
    vocab = dict.fromkeys("ˈAt?", 2)
    teacher.threads = 1
    teacher.voice = SimpleNamespace(
        vocab=vocab,
        model_path=str(tmp_path / "teacher.onnx"),
        ids=lambda phonemes: [1, *(vocab[c] for c in phonemes), 1],
    )
    spectrum, pitch = teacher._rising("ˈAt?")
    assert np.array_equal(spectrum, pitch)
    assert pitch == pytest.approx(with_rise(np.full(frames, 200, np.float32), begin=2, end=10))
