"""Words cut short that no table has: the word that their letters stand for, and where a sentence ends."""

from pathlib import Path

import pytest

from melforge.common.text.english.reading.cut_short import whole, whole_before_stop, whole_without_stop
from melforge.common.text.frontends import get_frontend
from tests.tables import read_tables

CUT_SHORT = {
    **{
        "acctg": "accounting",
        "qtrly": "quarterly",
        "plbg": "plumbing",
        "settl": "settlement",
        "thk": "thick",
    },
    **{
        "mgn": "margin",
        "amts": "amounts",
        "opp'n": "opposition",
        "aff'd": "affirmed",
        "shldrs": "shareholders",
    },
}


@pytest.mark.parametrize(("short", "word"), CUT_SHORT.items())
def test_letters_that_are_left_tell_the_word(short: str, word: str) -> None:
    assert whole(short) == word


@pytest.mark.parametrize("word", ["publican", "restart", "heater", "man", "szczepan", "xx"])
def test_a_word_or_a_name_is_not_taken_for_one_cut_short(word: str) -> None:
    assert whole_before_stop(word, False, "and") == ""


@pytest.mark.parametrize(
    ("word", "following"), [("CSS", ""), ("struct", ""), ("dict", "The"), ("Chr", "Spieler")]
)
def test_a_full_stop_that_may_end_the_sentence_cuts_no_word(word: str, following: str) -> None:
    assert whole_before_stop(word, False, following) == ""


@pytest.mark.parametrize("word", ["nginx", "hmm", "psst", "btn", "src", "FTSE", "Tom'd", "prng", "vtbl"])
def test_without_a_full_stop_only_letters_that_cannot_be_said_are_completed(word: str) -> None:
    assert whole_without_stop(word) == ""


@pytest.mark.parametrize(("text", "said"), read_tables(Path(__file__).parent / "cases.txt")["stops"])
def test_a_full_stop_behind_a_word_cut_short_ends_no_sentence(text: str, said: str) -> None:
    assert [one.normalised for one in get_frontend("english")(text).utterances] == said.split(" | ")
