"""Single rules of the reading, each called alone at a cursor."""

import copy

import pytest

from melforge.common.text.english.reading import (
    addresses,
    amounts,
    dates,
    formats,
    fractions,
    money,
    senses,
    signs,
    streets,
    telephone,
    times,
    words,
)
from melforge.common.text.english.reading.cursor import Cursor, LeftOut, Reading, begin


@pytest.mark.parametrize(
    "rule, text, spoken",
    [
        (dates.iso_date, "2021-03-04", "March fourth, twenty twenty-one"),
        (dates.date, "3/4/2020", "March fourth, twenty twenty"),
        (dates.date, "13/4/2020", "April thirteenth, twenty twenty"),
        (times.time, "3:05 pm", "three oh five PM"),
        (telephone.phone, "(415) 555-2671", "four one five, five five five, two six seven one"),
        (fractions.fraction, "3/4 mi", "three quarters of a mile"),
        (fractions.fraction, "34/40 pts", "thirty-four out of forty points"),
        (fractions.fraction, "230/460 V", "two hundred thirty over four hundred sixty volts"),
        (dates.decade, "1990s", "nineteen nineties"),
        (amounts.amount, "10-12 km", "ten to twelve kilometers"),
        (dates.joined_date, "25-Jul-2012", "the twenty-fifth of July twenty twelve"),
        (dates.season, "2009/10", "two thousand nine ten"),
        (times.dotted_time, "9.30 am", "nine thirty AM"),
        (times.time, "1:02:03", "one hour two minutes and three seconds"),
        (telephone.vanity_number, "1-800-FLOWERS", "one eight hundred, flowers"),
        (formats.clause_of_code, "401(k)", "four oh one K"),
        (addresses.network_address, "192.168.0.1", "one nine two dot one six eight dot zero dot one"),
        (money.european_price, "1,50 €", "one euro and fifty cents"),
        (words.calendar_range, "Mon-Fri", "Monday to Friday"),
        (words.version, "v2.0", "version two point zero"),
        (words.dotted_abbreviation, "e.g.", "for example."),
        (formats.hexadecimal, "0x8B07", "zero X eight B zero seven"),
        (words.letter_with_sign, "C#", "C sharp"),
        (words.money, "US$5", "five US dollars"),
        (words.joined_capitals, "R&D", "R and D"),
        (addresses.address, "info@example.com", "info at example dot com"),
        (addresses.tag, "#GoNow", "hashtag Go Now"),
        (signs.money, "£1.50", "one pound and fifty pence"),
        (signs.signed_number, "-3", "minus three"),
        (signs.enclosed, "{HH AH0}", "{HH AH0}"),
        (signs.sign, "<=", "less than or equal to"),
        (signs.apostrophe, "'90s", "nineties"),
        (signs.flag, "🇫🇷", "flag FR,"),
    ],
)
def test_a_rule_reads_its_form(rule, text, spoken):
    assert rule(Cursor(text)) == Reading(spoken, len(text))


@pytest.mark.parametrize(
    "rule, text",
    [
        (dates.date, "3.4.20"),
        (times.time, "3:75"),
        (fractions.fraction, "2 3/2"),
        (words.abbreviation, "cat."),
        (words.version, "very"),
        (dates.season, "2009/11"),
        (dates.day_of_month, "5 may be"),
        (times.dotted_time, "9.30"),
        (telephone.code, "1234"),
        (streets.house_number, "300 People"),
        (streets.direction, "N 45"),
        (addresses.address, "plain"),
        (signs.signed_number, "-x"),
        (signs.enclosed, "{QQ}"),
        (signs.mark, "x"),
    ],
)
def test_a_rule_leaves_other_text_alone(rule, text):
    assert rule(Cursor(text)) is None


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
    reading = fractions.fraction(Cursor(before + "3/4", at=len(before)))
    assert reading and reading.spoken == spoken


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
    reading = senses.sense(Cursor(before + text, at=len(before)))
    assert (reading and reading.spoken) == spoken


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


@pytest.mark.parametrize("text", ["Dr. Smith paid -$5.50 at 3:45", "f(x) = x² + #1", "C++, R&D in the U.S."])
def test_rules_do_not_change_the_cursor(text):
    for at in range(len(text)):
        cursor = begin(text)
        cursor.move(at)
        before = copy.copy(cursor)
        for rule in (*formats.NUMBERS[:-1], *words.WORDS, addresses.address, *signs.SIGNS):
            rule(cursor)
            assert cursor == before, rule.__name__
