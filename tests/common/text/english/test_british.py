"""British English: words, letters, linking, reading, symbols, and the teacher's form of them."""

from pathlib import Path

import pytest

from melforge.common.errors import InputError
from melforge.common.text import Frontend, SaidAs, spoken_by
from melforge.common.text.cmudict import CmuDict
from melforge.common.text.english import pronounce
from melforge.common.text.english.british import (
    British,
    contexts,
    load_british,
    spelled_from,
    without_silent_r,
)
from melforge.common.text.english.normalise import normalise
from melforge.common.text.frontends import get_frontend
from melforge.common.text.readings import phonemized
from melforge.common.text.symbols import BRITISH, get_symbols
from recipes.english.british import make, packed, paired
from recipes.misaki import from_british_misaki, to_misaki
from tests.tables import read_tables

TEXTS = Path(__file__).parents[3] / "data" / "british.tsv"
CASES = read_tables(Path(__file__).parent / "cases.txt")
GB, US = get_frontend("english-gb"), get_frontend("english")


def spoken(text: str) -> str:
    return " ".join(
        symbol.lstrip("@") for one in GB(text).utterances for symbol in one.symbols if symbol != " "
    )


@pytest.mark.parametrize("word, said", CASES["British words"])
def test_words(word, said):
    assert " ".join(load_british().of_word(word)) == said


@pytest.mark.parametrize("text, said", CASES["British linking"])
def test_an_r_is_said_before_a_vowel_only(text, said):
    assert spoken(text) == said


def test_its_symbols_are_the_american_ones_and_more_behind_them():
    assert GB.symbols[: len(US.symbols)] == US.symbols == get_symbols("english_basic")
    assert GB.symbols[len(US.symbols) :] == tuple("@" + phone for phone in BRITISH)


@pytest.mark.parametrize(
    "written, wanted", [line.split("\t") for line in TEXTS.read_text("utf-8").splitlines()]
)
def test_reading(written, wanted):
    said = " ".join(span.text for span in normalise(written, is_british=True)[0])
    assert words_of(said) == words_of(wanted)


def words_of(text: str) -> list[str]:
    return "".join(char if char.isalpha() or char == "'" else " " for char in text.lower()).split()


def test_an_american_says_the_same_as_before():
    assert [span.text for span in normalise("3/4/2024, 8:30, 205")[0]] == [
        *("March fourth, twenty twenty-four", ",", "eight thirty", ",", "two hundred five")
    ]


def test_where_words_come_from_is_told():
    text = "A bath far away."
    (utterance,) = phonemized(GB, text, GB(text))["utterances"]
    sources = {row["word"]: row["source"] for row in utterance["words"]}
    assert "Britain" in sources["bath"] and "before a vowel" in sources["far"]


def test_an_american_voice_has_no_british_vowels():
    said = [SaidAs(0, 6, "{B OH1 DH AH0}")]
    with pytest.raises(InputError, match=r"phoneme OH1 in 'bother'.*english-gb"):
        US("bother", said)
    assert GB("bother", said).utterances[0].symbols[1:5] == ("@B", "@OH1", "@DH", "@AH0")


def said_by(frontend: Frontend, speaker: str) -> list[list[int]]:
    return [one.ids.tolist() for one in spoken_by(frontend, speaker)("Far away.").utterances]


def test_speakers_of_one_voice_have_accents_of_their_own():
    both = get_frontend("english", accents={"emma": "en-GB"})
    assert both.symbols == GB.symbols
    assert said_by(both, "emma") == said_by(GB, "") != said_by(both, "heart") == said_by(US, "")
    with pytest.raises(InputError, match="en-AU"):
        get_frontend("english", accents={"emma": "en-AU"})


def test_british_misaki_and_back():
    lexicon = load_british().lexicon
    for word in lexicon.words()[::17]:
        phones = load_british().of_word(word.lower())
        written = to_misaki([f"@{phone}" for phone in phones], british=True)
        again = from_british_misaki(written, word.lower())
        assert to_misaki([f"@{phone}" for phone in without_silent_r(tuple(again))], british=True) == written


def test_rules_and_what_they_miss_are_learnt_of_words():
    said = {"lot": "L OH1 T", "got": "G OH1 T", "dot": "D OH1 T", "far": "F AR1 R", "car": "K AR1 R"}
    lexicon = {word: tuple(phones.split()) for word, phones in {**said, "tar": "T AO1 R"}.items()}
    pairs = {word: (pronounce.of_word(word), phones) for word, phones in lexicon.items()}
    rules, listed = make(pairs, lexicon)
    assert listed == {"tar": ("T", "AO1", "R")} and 0 < len(rules) < 6
    pronouncer = British(rules, CmuDict(packed(listed)), {})
    assert pronouncer.by_rule("pot", ("P", "AA1", "T")) == ("P", "OH1", "T")
    assert pronouncer.by_rule("bar", ("B", "AA1", "R")) == ("B", "AR1", "R")
    assert [pronouncer.of_word(word) for word in ("tar", "far")] == [("T", "AO1"), ("F", "AR1")]


def test_phones_are_paired_with_letters_and_with_each_other():
    assert spelled_from("quick", ["K", "W", "IH1", "K"]) == [0, 1, 2, 3]
    assert paired(["T", "UW1", "N"], ["T", "Y", "UW1", "N"]) == [("T",), ("Y", "UW1"), ("N",)]
    assert list(contexts("far", ["F", "AA1", "R"], [0, 1, 2], 1))[:2] == ["0AA1", "1AA1a>R"]


def test_every_british_symbol_has_a_form_for_the_teacher_and_american_vowels_have_none():
    forms = {phone: to_misaki([f"@{phone}"], british=True) for phone in BRITISH}
    assert len(set(forms.values())) == len(forms)
    for symbol in GB.symbols:
        if symbol[:1] == "@" and symbol[1:3] in ("AA", "OW", "ER"):
            with pytest.raises(InputError, match="english-gb"):
                to_misaki([symbol], british=True)
        elif symbol[:1] == "@":
            assert to_misaki([symbol], british=True)
