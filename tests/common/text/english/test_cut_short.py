"""Words cut short that no table has: the word that their letters stand for, and where a sentence ends."""

import pytest

from melforge.common.text.english.reading.cut_short import whole, whole_before_stop, whole_without_stop
from melforge.common.text.frontends import get_frontend

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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Cust. svc. fees fell.", ["customer service fees fell."]),
        ("Acct. rec. rose 3%.", ["account receivable rose three percent."]),
        ("It was a good act. Nobody cared.", ["It was a good act.", "Nobody cared."]),
        ("I saw Mr. Prem. He waved.", ["I saw Mr Prem.", "He waved."]),
        ("See you Sat. Bring wine.", ["See you Saturday.", "Bring wine."]),
        ("Heat it over med. heat. Then stir.", ["Heat it over medium heat.", "Then stir."]),
        ("Links come from CSS. It works.", ["Links come from CSS.", "It works."]),
        ("It gives a dict. The rest stays.", ["It gives a dict.", "The rest stays."]),
        ("Ask your prof or TA.", ["Ask your prof or TA."]),
        ("He made a $500 bid.", ["He made a five hundred dollar bid."]),
        ("Hi 5 guys, the office is open 9-5.", ["Hi five guys, the office is open nine to five."]),
        ("g. Fixed the rest.", ["G, Fixed the rest."]),
        ("See 17 U.S.C. 101 et seq., above.", ["See seventeen USC one hundred one et seq, above."]),
        ("He has 9 K followers.", ["He has nine K followers."]),
        ("It boils at 9 K there.", ["It boils at nine kelvins there."]),
        ("Use 10-10-10 twice.", ["Use ten, ten, ten twice."]),
        ("It was 10-10-10.", ["It was October tenth, twenty ten."]),
    ],
)
def test_a_full_stop_behind_a_word_cut_short_ends_no_sentence(text: str, said: list[str]) -> None:
    assert [utterance.normalised for utterance in get_frontend("english")(text).utterances] == said
