"""Numbers in fixed forms: dates, times, telephone numbers, fractions, versions, ordinals."""

from __future__ import annotations

import re

from common.text.english.reading import number_words as say
from common.text.english.reading import tables
from common.text.english.reading.amounts import amount, plural_unit, unit_after
from common.text.english.reading.capitals import letters_and_digits
from common.text.english.reading.cursor import NUMBER, Cursor, Reading, Rule, first_reading, form
from common.text.english.word_parts import words

_FRACTION = re.compile(r"(?:(\d{1,4})[ -])?(\d{1,4})/(\d{1,4})(?:rds?|ths?|nds?)?(?![\w/]|\.\d)")
_SHORT_FRACTION = re.compile(r"(\d{1,6})?\s?([½¼¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒])")
_SCIENTIFIC = re.compile(
    r"(\d+(?:\.\d+)?)(?:[eE]|\s?[×x]\s?10(?:\^|(?=[⁻⁺⁰-⁹¹²³])))([+-]?\d{1,4}|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})(?!\w)"
)
_MAGNITUDES = words("k K M B T bn mn tn mln bln")
_BY = re.compile(r"x\d+")
_DATED = words("on by until since before after")
_SCORES = {("24", "7"): "twenty-four seven", ("9", "11"): "nine eleven", ("7", "11"): "seven eleven"}


@form(r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?!\d|-\d)(?:[T ](\d{2}):(\d{2})(?::\d{2}(?:\.\d+)?)?(Z|UTC)?)?")
def iso_date(cursor: Cursor, m: re.Match) -> str:
    """2021-03-04, 2021-03-04T15:30:00Z."""
    spoken = _date(int(m[1]), int(m[3]), int(m[4]))
    if spoken and m[5]:
        spoken += f", {_clock(int(m[5]), int(m[6]))}" + (" UTC" if m[7] else "")
    return spoken


@form(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(?![\w/]|[.,-]\d)")
def date(cursor: Cursor, m: re.Match) -> str:
    """3/4/2021, 4.3.2021; the month first where both are possible."""
    if len(m[4]) == 2 and m[2] != "/":
        return ""
    year = int(m[4]) if len(m[4]) == 4 else int(m[4]) + (2000 if int(m[4]) < 50 else 1900)
    first, second = int(m[1]), int(m[3])
    return _date(year, first, second) or _date(year, second, first)


@form(r"(\d{1,2}):(\d{2})(?::(\d{2}))?(?![\d:])(\.\d+)?(?:\s?([AaPp])(?:\.\s?[Mm]\.|[Mm](?!\w)))?")
def time(cursor: Cursor, m: re.Match) -> str:
    """15:30, 3:30 p.m., 1:02:03.5."""
    hour, minute, second, point, half = int(m[1]), int(m[2]), m[3], m[4], m[5]
    if minute > 59 or (hour > 24 and half):
        return ""
    spoken = _clock(hour, minute, bool(half or second or point))
    spoken += f" {say.two_digits(int(second))}" if second else ""
    spoken += f" {say.decimal(point)}" if point else ""
    return spoken + _half_day(cursor, m, half)


@form(r"(\d{1,2})\s?([AaPp])(?:\.\s?[Mm]\.|[Mm](?!\w))")
def hour(cursor: Cursor, m: re.Match) -> str:
    """3 pm."""
    return say.cardinal(int(m[1])) + _half_day(cursor, m, m[2]) if int(m[1]) <= 24 else ""


def _half_day(cursor: Cursor, m: re.Match, letter: str | None) -> str:
    """The "AM" or "PM" at the end of a time."""
    if not letter:
        return ""
    return f" {letter.upper()}M" + (cursor.last_stop(m.end()) if m[0].endswith(".") else "")


@form(r"(\d+):(\d+)(?![\d:])")
def ratio(cursor: Cursor, m: re.Match) -> str:
    """16:9."""
    return f"{say.integer(m[1])} to {say.integer(m[2])}"


@form(
    r"(?:\+?(\d{1,3})[ .-])?(?:\((\d{3})\)\s?|(\d{3})[ .-])(\d{3})[ .-](\d{4})"
    r"(?:,?\s?(?:ext\.?|x)\s?(\d{1,6}))?(?![\w-]|\.\d)"
)
def phone(cursor: Cursor, m: re.Match) -> str:
    """+1 (415) 555-2671, ext. 12."""
    groups = [group for group in (m[1], m[2] or m[3], m[4], m[5]) if group]
    spoken = ", ".join(say.digits(group) for group in groups)
    return f"{spoken}, extension {say.digits(m[6])}" if m[6] else spoken


@form(r"(\d{3})-(\d{4})(?![\w-]|,\d)")
def short_phone(cursor: Cursor, m: re.Match) -> str:
    """555-2671."""
    return f"{say.digits(m[1])}, {say.digits(m[2])}"


@form(r"\d+(?:\.\d+){2,}(?!\w)")
def dotted_numbers(cursor: Cursor, m: re.Match) -> str:
    """1.2.3, 192.168.0.1, 1.234.567."""
    parts = m[0].split(".")
    if len(parts) > 2 and all(len(part) == 3 for part in parts[1:]) and 1 <= len(parts[0]) <= 3:
        return say.integer(m[0].replace(".", ""))  # a European million
    return (" dot " if len(parts) == 4 else " point ").join(say.integer(part) for part in parts)


@form(r"\d+(?:-\d+){2,}(?!\w)|\d{4}(?: \d{4}){3}(?!\w)")
def digit_groups(cursor: Cursor, m: re.Match) -> str:
    """078-05-1120, 1234 5678 1234 5678."""
    return ", ".join(say.digits(group) for group in re.split("[- ]", m[0]))


@form(r"(\d{1,3})\s?['′]\s?(\d{1,2}(?:\.\d)?)\s?(?:\"|″|'')|(\d{1,3})′|(\d{1,3}(?:\.\d{1,3})?)″")
def feet(cursor: Cursor, m: re.Match) -> str:
    """5'11", 6′, 3″."""
    if m[1]:
        return f"{_counted(m[1], 'foot')} {_counted(m[2], 'inch')}"
    return _counted(m[3], "foot") if m[3] else _counted(m[4], "inch")


@form(r"(\d{1,3})°\s?(\d{1,2})['′]\s?(?:(\d{1,2}(?:\.\d{1,4})?)(?:\"|″|'')\s?)?([NSEW])?(?!\w)")
def degrees(cursor: Cursor, m: re.Match) -> str:
    """40°26′46″N."""
    spoken = f"{_counted(m[1], 'degree')} {_counted(m[2], 'minute')}"
    spoken += f" {_counted(m[3], 'second')}" if m[3] else ""
    return spoken + {"N": " north", "S": " south", "E": " east", "W": " west"}.get(m[4] or "", "")


def fraction(cursor: Cursor) -> Reading | None:
    """3/4 mile, 2 1/2 cups, 24/7; on 3/4."""
    m = _FRACTION.match(cursor.text, cursor.at)
    if not m or not (spoken := _said_fraction(cursor, m)):
        return None
    return _with_unit(cursor, spoken, m.end(), is_more_than_one=bool(m[1]) or int(m[2]) > int(m[3]))


def _said_fraction(cursor: Cursor, m: re.Match) -> str:
    whole, top, bottom = m[1], int(m[2]), int(m[3])
    if whole is not None:
        return f"{say.integer(whole)} and {_behind_whole(say.fraction(top, bottom))}" if top < bottom else ""
    if (m[2], m[3]) in _SCORES:
        return _SCORES[m[2], m[3]]
    if cursor.previous.lower() in _DATED and _is_day(top, bottom):
        return f"{tables.MONTHS[top - 1]} {say.ordinal(bottom)}"
    if top + bottom == 100:
        return f"{say.cardinal(top)} {say.cardinal(bottom)}"
    return say.fraction(top, bottom)


def short_fraction(cursor: Cursor) -> Reading | None:
    """½, 3½ miles."""
    m = _SHORT_FRACTION.match(cursor.text, cursor.at)
    if not m:
        return None
    name = tables.SYMBOLS[m[2]]
    spoken = f"{say.integer(m[1])} and {_behind_whole(name)}" if m[1] else name
    return _with_unit(cursor, spoken, m.end(), is_more_than_one=bool(m[1]))


def _with_unit(cursor: Cursor, spoken: str, end: int, is_more_than_one: bool) -> Reading:
    """A fraction with its unit: "two and a half miles", "three quarters of an inch"."""
    if cursor.text[end : end + 1] in ('"', "″"):
        unit, end = " inch", end + 1
    else:
        unit, end = unit_after(cursor, end, is_one=True)
    name = unit.strip()
    if not name or name.startswith(("percent", "degree")):
        return Reading(spoken + unit, end)
    if is_more_than_one:
        return Reading(f"{spoken} {plural_unit(name)}", end)
    article = "an" if name[0] in "aeio" or name.startswith("hour") else "a"
    return Reading(f"{spoken} of {article} {name}", end)


@form(r"(?:(100|1000|1,000)s(?=\s+of\b)|(\d{3}0|\d0)'?s(?!\w))")
def decade(cursor: Cursor, m: re.Match) -> str:
    """1990s, 80's, 1000s of."""
    if m[1]:
        return "hundreds" if m[1] == "100" else "thousands"
    return say.decade(int(m[2])) if int(m[2]) >= 10 else ""


@form(r"(\d{1,3}(?:,\d{3})+|\d+)\s?(?:st|nd|rd|th|ST|ND|RD|TH)(?!\w)")
def ordinal(cursor: Cursor, m: re.Match) -> str:
    """21st."""
    number = m[1].replace(",", "")
    return say.ordinal(int(number)) if len(number) <= say.MAX_DIGITS else ""


def scientific(cursor: Cursor) -> Reading | None:
    """6.02×10²³, 1e-9 m."""
    m = _SCIENTIFIC.match(cursor.text, cursor.at)
    if not m:
        return None
    power = "".join(tables.SUPERSCRIPTS.get(c, c) for c in m[2])
    minus = "minus " if power[0] == "-" else ""
    mantissa = "" if m[0].startswith(("10⁰", "10^")) else f"{say.decimal(m[1])} times "
    unit, end = unit_after(cursor, m.end(), is_one=False)
    return Reading(f"{mantissa}ten to the {minus}{say.integer(power.lstrip('+-'))}{unit}", end)


@form(r"(\d{1,4})h\s?(\d{1,2})m(?:in)?(?:\s?(\d{1,2})s)?(?!\w)")
def duration(cursor: Cursor, m: re.Match) -> str:
    """2h 30m."""
    spoken = f"{_counted(m[1], 'hour')} {_counted(m[2], 'minute')}"
    return spoken + (f" {_counted(m[3], 'second')}" if m[3] else "")


@form(r"(?:\d+[A-Za-z]|[A-Za-z]+\d)[A-Za-z\d]*")
def mixed(cursor: Cursor, m: re.Match) -> str:
    """2x4, 3D, 1080p, 5G; not 5km."""
    number = NUMBER.match(m[0])[0]
    rest = m[0][len(number) :]
    if rest == "x" and cursor.next(m.end())[:1].isalpha():
        return f"{say.decimal(number)} times"
    is_amount = rest in tables.UNITS or rest in _MAGNITUDES or _BY.fullmatch(rest)
    return "" if is_amount else letters_and_digits(cursor, m[0])


NUMBERS: tuple[Rule, ...] = (
    *(iso_date, date, time, hour, ratio, phone, short_phone, dotted_numbers, digit_groups, degrees, feet),
    *(fraction, short_fraction, decade, ordinal, scientific, duration, mixed, amount),
)


def number(cursor: Cursor) -> Reading:
    """Whatever begins with a digit, or with a point before one."""
    return first_reading(NUMBERS, cursor)


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= (29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31)


def _date(year: int, month: int, day: int) -> str:
    return f"{tables.MONTHS[month - 1]} {say.ordinal(day)}, {say.year(year)}" if _is_day(month, day) else ""


def _clock(hour: int, minute: int, is_exact: bool = False) -> str:
    if minute:
        return f"{say.cardinal(hour)} {say.two_digits(minute)}"
    if is_exact:
        return say.cardinal(hour)
    return f"{say.cardinal(hour)} o'clock" if 1 <= hour <= 12 else f"{say.cardinal(hour)} hundred"


def _behind_whole(fraction: str) -> str:
    """ "one half" -> "a half"."""
    return f"a {fraction[4:]}" if fraction in ("one half", "one quarter", "one third") else fraction


def _counted(number: str, unit: str) -> str:
    return f"{say.decimal(number)} {unit if number == '1' else plural_unit(unit)}"
