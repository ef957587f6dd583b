import dataclasses
import re
import sys

import numpy as np
import pytest
import torch

from melforge.common.errors import InputError
from melforge.common.weights.voices import read_header, read_weights
from melforge.fastspeech.model import FastSpeech
from recipes.hazel.learn_durations import PREDICTOR, compare, main, train
from tests.conftest import save_trained, tiny_fastpitch, tiny_fastspeech

WORDS = ["stone", "river", "amber", "kettle", "window", "seven", "yellow"]
WORDS += ["orange", "silver", "garden", "oak", "elm"]


def test_sentences_that_were_not_seen_have_the_teachers_durations_after():
    (fastpitch, _), (student, _) = tiny_fastpitch(), tiny_fastspeech()
    random = np.random.default_rng(0)
    with torch.no_grad():  # long and short symbols, where a new network's are all alike
        fastpitch.duration_predictor.fc.weight.mul_(4)
    teacher = fastpitch.eval().encode
    student.eval()
    seen, unseen = (
        [random.integers(10, 40, random.integers(5, 30)) for _ in range(count)] for count in (400, 50)
    )
    before = {name: value.clone() for name, value in student.state_dict().items()}
    first = compare(student, teacher, unseen)
    train(student, teacher, seen, epochs=40)
    last = compare(student, teacher, unseen)
    assert last.log < 0.3 * first.log and last.frames < first.frames
    after = student.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.startswith(PREDICTOR) for name in changed)


@pytest.fixture
def command(tmp_path, monkeypatch, tiny_voice):
    """Runs it on tiny networks and these lines; the files before and after."""

    def run(lines, network=None):
        source = save_trained(tmp_path / "weights.safetensors", *(network or tiny_fastspeech()))
        texts, made = tmp_path / "texts.txt", tmp_path / "timed.safetensors"
        texts.write_text("".join(f"{number}|{line}\n" for number, line in enumerate(lines)))
        words = ("recipes.hazel.learn_durations", source, "--voice", tiny_voice, "--texts", texts, "-o", made)
        monkeypatch.setattr(sys, "argv", list(map(str, words)))
        main()
        return source, made

    return run


def test_the_command_writes_another_predictor_and_all_else_as_it_was(command, capsys):
    lines = [f"The {first} is {second}." for first in WORDS for second in WORDS]
    before, after = command([*lines, *lines, "..."])
    said = capsys.readouterr().out
    errors = [float(error) for error in re.findall(r"log error (\d\.\d+)", said)]
    assert (
        errors[1] < errors[0]
        and "learnt from 130 sentences" in said
        and "14 sentences that are held out" in said
    )
    assert read_header(before)[1] == read_header(after)[1]
    old, new = read_weights(before), read_weights(after)
    assert old.keys() == new.keys()
    changed = {name for name in old if not np.array_equal(old[name], new[name])}
    assert changed and all(name.startswith(PREDICTOR) for name in changed)


def test_a_network_of_other_symbols_and_too_few_texts_are_refused(command, tmp_path):
    config = dataclasses.replace(tiny_fastspeech()[1], n_symbols=149)
    with pytest.raises(InputError, match=r"weights\.safetensors has 149 symbols, the FastPitch .* 148"):
        command(["It is two."] * 20, (FastSpeech(config), config))
    with pytest.raises(InputError, match="2 sentences are too few"):
        command(["It is two.", "It is three."])
    assert not (tmp_path / "timed.safetensors").exists()
