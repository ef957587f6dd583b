"""Words as written to words as said: abbreviations, initials, contractions, foreign letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from common.text.english.reading import number_words as say
from common.text.english.reading import tables
from common.text.english.reading.capitals import NAME_PARTS, cased, letter_name, letters_and_digits, roman
from common.text.english.reading.cursor import LETTER, Cursor, LeftOut, Reading, Rule, form
from common.text.english.reading.dates import month, weekday
from common.text.english.reading.formulas import (
    FUNCTIONS,
    derivative,
    difference,
    function_name,
    logarithm,
    quotient,
)
from common.text.english.reading.money import price
from common.text.english.reading.streets import (
    DESIGNATORS,
    county_road,
    designator,
    direction,
    dotted_state,
    party,
    state,
    street,
)
from common.text.english.reading.units import unit_behind_per, unit_name
from common.text.english.word_parts import words

_CALENDAR = "Mon|Tues?|Wed|Thu(?:rs)?|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec"
_SHORT_MONTHS = words("Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec")
_SHORTENED = _SHORT_MONTHS | words("Mon Tue Tues Wed Thu Thur Thurs Fri")
_ROMAN_IN_SMALL = words("vol vols ch chap pp p sc")
_MAX_NAME = 2000  # characters of the longest address
_BLANK_DIGIT = re.compile(r"\.?\s?(?=\d)")
_DOTTED = re.compile(
    rf"(?:{LETTER}\.){{2,12}}(?:{LETTER}(?!\w))?|[A-Z][a-z]?\.[A-Z]\.(?:s(?!\w)|(?!\w))|[ap]\.m(?!\w)"
)
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z]+\d[A-Za-z\d]*")
_PLURAL_BRACKET = re.compile(r"\((e?s)\)(?!\w)")
_YEAR_FOLLOWS = re.compile(r"\s\d{3,4}(?!\d)")
_DATED_INITIALS = {"p": "page", "c": "circa", "b": "born", "d": "died", "r": "reigned"}
_SMALL_WORDS = words("is if of to in or so we by at as on an be do no he it me my up us go hi ok pi am")
_CENTURY = re.compile(r"\d{1,2}(?:st|nd|rd|th)")
_AND = re.compile(r"&(?:amp;)?([A-Z]{1,3})(?!\w)")
_SLASHED = re.compile(
    r"(w/o|w/in|w/out|w/|c/o|n/a|y/o|b/c|b/w|a/k/a|d/b/a|f/k/a|km/h|m/s)(?![/\w])|w/(?!/)", re.IGNORECASE
)
_SLASHED_WORDS = {"w/o": "without", "w/": "with", "c/o": "care of", "n/a": "NA", "y/o": "year old"}
_SLASHED_WORDS |= {"w/out": "without", "w/in": "within", "b/c": "because", "b/w": "between"}
_SLASHED_WORDS |= {"d/b/a": "doing business as"}
_SLASHED_WORDS |= {"f/k/a": "formerly known as"}
_SLASHED_LETTERS = re.compile(r"[A-Z](?:/[A-Z]){1,3}(?![\w/.'])")
_SLASHED_WORDS |= {"a/k/a": "also known as", "km/h": "kilometers per hour", "m/s": "meters per second"}
_OR = words("he his him she her s")
_PRONOUNS = {("he", "him"), ("she", "her"), ("him", "his"), ("her", "hers")}
_BRACKETED_NUMBER = re.compile(r"\s\(\d")
_NUMBERED_WITH_I = words("war part act book volume vol chapter scene phase type class world")
_SHORT_FORMS = tables.SHORT_FORMS | tables.SHORTENED
_BEHIND_NAMES = {"Jr": "Junior", "Sr": "Senior"}
_TITLES = {"Dr": "Doctor", "St": "Saint", "Mt": "Mount", "Prof": "Professor", "Ft": "Fort", "Sgt": "Sergeant"}
_VERSE_FOLLOWS = re.compile(r"\.?(?=\s\d{1,3}:\d)")
_DIMENSIONS = words("L W H D Ø")
_LENGTH_ENDS = ("'", '"', "′", "″")
_SIZE_FOLLOWS = re.compile(r"\s?\d")
_CODE_FOLLOWS = re.compile(r"\s[A-Z]{1,4}-?\d")
_PERIODS = words("second minute hour day week month year person night")
_TELEVISION = re.compile(r"\b(?:TV|[Tt]elevision|[Ww]atch)\b")
_COUNTDOWN = words("minute minutes second seconds hour hours day days")
_ROMAN_ORDINAL = re.compile(r"([IVXLC]{1,6})(?:th|st|nd|rd)")
_NAME_FOLLOWS = re.compile(r" [A-Z][a-z]")
_NUMBER_FOLLOWS = re.compile(r":?\s?[+(]?\d")
_SHORT_WORDS = frozenset(
    key.lower()
    for key in (
        *(*DESIGNATORS, *tables.STREETS, *_TITLES, *tables.WEEKDAYS, *tables.MONTH_NUMBERS, "tel", "ext"),
        *(*tables.STATES, *tables.STATES_WITH_STOP, *tables.PROVINCES, *FUNCTIONS),
    )
)


@form(rf"({_CALENDAR})\.?\s?[-–]\s?({_CALENDAR})\.?(?!\w)")
def calendar_range(cursor: Cursor, m: re.Match) -> str:
    """Mon-Fri, Jan.–Mar."""
    return "" if cursor.touches_word else f"{_calendar_name(m[1])} to {_calendar_name(m[2])}"


@form(rf"(?:{_CALENDAR})(?:/(?:{_CALENDAR}))+(?!\w)")
def calendar_list(cursor: Cursor, m: re.Match) -> str:
    """Mon/Wed/Fri."""
    return "" if cursor.touches_word else ", ".join(map(_calendar_name, m[0].split("/")))


@form(r"(?:v\.?\s?|V(?=\d+\.))(\d+(?:\.\d+)*)(?!\w)")
def version(cursor: Cursor, m: re.Match) -> str:
    """v2.0; not V8."""
    if cursor.touches_word:
        return ""
    return "version " + " point ".join(say.integer(part) for part in m[1].split("."))


@form(r"([A-Z])(\d{1,2})\s?[-–]\s?\1(\d{1,2})(?![\w-])")
def code_range(cursor: Cursor, m: re.Match) -> str:
    """Q1-Q3, C3–C5."""
    if cursor.touches_word or int(m[2]) >= int(m[3]):
        return ""
    return f"{letter_name(m[1])} {say.integer(m[2])} to {letter_name(m[1])} {say.integer(m[3])}"


def slashed_abbreviation(cursor: Cursor) -> Reading | None:
    """w/o, n/a, A/C."""
    if cursor.behind_word != "/" or cursor.touches_word:
        return None
    match = _SLASHED.match(cursor.text, cursor.at)
    if not match:
        letters = _SLASHED_LETTERS.match(cursor.text, cursor.at)
        return Reading(" ".join(map(letter_name, letters[0].split("/"))), letters.end()) if letters else None
    return Reading(_SLASHED_WORDS[match[0].lower()], match.end())


def dotted_abbreviation(cursor: Cursor) -> Reading | None:
    """U.S., e.g., p.m., Ph.D.s"""
    match = _DOTTED.match(cursor.text, cursor.at) if cursor.behind_word == "." else None
    if not match or not cursor.char.isascii() or cursor.touches_word:
        return None
    several = "s" if match[0].endswith(".s") else ""
    letters = match[0].removesuffix(several)
    key, letters = letters.rstrip(".").lower(), _in_latin(letters.replace(".", ""))
    if not letters:
        return None
    if key in tables.ABBREVIATIONS:
        spoken = tables.ABBREVIATIONS[key]
    elif letters.isupper() or key in ("a.m", "p.m", "b.c", "a.d", "u.s", "u.k"):
        spoken = letters.upper()
        is_word = spoken in tables.ACRONYM_WORDS
        spoken = spoken.capitalize() if is_word else tables.ACRONYMS.get(spoken, spoken)
    else:
        spoken = " ".join(letter_name(letter.upper()) for letter in letters)
    return _abbreviated(cursor, spoken + several, match.end())


def word_with_digits(cursor: Cursor) -> Reading | None:
    """MP3, H2O's."""
    if not cursor.behind_word.isdecimal():
        return None
    match = _LETTERS_AND_DIGITS.match(cursor.text, cursor.at)
    if not match:
        return None
    if respelled := tables.respelled(match[0]):
        return Reading(respelled, match.end())
    if match[0][:3] in tables.CURRENCY_CODES and match[0][3:].isdecimal():  # USD5
        return price(replace(cursor, at=cursor.at + 3), tables.CURRENCY_CODES[match[0][:3]])
    own = cursor.possessive(match.end())
    end = _past_hyphen(cursor, match.end() + len(own))
    return Reading(letters_and_digits(cursor, match[0]) + own, end)


def letter_with_sign(cursor: Cursor) -> Reading | None:
    """C++, C#, A+, x²."""
    letter, sign, end = cursor.word, cursor.behind_word, cursor.word_end
    if (
        len(letter) == 2
        and cursor.is_equation
        and letter.isascii()
        and (sign == "^" or sign in tables.SUPERSCRIPTS)
    ):
        return Reading(letter.upper(), end)  # "mc²"
    if len(letter) != 1 or not sign or not letter.isascii():
        return None
    name = letter_name(letter.upper())
    if cursor.text.startswith("++", end):
        return Reading(f"{name} plus plus", end + 2)
    if sign == "^" or sign in tables.SUPERSCRIPTS:
        return Reading(name, end)
    if sign == "#" and letter.isupper():
        return Reading(f"{name} sharp", end + 1)
    if (
        sign == "*"
        and letter.isupper()
        and cursor.is_after_blank
        and cursor.text[end + 1 : end + 2] in ("", " ")
    ):
        return Reading(f"{name} star", end + 1)
    if sign == "'" and cursor.text.startswith("(", end + 1) and letter not in "aI":  # f'(x)
        return Reading(f"{name} prime of", end + 2)
    if sign == "+" and letter in "ABCDEF" and not cursor.text[end + 1 : end + 2].isalnum():
        return Reading(f"{name} plus", end + 1)
    if sign == "-" and letter in "ABCDF" and cursor.text[end + 1 : end + 2] in (" ", ".", ",", ""):  # a grade
        return Reading(f"{name} minus", end + 1)
    return None


def abbreviation(cursor: Cursor) -> Reading | None:
    """Dr. Smith, No. 5, Mon. night: a word with a full stop that does not only end the sentence."""
    if cursor.behind_word != ".":
        return None
    word, end = cursor.word, cursor.word_end + 1
    key, following = word.lower(), cursor.next(end)
    if not (word.islower() or word.istitle() or word.isupper()) or word == "EST":  # "PCs.", "8 pm EST."
        return None
    if len(word) == 1:
        letter = _in_latin(word)
        return _initial(cursor, letter, end, following) if letter else None
    if key in ("dr", "st"):
        spoken = "Doctor" if key == "dr" else "Saint"
    elif key in tables.ABBREVIATIONS:
        if not _is_abbreviated(cursor, word, key, end, following):
            return None
        is_channel = key == "ch" and _TELEVISION.search(cursor.text, max(cursor.at - 20, 0), cursor.at)
        is_year = key == "fl" and _YEAR_FOLLOWS.match(cursor.text, end)
        spoken = "channel" if is_channel else "flourished" if is_year else tables.ABBREVIATIONS[key]
    elif key in tables.WEEKDAYS and word[0].isupper():
        is_month = following.lower() in tables.MONTH_NUMBERS
        if not (is_month or following in (",", ")") or following[:1].isdecimal() or following.islower()):
            return None
        spoken = tables.WEEKDAYS[key]
    else:
        return None
    return _abbreviated(cursor, spoken, end)


def money(cursor: Cursor) -> Reading | None:
    """US$5, USD 5."""
    word, end = cursor.word, cursor.word_end
    if word == "US" and cursor.text.startswith(" $", end) and cursor.text[end + 2 : end + 3].isdecimal():
        return price(replace(cursor, at=end + 2), "US$")  # US $5
    if (
        word in tables.CURRENCY_CODES
        and cursor.behind_word == "$"
        and cursor.text[end + 1 : end + 2].isdecimal()
    ):
        return price(replace(cursor, at=end + 1), tables.CURRENCY_CODES[word])  # CAD$20
    is_dollar = word in tables.DOLLARS or word == "R"
    if is_dollar and cursor.behind_word == "$" and cursor.text[end + 1 : end + 2].isdecimal():
        return price(replace(cursor, at=end + 1), word + "$")
    if word in tables.CURRENCY_CODES and (blank := _BLANK_DIGIT.match(cursor.text, end)):
        if "." in blank[0] and word != "Rs":
            return None
        return price(replace(cursor, at=blank.end()), tables.CURRENCY_CODES[word])
    return None


def book(cursor: Cursor) -> Reading | None:
    """Matt. 5:3, 1 Cor. 13:4: a book of the Bible cut short."""
    name = tables.BOOKS.get(cursor.word) if cursor.behind_word in (".", " ") else None
    verse = _VERSE_FOLLOWS.match(cursor.text, cursor.word_end) if name else None
    return Reading(name, verse.end()) if name and verse else None


@form(r"(UTC|GMT|T)([-−+])(\d{1,2})(?::(\d\d))?(?=([\s).,;]|$))")
def offset(cursor: Cursor, m: re.Match) -> str:
    """UTC-05:00, GMT+2, T-10 minutes."""
    if cursor.touches_word or (m[1] == "T" and cursor.next(m.end()) not in _COUNTDOWN):
        return ""
    minutes = f" {say.cardinal(int(m[4]))}" if m[4] and int(m[4]) else ""
    return f"{m[1]} {'plus' if m[2] == '+' else 'minus'} {say.cardinal(int(m[3]))}{minutes}"


@form(r"[Nn][º°]\s?(?=\d)")
def numero(cursor: Cursor, m: re.Match) -> str:
    """Nº 5, n° 5."""
    return "" if cursor.touches_word else "number "


@form(r"M\s?[-–]\s?F(?=[,:]?\s\d)")
def working_days(cursor: Cursor, m: re.Match) -> str:
    """M-F 9-5."""
    return "" if cursor.touches_word else "Monday to Friday"


@form(r"([A-Z]{1,3})(\d{1,2}\.\d{1,2})(?![\w.])")
def letters_and_decimal(cursor: Cursor, m: re.Match) -> str:
    """PM2.5, USB3.0; V2.0 is a version."""
    if cursor.touches_word or m[1] == "V" or m[1] in tables.CURRENCY_CODES:
        return ""
    return f"{letter_name(m[1])} {say.decimal(m[2])}"


def joined_capitals(cursor: Cursor) -> Reading | None:
    """R&D, AT&T."""
    if cursor.behind_word != "&" or not cursor.word.isupper():
        return None
    word, other = _in_latin(cursor.word), _AND.match(cursor.text, cursor.word_end)
    if not word or not other:
        return None
    own = cursor.possessive(other.end())
    return Reading(f"{letter_name(word)} and {letter_name(other[1])}{own}", other.end() + len(own))


def plain_word(cursor: Cursor) -> Reading | None:
    """A word, with the hyphen or slash that ties it to the next one, and the "(s)" of "cat(s)"."""
    word, end, text = cursor.word, cursor.word_end, cursor.text
    if not word:
        return None
    if cursor.behind_word == "(" and (bracket := _PLURAL_BRACKET.match(text, end)):
        word, end = word + bracket[1], bracket.end()
    spoken = plain(cursor, word, end)
    left_out = () if word.isascii() else left_out_of(cursor, [word])
    if text.startswith("/", end) and text[end + 1 : end + 2].isalpha():
        is_or = word.lower() in _OR and (word.lower(), cursor.next(end + 1).lower()) not in _PRONOUNS
        following = cursor.next(end + 1)
        is_per = word[-1] == "s" and len(word) > 3 and (unit_name(following) or following in _PERIODS)
        if is_per and (following in _PERIODS or len(following) < 4):  # "cells/mL"
            below = following if following in _PERIODS else unit_name(following)
            return Reading(f"{spoken} per {below}", end + 1 + len(following), left_out)
        spoken = word if word.lower() == "and" else f"{spoken} {'or' if is_or else 'slash'}"
        return Reading(spoken, end + 1, left_out)
    phones = "" if word.isascii() else tables.ACCENTED.get(word.lower(), "")
    joined = _past_hyphen(cursor, end)
    if joined > end and word.lower() in ("noon", "midnight") and cursor.next(joined)[:1].isdecimal():
        return Reading(f"{spoken} to", joined)
    if joined > end and spoken[-1:].isalnum() and cursor.next(joined)[:1].isalpha():
        spoken += "-"
    return Reading(spoken, joined, left_out, phones)


def ordinary_word(cursor: Cursor) -> Reading | None:
    """A word in small letters before a blank, which no other rule reads; most words are. Saves time."""
    word = cursor.word
    is_one = cursor.behind_word == " " and len(word) > 2 and word.isascii() and word.islower()
    if not is_one or word in _SHORT_WORDS or cursor.previous.lower() == "per":
        return None
    return Reading(plain(cursor, word, cursor.word_end), cursor.word_end)


def title(cursor: Cursor) -> Reading | None:
    """Dr Smith, St Mary's, Mt Everest: a title or a part of a name without its full stop."""
    name = _TITLES.get(cursor.word)
    if not name or cursor.behind_word != " " or not _NAME_FOLLOWS.match(cursor.text, cursor.word_end):
        return None
    return Reading(name, cursor.word_end)


def before_colon(cursor: Cursor) -> Reading | None:
    """Tel: 555-0199, Ext: 12."""
    name = {"tel": "telephone", "ext": "extension"}.get(cursor.word.lower())
    is_before_number = (
        name and cursor.behind_word in (":", " ") and _NUMBER_FOLLOWS.match(cursor.text, cursor.word_end)
    )
    return Reading(name, cursor.word_end) if name and is_before_number else None


def size_by(cursor: Cursor) -> Reading | None:
    """10'x12', 8½" × 11": by."""
    if (
        cursor.char not in "x×"
        or not cursor.previous.endswith(_LENGTH_ENDS)
        or not cursor.previous[0].isdecimal()
    ):
        return None
    match = _SIZE_FOLLOWS.match(cursor.text, cursor.at + 1)
    return Reading("by", cursor.at + 1) if match else None


def behind_per(cursor: Cursor) -> Reading | None:
    """Per km², per sq ft."""
    if cursor.previous.lower() != "per":
        return None
    unit, end = unit_behind_per(cursor)
    return Reading(unit, end) if unit else None


_SHORT_WORD_RULES: tuple[Rule, ...] = (
    *(state, designator, street, title, weekday, month, before_colon, function_name),
)


def short_word(cursor: Cursor) -> Reading | None:
    """A word cut short beside what tells its meaning: Apt 4B, Elm St, Dr Smith, Sat, Nov 5."""
    if cursor.word.lower() not in _SHORT_WORDS:
        return None
    return next((reading for rule in _SHORT_WORD_RULES if (reading := rule(cursor))), None)


WORDS: tuple[Rule, ...] = (
    *(
        calendar_range,
        calendar_list,
        version,
        offset,
        code_range,
        dotted_state,
        party,
        county_road,
        direction,
        dotted_abbreviation,
        slashed_abbreviation,
        size_by,
        logarithm,
        derivative,
        difference,
        quotient,
        letters_and_decimal,
        numero,
        working_days,
        word_with_digits,
    ),
    *(letter_with_sign, behind_per, book, short_word, abbreviation, money, joined_capitals, plain_word),
)


def _past_hyphen(cursor: Cursor, end: int) -> int:
    """Past a hyphen that ties a word or number on."""
    is_tied = cursor.text.startswith("-", end) and cursor.text[end + 1 : end + 2].isalnum()
    return end + 1 if is_tied else end


def plain(cursor: Cursor, word: str, end: int) -> str:
    """How a word that ends at `end` is said."""
    if not word.isascii():
        return _foreign(cursor, word)
    if (number := roman(cursor, word, end)) is not None:
        return number
    is_plural = len(word) > 2 and word[-1] == "s" and word[:-1].isupper()  # "28 HRs"
    if not is_plural and (full := _SHORT_FORMS.get(word.lower())):
        return full if word.islower() else word if word.isupper() and len(word) < 5 else full.capitalize()
    if word in _BEHIND_NAMES and cursor.previous:
        return _BEHIND_NAMES[word]
    if len(word) == 2 and cursor.is_equation and word.islower() and word not in _SMALL_WORDS:  # "F = ma"
        return word.upper()
    if (
        word == "x"
        and (cursor.previous[:1].isdecimal() or cursor.previous in _DIMENSIONS)
        and cursor.next(end)[:1].isdecimal()
    ):  # 10" x 12"
        return "times" if cursor.is_equation else "by"
    if len(word) == 1:
        is_item = cursor.is_after_blank and cursor.text.startswith(")", end)  # "a) first"
        if is_item:
            return letter_name(word.upper())
        return word if word in "aAI" else word.upper()
    if word.islower() or (word[0].isupper() and word[1:].islower() and word not in _SHORTENED):
        if word.islower() and word in tables.SMALL_ACRONYMS and cursor.text[end : end + 1] != "'":
            return word[:-1].upper() + "s" if word[:-1] in tables.SMALL_ACRONYMS else word.upper()
        is_era = word in ("bc", "ad", "bce") and cursor.previous.isdecimal()
        is_era = is_era or (word in ("am", "pm") and cursor.previous[-1:].isdecimal())  # "7-8pm"
        return word.upper() if is_era else word
    if word in _SHORTENED:
        is_date = cursor.next(end)[:1].isdecimal() or (cursor.previous.isdecimal() and word in _SHORT_MONTHS)
        return _calendar_name(word) if is_date else word
    if (ordinal := _ROMAN_ORDINAL.fullmatch(word)) and (number := say.roman(ordinal[1])):
        return say.ordinal(number)  # "XXth"
    return cased(cursor, word)


def _foreign(cursor: Cursor, word: str) -> str:
    """A word with letters beyond a-z, in Latin letters."""
    if word.lower() in tables.GREEK:
        return tables.GREEK[word.lower()]
    if _is_term(word):
        return " ".join(tables.GREEK.get(letter.lower()) or letter_name(letter.upper()) for letter in word)
    latin = _latin(word)
    if not _scripts(word):
        return plain(cursor, "".join(latin), cursor.at + len(word)) if latin else ""
    syllables = [part.replace("'", "") for part in latin]
    names = [NAME_PARTS.findall(part.title() if part.isupper() else part) for part in syllables]
    return " ".join(part for parts in names for part in parts)


def _is_term(word: str) -> bool:
    """Whether Greek letters stand beside a Latin one, as in a formula: "πr", "Δx"."""
    is_mixed = len(word) < 5 and any(letter.isascii() for letter in word)
    return is_mixed and all(letter.isascii() or letter.lower() in tables.GREEK for letter in word)


def _in_latin(word: str) -> str:
    """A word of Latin letters in a-z; "" where it has letters of another script, which are reported."""
    return word if word.isascii() else "" if _scripts(word) else "".join(_latin(word))


def _latin(word: str) -> list[str]:
    from anyascii import anyascii

    return re.findall(r"'*[A-Za-z][A-Za-z']*", anyascii(word))


def _scripts(word: str) -> set[str]:
    """The scripts of a word other than the Latin one: "GREEK", "CJK"."""
    names = (unicodedata.name(char, "UNKNOWN") for char in word if not char.isascii())
    return {name.split(" ")[0] for name in names} - {"LATIN"}


def left_out_of(cursor: Cursor, parts: Sequence[str]) -> tuple[LeftOut, ...]:
    """The words among the parts of what is read that are in another script, or have no Latin letters."""
    left_out = []
    for word in parts:
        if word.isascii() or word.lower() in tables.GREEK or _is_term(word):
            continue
        scripts = _scripts(word)
        if scripts or not _latin(word):
            place = cursor.text.find(word, cursor.at, cursor.at + _MAX_NAME)
            left_out.append(LeftOut(word[:40], max(place, cursor.at), min(scripts, default=word)))
    return tuple(left_out)


def _abbreviated(cursor: Cursor, spoken: str, end: int) -> Reading:
    """With the "'s" of "the P.M.'s" or the full stop of the sentence."""
    own = cursor.possessive(end)
    return Reading(spoken + (own or cursor.last_stop(end)), end + len(own))


def _initial(cursor: Cursor, letter: str, end: int, following: str) -> Reading | None:
    """J. Smith; p. 5; c. 1850; Roe v. Wade; World War I. Then."""
    is_name = following[:1].isupper()
    is_part = not is_name or cursor.previous.lower() in _NUMBERED_WITH_I
    if is_part and (number := roman(cursor, letter, end - 1)) is not None:
        return Reading(number, end - 1)
    if letter == "c" and _CENTURY.fullmatch(cursor.previous):
        return Reading("century" + cursor.last_stop(end), end)
    is_dated = letter in "pc" or (letter in "bd" and cursor.previous in ("(", ";", ","))
    if letter == "p" and following.islower() and say.roman(following.upper()):
        return Reading("page", end)
    is_dated = is_dated or (letter in "bdr" and cursor.at == 0 and _YEAR_FOLLOWS.match(cursor.text, end))
    is_dated = is_dated or (letter == "r" and cursor.previous in ("(", ";", ","))
    if following[:1].isdecimal() and is_dated:
        return Reading(_DATED_INITIALS[letter], end)
    if letter == "v" and following:
        return Reading("versus", end)
    if cursor.at == 0 and following and letter.islower():  # "a. First"
        return Reading(f"{letter_name(letter.upper())},", end)
    if letter.isupper() and (is_name or following == "," or following.islower()):  # also "E. coli"
        return Reading(letter_name(letter), end)
    return None


def _is_abbreviated(cursor: Cursor, word: str, key: str, end: int, following: str) -> bool:
    """Whether a known abbreviation is one here, and no word at the end of a sentence."""
    is_number = following[:1].isdecimal()
    if word == "Ms":
        return following[:1].isupper()
    is_code = key in ("no", "nos") and _CODE_FOLLOWS.match(cursor.text, end) is not None
    if key in tables.BEFORE_NUMBERS and not is_number:
        is_small = following.islower() and len(following) > 1 and key in _ROMAN_IN_SMALL
        is_roman = (following.isupper() or is_small) and say.roman(following.upper()) is not None
        if not (is_roman or is_code) and (key == "no" or not _BRACKETED_NUMBER.match(cursor.text, end)):
            return False
    goes_on = is_number or is_code or following.islower() or (word[0].isupper() and following != "")
    if key in tables.ALSO_WORDS and not goes_on:
        return False
    if key in tables.MONTH_NUMBERS and not word[0].isupper():
        return False
    if key == "ave" and not following and not cursor.previous:
        return word[0].isupper()
    return key not in ("mt", "ft") or following[:1].isupper()


def _calendar_name(short: str) -> str:
    """ "Jan" -> "January", "Mon" -> "Monday"."""
    month = tables.MONTH_NUMBERS.get(short.lower())
    return tables.MONTHS[month - 1] if month else tables.WEEKDAYS[short.lower()]
