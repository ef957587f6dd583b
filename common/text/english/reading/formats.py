"""Numbers in fixed forms: dates, times, telephone numbers, fractions, versions, ordinals."""

from __future__ import annotations

import re

from common.text.english.reading import number_words as say
from common.text.english.reading import tables
from common.text.english.reading.characters import SUPERSCRIPTS
from common.text.english.reading.cursor import NUMBER, Cursor
from common.text.english.reading.units import plural_unit
from common.text.english.word_parts import words

_ISO_DATE = re.compile(
    r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})(?!\d|-\d)(?:[T ](\d{2}):(\d{2})(?::\d{2}(?:\.\d+)?)?(Z|UTC)?)?"
)
_DATE = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(?![\w/]|[.,-]\d)")
_TIME = re.compile(
    r"(\d{1,2}):(\d{2})(?::(\d{2}))?(?![\d:])(\.\d+)?(?:\s?([AaPp])(?:\.\s?[Mm]\.|[Mm](?!\w)))?"
)
_HOUR = re.compile(r"(\d{1,2})\s?([AaPp])(?:\.\s?[Mm]\.|[Mm](?!\w))")
_RATIO = re.compile(r"(\d+):(\d+)(?![\d:])")
PHONE = re.compile(
    r"(?:\+?(\d{1,3})[ .-])?(?:\((\d{3})\)\s?|(\d{3})[ .-])(\d{3})[ .-](\d{4})"
    r"(?:,?\s?(?:ext\.?|x)\s?(\d{1,6}))?(?![\w-]|\.\d)"
)
_SHORT_PHONE = re.compile(r"(\d{3})-(\d{4})(?![\w-]|,\d)")
_DOTTED_NUMBERS = re.compile(r"\d+(?:\.\d+){2,}(?!\w)")
_DIGIT_GROUPS = re.compile(r"\d+(?:-\d+){2,}(?!\w)|\d{4}(?: \d{4}){3}(?!\w)")
_FEET = re.compile(r"(\d{1,3})\s?['′]\s?(\d{1,2}(?:\.\d)?)\s?(?:\"|″|'')|(\d{1,3})′|(\d{1,3}(?:\.\d{1,3})?)″")
_DEGREES = re.compile(
    r"(\d{1,3})°\s?(\d{1,2})['′]\s?(?:(\d{1,2}(?:\.\d{1,4})?)(?:\"|″|'')\s?)?([NSEW])?(?!\w)"
)
_FRACTION = re.compile(r"(?:(\d{1,4})[ -])?(\d{1,4})/(\d{1,4})(?:rds?|ths?|nds?)?(?![\w/]|\.\d)")
SHORT_FRACTION = re.compile(r"(\d{1,6})?\s?([½¼¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒])")
_DECADE = re.compile(r"(?:(100|1000|1,000)s(?=\s+of\b)|(\d{3}0|\d0)'?s(?!\w))")
_ORDINAL = re.compile(r"(\d{1,3}(?:,\d{3})+|\d+)\s?(?:st|nd|rd|th|ST|ND|RD|TH)(?!\w)")
_SCIENTIFIC = re.compile(
    r"(\d+(?:\.\d+)?)(?:[eE]|\s?[×x]\s?10(?:\^|(?=[⁻⁺⁰-⁹¹²³])))([+-]?\d{1,4}|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})(?!\w)"
)
_DURATION = re.compile(r"(\d{1,4})h\s?(\d{1,2})m(?:in)?(?:\s?(\d{1,2})s)?(?!\w)")
_MIXED = re.compile(r"(?:\d+[A-Za-z]|[A-Za-z]+\d)[A-Za-z\d]*")
_MAGNITUDES = words("k K M B T bn mn tn mln bln")
_BY = re.compile(r"x\d+")
_DATED = words("on by until since before after")
_SCORES = {("24", "7"): "twenty-four seven", ("9", "11"): "nine eleven", ("7", "11"): "seven eleven"}


class Formats(Cursor):
    """Rules for whatever begins with a digit and has a form of its own."""

    def _number(self, start: int, currency: str = "", sign: str = "") -> int:
        """Anything that begins with a digit."""
        text = self.text
        if not currency:
            for pattern, rule in _NUMBER_RULES:
                match = pattern.match(text, start)
                if match and (spoken := rule(self, match)):
                    end = match.end()
                    if pattern is _SCIENTIFIC:
                        unit, end = self._unit(end, is_one=False)
                        spoken += unit
                    if pattern is _FRACTION or pattern is SHORT_FRACTION:
                        unit, end = self._fraction_unit(match, end)
                        spoken += unit
                    return self._emit(sign + spoken, end)
        return self._amount(start, currency, sign)

    def _iso_date(self, m: re.Match) -> str:
        spoken = _date(int(m[1]), int(m[3]), int(m[4]))
        if spoken and m[5]:
            spoken += f", {_clock(int(m[5]), int(m[6]))}" + (" UTC" if m[7] else "")
        return spoken

    def _date(self, m: re.Match) -> str:
        if len(m[4]) == 2 and m[2] != "/":
            return ""
        year = int(m[4]) if len(m[4]) == 4 else int(m[4]) + (2000 if int(m[4]) < 50 else 1900)
        first, second = int(m[1]), int(m[3])
        return _date(year, first, second) or _date(year, second, first)

    def _time(self, m: re.Match) -> str:
        hour, minute, second, point, half = int(m[1]), int(m[2]), m[3], m[4], m[5]
        if minute > 59 or (hour > 24 and half):
            return ""
        spoken = _clock(hour, minute, bool(half or second or point))
        spoken += f" {say.two_digits(int(second))}" if second else ""
        spoken += f" {say.decimal(point)}" if point else ""
        return spoken + self._half_day(m, half)

    def _hour(self, m: re.Match) -> str:
        return say.cardinal(int(m[1])) + self._half_day(m, m[2]) if int(m[1]) <= 24 else ""

    def _half_day(self, m: re.Match, letter: str | None) -> str:
        if not letter:
            return ""
        return f" {letter.upper()}M" + (self._last_stop(m.end()) if m[0].endswith(".") else "")

    def _ratio(self, m: re.Match) -> str:
        return f"{say.integer(m[1])} to {say.integer(m[2])}"

    def _phone(self, m: re.Match) -> str:
        groups = [group for group in (m[1], m[2] or m[3], m[4], m[5]) if group]
        spoken = ", ".join(say.digits(group) for group in groups)
        return f"{spoken}, extension {say.digits(m[6])}" if m[6] else spoken

    def _short_phone(self, m: re.Match) -> str:
        return f"{say.digits(m[1])}, {say.digits(m[2])}"

    def _dotted_numbers(self, m: re.Match) -> str:
        parts = m[0].split(".")
        if len(parts) > 2 and all(len(part) == 3 for part in parts[1:]) and 1 <= len(parts[0]) <= 3:
            return say.integer(m[0].replace(".", ""))  # a European million
        return (" dot " if len(parts) == 4 else " point ").join(say.integer(part) for part in parts)

    def _digit_groups(self, m: re.Match) -> str:
        return ", ".join(say.digits(group) for group in re.split("[- ]", m[0]))

    def _feet(self, m: re.Match) -> str:
        if m[1]:
            return f"{_counted(m[1], 'foot')} {_counted(m[2], 'inch')}"
        return _counted(m[3], "foot") if m[3] else _counted(m[4], "inch")

    def _degrees(self, m: re.Match) -> str:
        spoken = f"{_counted(m[1], 'degree')} {_counted(m[2], 'minute')}"
        spoken += f" {_counted(m[3], 'second')}" if m[3] else ""
        return spoken + {"N": " north", "S": " south", "E": " east", "W": " west"}.get(m[4] or "", "")

    def _fraction(self, m: re.Match) -> str:
        whole, top, bottom = m[1], int(m[2]), int(m[3])
        if whole is None:
            if (m[2], m[3]) in _SCORES:
                return _SCORES[m[2], m[3]]
            if self.previous.lower() in _DATED and _is_day(top, bottom):
                return f"{tables.MONTHS[top - 1]} {say.ordinal(bottom)}"
            if top + bottom == 100:
                return f"{say.cardinal(top)} {say.cardinal(bottom)}"
            return say.fraction(top, bottom)
        if top >= bottom:
            return ""
        return f"{say.integer(whole)} and {_behind_whole(say.fraction(top, bottom))}"

    def _short_fraction(self, m: re.Match) -> str:
        name = tables.SYMBOLS[m[2]]
        return f"{say.integer(m[1])} and {_behind_whole(name)}" if m[1] else name

    def _fraction_unit(self, m: re.Match, end: int) -> tuple[str, int]:
        """The unit behind a fraction: "two and a half miles", "three quarters of an inch"."""
        if self.text[end : end + 1] in ('"', "″"):
            name, end = "inch", end + 1
        else:
            name, end = self._unit(end, is_one=True)
        if not name or name.startswith((" percent", " degree")):
            return name, end
        if m[1] or (m.re is _FRACTION and int(m[2]) > int(m[3])):
            return f" {plural_unit(name.strip())}", end
        article = "an" if name.strip()[0] in "aeio" or name.strip().startswith("hour") else "a"
        return f" of {article} {name.strip()}", end

    def _decade(self, m: re.Match) -> str:
        if m[1]:
            return "hundreds" if m[1] == "100" else "thousands"
        return say.decade(int(m[2])) if int(m[2]) >= 10 else ""

    def _ordinal(self, m: re.Match) -> str:
        number = m[1].replace(",", "")
        return say.ordinal(int(number)) if len(number) <= say.MAX_DIGITS else ""

    def _scientific(self, m: re.Match) -> str:
        power = "".join(SUPERSCRIPTS.get(c, c) for c in m[2])
        minus = "minus " if power[0] == "-" else ""
        mantissa = "" if m[0].startswith(("10⁰", "10^")) else f"{say.decimal(m[1])} times "
        return f"{mantissa}ten to the {minus}{say.integer(power.lstrip('+-'))}"

    def _duration(self, m: re.Match) -> str:
        spoken = f"{_counted(m[1], 'hour')} {_counted(m[2], 'minute')}"
        return spoken + (f" {_counted(m[3], 'second')}" if m[3] else "")

    def _mixed(self, m: re.Match) -> str:
        """2x4, 3D, 1080p, 5G; not 5km."""
        number = NUMBER.match(m[0])[0]
        rest = m[0][len(number) :]
        if rest == "x" and self._next(m.end())[:1].isalpha():
            return f"{say.decimal(number)} times"
        is_amount = rest in tables.UNITS or rest in _MAGNITUDES or _BY.fullmatch(rest)
        return "" if is_amount else self._letters_and_digits(m[0])


_NUMBER_RULES = (
    (_ISO_DATE, Formats._iso_date),
    (_DATE, Formats._date),
    (_TIME, Formats._time),
    (_HOUR, Formats._hour),
    (_RATIO, Formats._ratio),
    (PHONE, Formats._phone),
    (_SHORT_PHONE, Formats._short_phone),
    (_DOTTED_NUMBERS, Formats._dotted_numbers),
    (_DIGIT_GROUPS, Formats._digit_groups),
    (_DEGREES, Formats._degrees),
    (_FEET, Formats._feet),
    (_FRACTION, Formats._fraction),
    (SHORT_FRACTION, Formats._short_fraction),
    (_DECADE, Formats._decade),
    (_ORDINAL, Formats._ordinal),
    (_SCIENTIFIC, Formats._scientific),
    (_DURATION, Formats._duration),
    (_MIXED, Formats._mixed),
)


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
