"""Written English and how it is read aloud."""

import json
import random
import string
import subprocess
import sys
from pathlib import Path

import pytest

from melforge.common.text.english.normalise import normalise
from melforge.common.text.english.reading import number_words
from melforge.common.text.frontends import get_frontend

ROOT = Path(__file__).parents[4]
FRONTEND = get_frontend("english")


def table(name: str, columns: int) -> list[list[str]]:
    lines = (ROOT / "tests" / "data" / name).read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("# ")]
    assert all(len(row) == columns for row in rows), name
    return rows


def spoken(text: str) -> str:
    return " ".join(utterance.normalised for utterance in FRONTEND(text).utterances)


def unspoken(text: str) -> list[tuple[str, int]]:
    return [(item.symbol, item.position) for item in FRONTEND(text).unspoken]


@pytest.mark.parametrize("written, said", table("normalised.tsv", 2))
def test_written_is_read_as(written, said):
    assert spoken(written) == said


@pytest.mark.parametrize(
    "number, words",
    [
        (0, "zero"),
        (13, "thirteen"),
        (110, "one hundred ten"),
        (1_000_001, "one million one"),
        (10**15, "one quadrillion"),
        (-7, "minus seven"),
    ],
)
def test_cardinals(number, words):
    assert number_words.cardinal(number) == words


@pytest.mark.parametrize(
    "number, words",
    [
        (1, "first"),
        (12, "twelfth"),
        (20, "twentieth"),
        (23, "twenty-third"),
        (100, "one hundredth"),
        (1009, "one thousand ninth"),
    ],
)
def test_ordinals(number, words):
    assert number_words.ordinal(number) == words


@pytest.mark.parametrize(
    "number, words",
    [
        (1900, "nineteen hundred"),
        (1066, "ten sixty-six"),
        (2000, "two thousand"),
        (2010, "twenty ten"),
        (1009, "one thousand nine"),
    ],
)
def test_years(number, words):
    assert number_words.year(number) == words


def to_roman(n: int) -> str:
    tens = [("I", "V", "X"), ("X", "L", "C"), ("C", "D", "M"), ("M", "", "")]
    forms = ["", "a", "aa", "aaa", "ab", "b", "ba", "baa", "baaa", "ac"]
    digits = [
        forms[int(digit)].translate(dict(zip(map(ord, "abc"), letters, strict=True)))
        for digit, letters in zip(reversed(str(n)), tens, strict=False)
    ]
    return "".join(reversed(digits))


def test_roman_numerals_round_trip_and_bad_ones_are_refused():
    assert all(number_words.roman(to_roman(n)) == n for n in range(1, 4000))
    assert [number_words.roman(text) for text in ("IIII", "VX", "IC", "ABC", "")] == [None] * 5


def test_other_scripts_are_transliterated_and_reported():
    assert spoken("Say Привет to 北京.") == "Say Privet to Bei Jing."
    assert unspoken("Say Привет to 北京.") == [("Привет", 4), ("北京", 14)]


def test_accents_are_no_loss():
    assert unspoken("Café naïve Zürich Dvořák αβγ".replace("αβγ", "α")) == []


def test_what_has_no_name_is_reported_once_where_it_stood():
    assert unspoken("One \ue000 two. Three \ue000 four.") == [("\ue000", 4)]
    assert unspoken("Zero \x00 and\x07 bell") == [("\x00", 5), ("\x07", 10)]
    assert unspoken("joined\u200d up") == [("\u200d", 6)]


def test_blanks_and_layout_are_not_reported():
    assert unspoken('A\tb\n\n"c" *d* _e_ \u200b\ufeff\u00ad\u00a0(f) [g] • h') == []


def test_markup_and_citations_are_reported():
    assert unspoken("a <b>bold</b> claim[1] and another[2]") == [("<b>", 2), ("</b>", 9), ("[1]", 19)]


def test_positions_are_those_of_the_text_as_written():
    text = "Ｆｕｌｌ ﬁne ½ cafe\u0301. And then \ue001!"
    assert unspoken(text) == [("\ue001", text.index("\ue001"))]


def test_every_piece_knows_where_it_was_written():
    text = "On 3/4/2020 Dr. Ｌee paid $5.50 to café №5 😀."
    pieces, _ = normalise(text)
    written = {piece.text: text[piece.start : piece.end] for piece in pieces}
    assert written["March fourth, twenty twenty"] == "3/4/2020"
    assert written["Doctor"] == "Dr."
    assert written["Lee"] == "Ｌee"
    assert written["five dollars and fifty cents"] == "$5.50"
    assert written["cafe"] == "café"
    assert [p.start for p in pieces] == sorted(p.start for p in pieces)


UNITS = "a 1234567890 😀 . ( ' 1, 1- a. a/ $ aB a@ ² x⁻² &#39; &lt [a]( $a+ \\* ~~a <p> 1: a:: x*"
NONSENSE = [
    *UNITS.split(),
    *("+1 ", "{HH ", "<a ", "> ", "Nb3 ", "<ab> ", "in 30m ", "3/4 ", "\x00", "\u0301", "```c\n"),
]
NONSENSE_TO_SEARCH = [unit for unit in NONSENSE if "\0" not in unit]  # no word of a command line may have one


def calls_to_read(text: str) -> int:
    """How many functions are called, C's included."""
    calls = 0

    def count(*event):
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        utterances = FRONTEND(text).utterances
    finally:
        sys.setprofile(None)
    assert all(len(utterance.symbols) <= FRONTEND.max_symbols for utterance in utterances)
    return calls


@pytest.mark.parametrize("unit", NONSENSE, ids=repr)
def test_long_nonsense_takes_linearly_many_calls(unit):
    """Four times the text, four times the work, counted: sixteen times would be quadratic."""
    FRONTEND(unit * 100)  # loads what is loaded at first use
    less, more = (calls_to_read(unit * (length // len(unit))) for length in (400, 1_600))
    assert more < 5 * less


def test_patterns_look_at_linearly_many_characters_of_long_nonsense():
    """One call of a regular expression may search the whole text."""

    def work(length: int) -> list[int]:
        command = [sys.executable, "-m", "tests.regex_work", str(length), *NONSENSE_TO_SEARCH]
        return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)

    grown = {
        unit: (less, more)
        for unit, less, more in zip(NONSENSE_TO_SEARCH, work(400), work(1_600), strict=True)
        if not less < more < 5 * less
    }
    assert not grown


def test_random_characters_do_no_harm():
    generator = random.Random(0)
    texts = ["".join(generator.choices(string.printable, k=15_000))]
    texts += ["".join(generator.choices("aZ sx1.'-/$@#:", k=15_000))]
    texts += ["".join(chr(generator.randrange(1, 0x3000)) for _ in range(60)) for _ in range(20)]
    for text in texts:
        for utterance in FRONTEND(text).utterances:
            assert utterance.symbols[0] == " "
    assert FRONTEND("\ud800 lone surrogate").unspoken[0].symbol == "\ud800"
