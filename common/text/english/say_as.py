"""What SSML's say-as says: a stretch of text in the words of the kind that it is said to be."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from melforge.common.text.english.pronounce import LETTER_NAMES
from melforge.common.text.english.reading import number_words as say
from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.dates import full_year, is_day

_NAMES_OF_MARKS = {
    **tables.SYMBOLS,
    **{".": "dot", ",": "comma", "-": "dash", "_": "underscore", ":": "colon", ";": "semicolon"},
    **{"!": "exclamation mark", "?": "question mark", "'": "apostrophe", '"': "quote", "*": "star"},
    **{"(": "open bracket", ")": "close bracket", "[": "open bracket", "]": "close bracket"},
}
_NUMBER = re.compile(r"([+-]?)((?:\d{1,3}(?:,\d{3})+|\d{1,18})(?:\.\d{1,30})?|\.\d{1,30})")
_ORDINAL = re.compile(r"(\d{1,3}(?:,\d{3})+|\d{1,18})(?:st|nd|rd|th|\.)?", re.IGNORECASE)
_FRACTION = re.compile(r"(?:(\d{1,9})[ +])?(\d{1,9})\s?[/⁄]\s?(\d{1,9})")
_DIGITS_OR_WORDS = re.compile(r"\d+|[a-z]+", re.IGNORECASE)
_TELEPHONE = re.compile(r"\+|ext(?:ension|\.)?|[a-z]+|\d+", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2})[:.h]?(\d\d)?(?:[:.](\d\d))?\s?(?:([ap])\.?m?\.?)?", re.IGNORECASE)

Said = list[tuple[int, int, str]]


def say_as(text: str, kind: str, format: str = "") -> Said | None:
    """Which parts of a text, from where to where, are said how; None: it is read like any text."""
    if kind in ("characters", "spell-out", "verbatim"):
        return _characters(text)
    words = _WORDS[kind](text, format) if kind in _WORDS else ""
    return [(0, len(text), words)] if words else None


def _characters(text: str) -> Said:
    """Each by itself: what touches it changes nothing."""
    said = []
    for at, char in enumerate(text):
        if not char.isspace():
            name = f" {say.digits(char) or _NAMES_OF_MARKS.get(char, char)} "
            if char.lower() in LETTER_NAMES:
                name = f"{{{' '.join(LETTER_NAMES[char.lower()])}}}"
            said.append((at, at + 1, name))
    return said


def _cardinal(text: str, format: str) -> str:
    if match := _NUMBER.fullmatch(text):
        plain = match[2].replace(",", "")
        whole, point, rest = plain.partition(".")
        sign = {"-": "minus ", "+": "plus "}.get(match[1], "")
        return f"{sign}{say.cardinal(int(whole or 0))}" + (f" point {say.digits(rest)}" if point else "")
    number = say.roman(text.upper())
    return "" if number is None else say.cardinal(number)


def _ordinal(text: str, format: str) -> str:
    if match := _ORDINAL.fullmatch(text):
        return say.ordinal(int(match[1].replace(",", "")))
    number = say.roman(text.upper())
    return "" if number is None else say.ordinal(number)


def _number(text: str, format: str) -> str:
    return _ordinal(text, "") if format == "ordinal" else _cardinal(text, "") or _fraction(text, "")


def _digits(text: str, format: str) -> str:
    return say.digits(text) if any(char in "0123456789" for char in text) else ""


def _fraction(text: str, format: str) -> str:
    if not (match := _FRACTION.fullmatch(text)):
        return ""
    part = say.fraction(int(match[2]), int(match[3]))
    if match[1]:
        part = part.replace("one half", "a half", 1)
        return f"{say.cardinal(int(match[1]))} and {part}"
    return part


def _date(text: str, format: str) -> str:
    """By a format such as mdy, d or ym; without one as in any text."""
    if not format or not set(format) <= set("mdy"):
        return ""
    parts = _DIGITS_OR_WORDS.findall(text)
    if len(parts) == 1 and len(format) > 1 and len(parts[0]) == 2 * len(format) + 2 * ("y" in format):
        parts, rest = [], parts[0]
        for letter in format:
            size = 4 if letter == "y" else 2
            parts, rest = [*parts, rest[:size]], rest[size:]
    parts = [part for part in parts if part.lower() not in ("st", "nd", "rd", "th", "of")]
    if len(parts) != len(format):
        return ""
    given = dict(zip(format, parts, strict=True))
    month = given.get("m", "")
    number = int(month) if month.isdecimal() else tables.MONTH_NUMBERS.get(month.lower(), 0)
    day, year = given.get("d", "1"), given.get("y", "2000")
    if not (day.isdecimal() and year.isdecimal() and len(year) in (2, 4)):
        return ""
    if not is_day(number if "m" in given else 1, int(day)):
        return ""
    name = tables.MONTHS[number - 1] if "m" in given else ""
    day_word = say.ordinal(int(day)) if "d" in given else ""
    if day_word:
        name = f"{name} {day_word}" if name else f"the {day_word}"
    return ", ".join(filter(None, (name, say.year(full_year(year)) if "y" in given else "")))


def _time(text: str, format: str) -> str:
    if not (match := _CLOCK.fullmatch(text)) or int(match[1]) > 24 or int(match[2] or 0) > 59:
        return ""
    hour, minute, second = int(match[1]), int(match[2] or 0), match[3]
    half = f" {match[4].upper()}M" if match[4] else ""
    words = say.cardinal(hour)
    if minute or format == "hms24":
        words += f" {say.two_digits(minute)}" if minute else " hundred"
    elif not half:
        words += " o'clock" if 1 <= hour <= 12 else " hundred"
    if second:
        words += f" and {say.cardinal(int(second))} second{'s' * (int(second) != 1)}"
    return words + half


def _telephone(text: str, format: str) -> str:
    groups = []
    plus = ""
    for part in _TELEPHONE.findall(text):
        if part == "+":
            plus = "plus "
        elif part.isdecimal():
            cut = {10: (3, 6), 7: (3,), 11: (1, 4, 7)}.get(len(part), ())
            edges = (0, *cut, len(part))
            groups += [plus + say.digits(part[a:b]) for a, b in pairwise(edges)]
            plus = ""
        elif part.lower().startswith(("x", "ext")):
            groups.append("extension")
        else:
            groups.append(" ".join(part.upper()))
    return ", ".join(groups).replace("extension,", "extension")


def _currency(text: str, format: str) -> str:
    """An amount without a sign takes the currency of the format; others are read as in any text."""
    return f"{format.upper()} {text}" if len(format) == 3 and _NUMBER.fullmatch(text) else ""


_WORDS: dict[str, Callable[[str, str], str]] = {
    **{"cardinal": _cardinal, "number": _number, "ordinal": _ordinal, "digits": _digits},
    **{"fraction": _fraction, "date": _date, "time": _time, "telephone": _telephone, "currency": _currency},
}
# The rest is read as in any text, which knows units, addresses and names.
KINDS = (*_WORDS, "characters", "spell-out", "verbatim", "address", "name", "unit")
