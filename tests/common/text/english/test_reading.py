"""Single rules of the reading, each called alone at a cursor."""

import copy
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from melforge.common.text.cmudict import load_cmudict
from melforge.common.text.english import normalise, reading
from melforge.common.text.english.reading import (
    abbreviations,
    addresses,
    amounts,
    formats,
    fractions,
    senses,
    signs,
    tables,
    words,
)
from melforge.common.text.english.reading.cursor import Cursor, LeftOut, Reading, Rules, begin
from tests.tables import read_tables

ROOT = Path(__file__).parents[4]
CASES = read_tables(Path(__file__).parent / "cases.txt")


def rule_of(name: str) -> Callable[[Cursor], Reading | None]:
    module, _, function = name.partition(".")
    return getattr(import_module(f"{reading.__name__}.{module}"), function)


@pytest.mark.parametrize("rule, text, spoken", CASES["forms"])
def test_a_rule_reads_its_form(rule, text, spoken):
    assert rule_of(rule)(Cursor(text)) == Reading(spoken, len(text))


@pytest.mark.parametrize("rule, text", CASES["no forms"])
def test_a_rule_leaves_other_text_alone(rule, text):
    assert rule_of(rule)(Cursor(text)) is None


@pytest.mark.parametrize(
    "before, spoken",
    [
        ("on ", "March fourth"),
        ("about ", "three quarters"),
        ("page ", "three of four"),
        ("grade ", "three slash four"),
        ("TX-", "three slash four"),
    ],
)
def test_what_stands_before_a_fraction_decides(before, spoken):
    found = fractions.fraction(Cursor(before + "3/4", at=len(before)))
    assert found and found.spoken == spoken


@pytest.mark.parametrize(
    "before, text, spoken",
    [
        ("2 yrs ", "exp", "experience"),
        ("the ", "exp", None),
        ("Nelson ", "d. 1805", "died"),
        ("Federer ", "d. Nadal 6-4", "defeated"),
        ("vitamin ", "d. Then", None),
        ("on TV, ", "ch. 4", "channel"),
        ("BA 9 ", "dep LHR", "departs"),
    ],
)
def test_neighbours_tell_what_an_abbreviation_means(before, text, spoken):
    found = senses.sense(Cursor(before + text, at=len(before)))
    assert (found and found.spoken) == spoken


def test_a_year_is_read_as_one_unless_it_counts():
    assert amounts.amount(Cursor("1984")).spoken == "nineteen eighty-four"
    assert amounts.amount(Cursor("1984 people")).spoken == "one thousand nine hundred eighty-four"
    assert amounts.amount(Cursor("1984 people", previous="in")).spoken == "nineteen eighty-four"


def test_brackets_of_a_function_are_no_pause():
    cursor = Cursor("f(x)", at=1, previous="f")
    assert signs.bracket(cursor) == Reading("of", 2)
    assert signs.bracket(Cursor("f(x)", at=3, is_argument=True)) == Reading("", 4)
    assert signs.bracket(Cursor("f(x)", at=3)) == Reading(",", 4)
    cursor.advance(signs.bracket(cursor))
    assert (cursor.at, cursor.char, cursor.previous, cursor.earlier) == (2, "x", "(", "f")
    assert cursor.is_argument


def test_what_is_left_out_comes_with_the_reading():
    assert words.plain_word(Cursor("Say Привет", at=4)) == Reading(
        "Privet", 10, (LeftOut("Привет", 4, "CYRILLIC"),)
    )
    assert signs.enclosed(Cursor("a[12]", at=1)) == Reading("", 5, (LeftOut("[12]", 1, "["),))


@pytest.mark.parametrize(
    "text, phones",
    [("P-p-please", "P AH0"), ("th-that's", "DH AH0"), ("s-st-stop", "S AH0"), ("C-corp", None)],
)
def test_a_stammered_letter_is_a_sound(text, phones):
    found = words.stammer(Cursor(text, previous="a"))
    assert (found and found.phones) == phones


def test_o_is_of_and_weak_between_hyphens():
    assert words.clipped(Cursor("o' guns")) == Reading("of", 2)
    assert words.clipped(Cursor("o'-lantern")) == Reading("o", 3, phones="AH0")


@pytest.mark.parametrize("text", ["Dr. Smith paid -$5.50 at 3:45", "f(x) = x² + #1", "C++, R&D in the U.S."])
def test_rules_do_not_change_the_cursor(text):
    for at in range(len(text)):
        cursor = begin(text)
        cursor.move(at)
        before = copy.copy(cursor)
        for rule in (*formats.NUMBERS[:-1], *words.WORDS, addresses.address, *signs.SIGNS):
            rule(cursor)
            assert cursor == before, rule.__name__


def test_what_saves_time_changes_nothing(monkeypatch):
    """Every rule is tried at every place, alone: none is passed over where it would apply."""
    paths = sorted((ROOT / "tests" / "data" / "reading").glob("*.tsv"))
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [line.split("\t")[0].replace("⏎", "\n") for line in lines[::6]]
    vocabulary = map(str.lower, load_cmudict().words()[::160])
    for word in (*abbreviations.SHORT_WORDS, *tables.ABBREVIATIONS, *tables.SHORTENED, *vocabulary):
        name = word.capitalize()
        texts.append(f"{name} {word} to {name}, {word}, {word}; {name}-5 a {name}. A {word}.")

    def one_by_one(rules: Rules, cursor: Cursor) -> Reading:
        return next(reading for rule in rules.all if (reading := rule(cursor)))

    together = [normalise.normalise(text) for text in texts]
    monkeypatch.setattr(Rules, "first_reading", one_by_one)
    monkeypatch.setattr(normalise, "pass_unchanged", lambda cursor, limit: [])
    monkeypatch.setattr(normalise, "ordinary_word", lambda cursor: None)
    for text, expected in zip(texts, together, strict=True):
        assert normalise.normalise(text) == expected, text
