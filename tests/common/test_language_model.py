"""Language models: their probabilities and file, and texts that a beam search finds with one."""

from itertools import product
from math import exp, log

import numpy as np
import pytest

from melforge.common.errors import InputError
from melforge.common.recognition.beam_search import BeamSearch
from melforge.common.recognition.language_model import UNKNOWN, read_language_model
from melforge.common.recognition.recogniser import Heard
from melforge.common.recognition.transcript import greedy_text, words_of
from recipes.english.train_language_model import estimate, most_frequent, read_books

LABELS = " abcdefghijklmnopqrstuvwxyz'"
BLANK = len(LABELS)
TEXT = "the cat sat on the mat. the cat ran to the dog, and the dog ran to the cat on the mat.\n\n" * 8


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    """A model of two books, as its file gives it back; a third is held out."""
    folder = tmp_path_factory.mktemp("books")
    (folder / "cats.txt").write_text(TEXT)
    (folder / "more.md").write_text("Mr. Dog sat on the cat's mat; the mat sat.\n\n" * 9)
    (folder / "tested.txt").write_text("the owl and the pussy cat went to sea " * 20)
    held_out = {("the", "owl", "and", "the", "pussy", "cat")}
    ids, words = most_frequent(*read_books(sorted(folder.iterdir()), held_out, 10**6), 50)
    estimate(ids, words, ["kit", "rat"], (0.5, 0.5)).save(folder / "model.npz")
    return read_language_model(folder / "model.npz")


def heard(text: str, sure: float = 0.9, **instead: str) -> Heard:
    """One output a character, "-" for the blank, each this probable; of those `instead` another nearly so."""
    outputs = np.full((len(text), BLANK + 1), 1e-5)
    for row, character in zip(outputs, text, strict=True):
        label = BLANK if character == "-" else LABELS.index(character)
        row[label] = sure
        if other := instead.get(character):
            row[LABELS.index(other)] = 0.8 * sure
    log_probs = np.log(outputs / outputs.sum(1, keepdims=True)).astype(np.float32)
    return Heard(log_probs, log_probs.argmax(1), log_probs.max(1))


def text_of(one: Heard) -> str:
    return greedy_text(one.labels, LABELS)


def test_books_that_hold_a_tested_text_are_not_read(language):
    assert all(map(language.number, ("cat", "mr", "cat's"))) and language.number("kit") == UNKNOWN
    assert language.number("owl") is None is language.number("sea")


@pytest.mark.parametrize(
    "context", [("the", "cat"), ("on", "the"), (None, "the"), ("ran", "dog"), (None, None)]
)
def test_what_may_follow_has_probability_one(language, context):
    first, second = (UNKNOWN if word is None else language.number(word) for word in context)
    total = sum(exp(language.score(first, second, number)) for number in range(1, len(language.words) + 1))
    assert total == pytest.approx(1, abs=0.05)  # logarithms are stored in sixteenths


def test_longer_contexts_tell_more_and_unseen_ones_back_off(language):
    the, dog, mat, sat = (language.number(word) for word in ("the", "dog", "mat", "sat"))
    on, to = language.number("on"), language.number("to")
    assert language.score(on, the, mat) > language.score(to, the, mat)
    assert language.score(UNKNOWN, UNKNOWN, sat) == language.score(dog, UNKNOWN, sat)


def test_the_most_frequent_word_of_a_beginning(language):
    cat, cats = (language.score(UNKNOWN, UNKNOWN, language.number(word)) for word in ("cat", "cat's"))
    assert language.best_beginning("ca") == cat and language.best_beginning("cat'") == cats
    assert language.best_beginning("ki") < cats and language.best_beginning("x") is None


def test_words_that_follow_are_chosen_and_clear_ones_kept(language):
    search = BeamSearch(language, LABELS)
    unsure = heard("--the k-at s-at-", k="c")
    assert text_of(unsure) == "the kat sat" and text_of(search(unsure)) == "the cat sat"
    assert text_of(search(heard("the zzyzx-sat", 0.9999))) == greedy_text(
        heard("the zzyzx-sat").labels, LABELS
    )
    assert text_of(search(heard("-- --"))) == "" == text_of(search(heard("-")))


def test_words_keep_their_times(language):
    given = heard("--the  k-at- ss-at-", k="c")
    found = BeamSearch(language, LABELS)(given)
    assert [(w.word, w.start, w.end) for w in words_of(found, LABELS, 0.5)][:2] == [
        ("the", 1.0, 2.5),
        ("cat", 3.5, 5.5),
    ]
    assert np.array_equal(found.scores, given.log_probs[np.arange(len(found.labels)), found.labels])


def test_the_beam_finds_what_trying_everything_finds(language):
    """All texts of six outputs with four labels, by the sum over their alignments."""
    labels = " at"
    search = BeamSearch(language, labels)
    rng = np.random.default_rng(3)
    for _ in range(4):
        probabilities = rng.dirichlet(np.full(4, 0.7), 6).clip(1e-3)
        totals: dict[str, float] = {}
        for outputs in product(range(4), repeat=6):
            text = greedy_text(np.array(outputs), labels)
            chance = np.prod(probabilities[range(6), outputs])
            totals[text] = totals.get(text, 0.0) + chance

        spelt = [text for text in totals if "  " not in text and text[:1] != " "]
        best = max(spelt, key=lambda text: log(totals[text]) + told(search, text))
        assert "".join(labels[label] for label in search.search(probabilities)) == best


def told(search: BeamSearch, text: str) -> float:
    """What the language model tells of a whole text."""
    one = search.beginning()
    for character in text:
        one = search.longer(one, search.labels.index(character))
    return search.whole(one)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "model.npz").write_bytes(b"PK no model")
    with pytest.raises(InputError, match=r"model\.npz is no whole language model"):
        read_language_model(tmp_path / "model.npz")
