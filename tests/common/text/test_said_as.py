"""Parts of a text with words or phonemes of their own, in every frontend."""

import pytest

from melforge.common.errors import InputError
from melforge.common.text import SaidAs
from melforge.common.text.frontends import FRONTENDS, get_frontend
from melforge.common.text.phonemes import in_braces

MELFORGE = in_braces("M EH1 L F AO2 R JH")


def said_as(text: str, *pairs: tuple[str, str]) -> list[SaidAs]:
    """(what is written, what is said), in order."""
    said, end = [], 0
    for written, spoken in pairs:
        start = text.index(written, end)
        end = start + len(written)
        said.append(SaidAs(start, end, spoken))
    return said


def words_of(name: str, text: str, *pairs: tuple[str, str]) -> str:
    return " ".join(u.normalised for u in get_frontend(name)(text, said_as(text, *pairs)).utterances)


@pytest.mark.parametrize(
    ("text", "pairs", "expected"),
    [
        ("It costs $5.50 today.", [("$5.50", "five bucks")], "It costs five bucks today."),
        ("It costs $5.50 today.", [("5.50", "a lot")], "It costs dollars a lot today."),
        ("See a+b at 5kg.", [("+", "and"), ("kg", "keys")], "See a and B at five keys."),
        ("He came. Dr. Who. left.", [("Dr. Who.", "the doctor")], "He came. the doctor left."),
        ("Undo it.", [("Un", "")], "do it."),
        ("One.\nTwo.", [(".\nT", " t")], "One T wo."),
        ("Read it at once.", [("it", "3:30 pm")], "Read three thirty PM at once."),
        ("Melforge speaks.", [("Melforge", MELFORGE)], "Melforge speaks."),
        ("The §§ speaks.", [("§§", MELFORGE)], "The {M EH1 L F AO2 R JH} speaks."),
        ("a\u200b b.", [("\u200b", "x-ray")], "a X ray B."),
        ("Say ' here.", [("'", MELFORGE)], "Say {M EH1 L F AO2 R JH} here."),
    ],
)
def test_a_part_is_said_as_given_and_the_rest_as_ever(text, pairs, expected):
    assert words_of("english", text, *pairs) == expected


def test_given_phonemes_are_spoken_and_heard_by_the_word_before():
    text = "The Melforge"
    analysis = get_frontend("english")(text, said_as(text, ("Melforge", in_braces("AE1 P AH0 L"))))
    assert "".join(analysis.utterances[0].symbols) == " @DH@IY0 @AE1@P@AH0@L."


@pytest.mark.parametrize("name", FRONTENDS)
def test_every_frontend_takes_words_and_phonemes(name):
    text = "A Melforge costs $5.50, they said.\nAll of 漢字 it."
    pairs = [("Melforge", MELFORGE), ("$5.50", "five bucks"), ("漢字", "kanji"), ("it", "")]
    analysis = get_frontend(name)(text, said_as(text, *pairs))
    symbols = [symbol for utterance in analysis.utterances for symbol in utterance.symbols]
    spoken = "@M @EH1 @L @F @AO2 @R @JH"
    assert (spoken if name != "english-gb" else spoken.replace("@R ", "")) in " ".join(symbols)
    assert "five bucks" in " ".join(utterance.normalised for utterance in analysis.utterances)
    assert not analysis.unspoken
    written = " ".join(utterance.text for utterance in analysis.utterances)
    assert [word for word in text.split() if word not in written] == []


@pytest.mark.parametrize("name", FRONTENDS)
def test_what_cannot_be_spoken_is_reported_where_it_stands(name):
    text = "The word is \ue000 and \ue001."
    analysis = get_frontend(name)(text, said_as(text, ("word", "longer word"), ("\ue000", "x \ue002")))
    assert {(one.symbol, one.position) for one in analysis.unspoken} == {("\ue002", 12), ("\ue001", 18)}


def test_each_symbol_knows_what_is_written_for_it():
    text = "He pays $5.50 to Melforge.  And then café 10kg!"
    analysis = get_frontend("english")(text, said_as(text, ("Melforge", "all of us"), ("kg", "kilos")))
    written = [text[start:end] for u in analysis.utterances for start, end in dict.fromkeys(u.places)]
    assert written == ["He", "pays", "$5.50", "to", "Melforge", ".", "And", "then", "café", "10", "kg", "!"]
    assert all(len(u.places) == len(u.symbols) == len(u.ids) for u in analysis.utterances)


@pytest.mark.parametrize("parts", [[(3, 5), (4, 6)], [(3, 3)], [(2, 99)], [(-1, 2)], [(4, 6), (1, 2)]])
@pytest.mark.parametrize("name", ["english", "fastpitch"])
def test_parts_that_make_no_sense_are_refused(name, parts):
    with pytest.raises(InputError, match="cannot be said as 'x'"):
        get_frontend(name)("one two three", [SaidAs(start, end, "x") for start, end in parts])


def test_braces_without_an_end_take_no_time():
    """Each letter once doubled it: sixty were a lifetime."""
    assert get_frontend("english")("{" + "A" * 60).utterances
