"""CMUdict as it is shipped: words, variants, phones, and the shape of a search."""

import pytest

from melforge.common.text.cmudict import CmuDict, load_cmudict, load_heteronyms, load_rare_words
from melforge.common.text.symbols import ARPABET
from recipes.english.dictionary import licence, pack, pack_cmudict, rare_words

HEADER = """;;; # CMUdict
;;; # =====
;;; # Copyright (C) Somebody.
;;; #
;;; # 1. Keep this.
;;; #    And this.
;;; # =====
;;;  NOTES
"""
ENTRIES = """'TIS  T IH1 Z
,COMMA  K AA1 M AH0
A  AH0
A(1)  EY1
A'S  EY1 Z
READ  R EH1 D
READ(1)  R IY1 D
ZZ  Z IY1
"""


@pytest.fixture
def small() -> CmuDict:
    return CmuDict(pack_cmudict(HEADER + ENTRIES))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("a", (("AH0",), ("EY1",))),
        ("A's", (("EY1", "Z"),)),
        ("read", (("R", "EH1", "D"), ("R", "IY1", "D"))),
        ("'tis", (("T", "IH1", "Z"),)),
        ("zz", (("Z", "IY1"),)),
    ],
)
def test_pronunciations_keep_the_order_of_the_file(small, word, expected):
    assert small.pronunciations(word) == expected
    assert word in small


@pytest.mark.parametrize(
    "word", ["", " ", "a ", "a b", "b", "rea", "reads", "zzz", ",comma", "日本", "a\nzz"]
)
def test_other_words_are_not_found(small, word):
    assert word not in small
    assert small.pronunciations(word) == ()


def test_every_word_of_the_dictionary_is_found():
    dictionary = load_cmudict()
    words = dictionary.words()
    assert len(words) == 125720
    assert words == sorted(words)
    assert [word for word in words if word not in dictionary] == []


def test_shipped_dictionary_has_the_known_pronunciations():
    dictionary = load_cmudict()
    assert dictionary.pronunciations("Hello") == (("HH", "AH0", "L", "OW1"), ("HH", "EH0", "L", "OW1"))
    assert dictionary.pronunciations("world's") == (("W", "ER1", "L", "D", "Z"),)
    assert dictionary.pronunciations("déjà") == (("D", "EY2", "JH", "AA1"),)
    assert {phone for phones in dictionary.pronunciations("pleasure") for phone in phones} <= set(ARPABET)


def test_the_dictionary_is_read_once():
    assert load_cmudict() is load_cmudict()


def test_licence_is_the_header_without_comment_marks():
    assert licence(HEADER + ENTRIES) == "Copyright (C) Somebody.\n\n1. Keep this.\n   And this.\n"


def test_heteronyms_keep_their_capitals():
    heteronyms = load_heteronyms()
    assert len(heteronyms) == 413
    assert {"read", "lead", "Acre", "color coordinate"} <= heteronyms
    assert not {"acre", "color", ""} & heteronyms


def test_rare_words_are_those_that_the_dictionary_lacks_and_letters_do_not_tell():
    lexicon = {
        "zwieback": "swˈibæk",
        "the": "ðə",
        "NATO": "nˈATO",
        "gibbet": {"DEFAULT": "ʒˈɪbət", "NOUN": None},
    }
    words = rare_words(lexicon)
    assert words == {
        "ZWIEBACK": [("S", "W", "IY1", "B", "AE0", "K")],
        "GIBBET": [("ZH", "IH1", "B", "AH0", "T")],
    }
    assert CmuDict(pack(words)).pronunciations("gibbet") == (("ZH", "IH1", "B", "AH0", "T"),)


def test_the_shipped_rare_words_add_to_the_dictionary():
    words = load_rare_words().words()
    assert len(words) > 13_000
    assert not any(word in load_cmudict() for word in words[::50])
