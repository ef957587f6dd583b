import sys

import numpy as np
import pytest
import torch

from melforge.common.errors import InputError
from melforge.common.text.frontends import get_frontend
from melforge.common.training.corpus.dataset import Labels, save_labels
from melforge.common.weights.voices import read_header, read_weights
from recipes.hazel.rise import chosen, main, raised, rising_symbols, train
from tests.conftest import save_trained, tiny_fastpitch

UNITS = torch.tensor([[200.0, 100.0], [50.0, 25.0]])  # Hz: means and deviations of two speakers


def rises(text):
    (utterance,) = get_frontend("english")(text).utterances
    return [s for s, rises in zip(utterance.symbols, rising_symbols(utterance.symbols), strict=True) if rises]


def test_a_question_rises_from_its_last_stressed_vowel_on():
    assert rises("Do you like bananas?") == ["@AE1", "@N", "@AH0", "@Z"]
    assert rises("Is it?") == ["@IH0"]
    assert not rising_symbols(["@S", "?"]).any()


def test_semitones_are_of_hertz():
    where = torch.tensor([[False, True]])
    higher = raised(torch.tensor([[0.5, 1.0]]), where, 12.0, *UNITS[:, [0], None])
    torch.testing.assert_close(higher, torch.tensor([[0.5, (500 - 200) / 50]]))


def test_the_end_of_a_question_that_falls_is_at_least_so_far_above_the_mean():
    where = torch.tensor([[False, True, True]])
    higher = raised(torch.tensor([[0.5, -2.0, 6.0]]), where, 0.0, *UNITS[:, [0], None], least=12.0)
    torch.testing.assert_close(higher, torch.tensor([[0.5, 200 / 50, 6.0]]))


def test_only_the_pitch_where_questions_end_is_another():
    model, _ = tiny_fastpitch(n_speakers=2)
    with torch.no_grad():
        model.pitch_predictor.fc.weight.mul_(0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = np.random.default_rng(0)
    ids = [random.integers(10, 100, random.integers(5, 9)) for _ in range(64)]
    question = np.arange(len(ids)) % 2 == 0
    speakers = torch.arange(len(ids)) // 2 % 2
    for row, asks in zip(ids, question, strict=True):
        row[-1] = 5 if asks else 6  # its mark
    rising = [(np.arange(len(row)) == len(row) - 2) & asks for row, asks in zip(ids, question, strict=True)]

    def pitches():
        with torch.no_grad():
            given = ((torch.from_numpy(row)[None], torch.tensor([len(row)])) for row in ids)
            return [model.encode(*one, speakers[[i]])[2][0, 0].numpy() for i, one in enumerate(given)]

    old = pitches()
    train(model, ids, rising, speakers, semitones=3.0, units=UNITS, epochs=150)
    up = np.array([new - was for new, was in zip(pitches(), old, strict=True)], dtype=object)
    ends = np.array([change[-2] for change in up], float)
    asked = (200 * 2**0.25 - 200) / 50
    assert ends[question].mean() > 0.7 * asked and abs(ends[~question].mean()) < 0.2 * asked
    assert abs(np.concatenate([change[:-2] for change in up]).astype(float).mean()) < 0.2 * asked
    for name, value in model.state_dict().items():
        if not name.startswith("pitch_predictor."):
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def corpus(folder, texts):
    """Of labels alone."""
    folder.mkdir()
    ids = [get_frontend("english")(text).utterances[0].ids for text in texts]
    ones = [np.ones(len(row), int) for row in ids]
    save_labels(folder, Labels([str(i) for i in range(len(texts))], texts, ids, ones, ones))
    return folder


def test_all_questions_are_learnt_from_and_some_statements():
    texts = ["Is it?", "Why?", *["It is."] * 9, 'He asked "why?"', "Are they?"]
    rows = chosen(texts, [0, 12])
    assert rows[:4] == [0, 12, 1, 11] and len(set(rows)) == len(rows) == 8


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs it on a tiny network and a corpus of these texts; the files before and after."""
    source = save_trained(tmp_path / "weights.safetensors", *tiny_fastpitch())

    def run(texts):
        made = tmp_path / "risen.safetensors"
        words = source, "--corpus", corpus(tmp_path / "corpus", texts), "--semitones", "3", "-o", made
        monkeypatch.setattr(sys, "argv", ["recipes.hazel.rise", *map(str, words), "--epochs", "1"])
        main()
        return source, made

    return run


def test_the_command_writes_another_predictor_and_all_else_as_it_was(command, capsys):
    before, after = command([f"Is it {number}?" for number in range(2, 24)] + ["It is two."] * 3)
    assert "22 of 25 texts" in capsys.readouterr().out
    assert read_header(before)[1] == read_header(after)[1]
    old, new = read_weights(before), read_weights(after)
    assert old.keys() == new.keys()
    changed = {name for name in old if not np.array_equal(old[name], new[name])}
    assert changed and all(name.startswith("pitch_predictor.") for name in changed)


def test_a_corpus_without_questions_is_refused(command):
    with pytest.raises(InputError, match="has 1 yes/no questions: at least 20"):
        command(["Is it two?"] + ["What is it?"] * 30)
