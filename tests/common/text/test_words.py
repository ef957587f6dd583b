"""Words of the normalised text and the symbols that speak them."""

from itertools import pairwise
from pathlib import Path

import pytest

from melforge.common.text.frontends import get_frontend
from melforge.common.text.words import common_breaks, words_of

DATA = Path(__file__).parents[2] / "data"
SENTENCES = [line.split("\t")[0] for line in (DATA / "hard_sentences.tsv").read_text().splitlines()]
MIXED = "Dr. Smith's well-known 2.5 kg U.S. cat - \"fine\" (really) isn't {HH AH0 L OW1} 5 p.m. in 1999?"


def spoken(symbols) -> list[str]:
    return [symbol for symbol in symbols if symbol[-1].isalnum()]


def letters(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())


@pytest.mark.parametrize("name", ["english", "tacotron2", "fastpitch", "fastspeech"])
def test_every_spoken_symbol_is_in_one_word_and_the_words_are_in_order(name):
    frontend = get_frontend(name)
    for sentence in [MIXED, *SENTENCES]:
        for utterance in frontend(sentence).utterances:
            words = words_of(utterance.normalised, utterance.symbols)
            inside = [s for word in words for s in utterance.symbols[word.start : word.end]]
            assert spoken(inside) == spoken(utterance.symbols), sentence
            places = [(word.start, word.end, word.place) for word in words]
            assert places == sorted(places)
            assert all(before.end <= word.start for before, word in pairwise(words))


@pytest.mark.parametrize("name", ["tacotron2", "fastspeech"])
def test_a_word_in_letters_has_its_own_letters(name):
    frontend = get_frontend(name)
    for sentence in SENTENCES:
        for utterance in frontend(sentence).utterances:
            for word in words_of(utterance.normalised, utterance.symbols):
                if "{" not in utterance.normalised:
                    assert letters("".join(utterance.symbols[word.start : word.end])) == letters(word.text)


def test_a_word_in_phonemes_has_the_phones_that_it_has_alone():
    frontend = get_frontend("english")
    for sentence in (
        "Printing, well-known ladders; Smith's FBI agent!",
        "Ladders stood behind thirty-one mills",
    ):
        for utterance in frontend(sentence).utterances:
            for word in words_of(utterance.normalised, utterance.symbols):
                (alone,) = frontend(word.text).utterances
                assert spoken(utterance.symbols[word.start : word.end]) == spoken(alone.symbols), word


def test_hyphens_amounts_and_phonemes():
    (utterance,) = get_frontend("english")(MIXED).utterances
    words = words_of(utterance.normalised, utterance.symbols)
    expected = [
        "Doctor",
        "Smith's",
        "well-known",
        "two",
        "point",
        "five",
        "kilograms",
        "US",
        "cat",
        "fine",
        "really",
        "isn't",
    ]
    assert [word.text for word in words] == [
        *expected,
        "{HH AH0 L OW1}",
        *["five", "PM", "in", "nineteen", "ninety-nine"],
    ]
    (hyphened,) = (word for word in words if word.text == "well-known")
    assert "".join(utterance.symbols[hyphened.start : hyphened.end]) == "@W@EH1@L @N@OW1@N"


def test_a_word_that_lost_its_symbols_is_left_out_and_its_neighbours_stay():
    symbols = tuple("one  three.")
    assert [(w.text, w.start, w.end) for w in words_of("one 2 three.", symbols)] == [
        ("one", 0, 3),
        ("three", 5, 10),
    ]
    symbols = ("@W", "@AH1", "@N", " ", *"three")
    assert [(w.text, w.start) for w in words_of("one 22 three.", symbols)] == [("one", 0), ("three", 4)]


def test_symbols_that_no_word_has_go_to_the_word_before():
    assert [(w.text, w.start, w.end) for w in words_of("one three", tuple("one two three"))] == [
        ("one", 0, 7),
        ("three", 8, 13),
    ]


def test_nothing_spoken_has_no_words():
    assert words_of("... - !", (" ", ".", "-")) == []
    assert words_of("", ()) == []


def test_a_text_and_its_words_are_cut_where_both_agree():
    written = "It cost $5.50, and nobody paid."
    breaks = common_breaks(written, ["It", "cost", "five", "dollars", "fifty", "and", "nobody", "paid"])
    assert [(written[:offset], word) for offset, word in breaks] == [
        ("", 0),
        ("It ", 1),
        ("It cost ", 2),
        ("It cost $5.50, ", 5),
        ("It cost $5.50, and ", 6),
        ("It cost $5.50, and nobody ", 7),
        (written, 8),
    ]
    assert common_breaks("$5", ["five", "dollars"]) == [(0, 0), (2, 2)]
