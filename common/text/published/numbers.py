"""Numbers in words, as the published cleaners say them.

The order of the rules and their oddities are the published ones ("$3.2 billion" is "three dollars, two cents
billion" in Tacotron 2): the checkpoints were trained on what they make. Where the published code fails
(numbers beyond the names that inflect has, "$,5"), these functions still speak.
"""

import re
from functools import lru_cache
from typing import Any

from melforge.common.errors import require_package

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_MAX_DIGITS = 36  # inflect names numbers up to 999 decillion


@lru_cache(maxsize=1)
def _inflect() -> Any:
    inflect = require_package("inflect", "a published model's reading of numbers")
    return inflect.engine()


@lru_cache(maxsize=1024)
def _words(number: int | str, **options: Any) -> str:
    """A number in words by inflect; digit by digit where it has no name."""
    digits = re.sub(r"[^0-9].*", "", str(number), flags=re.DOTALL)
    if len(digits) > _MAX_DIGITS:
        return " ".join(_DIGITS[int(digit)] for digit in digits)
    return _inflect().number_to_words(number, **options)


def _year(number: int) -> str:
    """1001 to 2999 as years are read: ten oh one, nineteen hundred, two thousand five, twenty ten."""
    if number == 2000:
        return "two thousand"
    if 2000 < number < 2010:
        return "two thousand " + _words(number % 100)
    if number % 100 == 0:
        return _words(number // 100) + " hundred"
    return _words(number, andword="", zero="oh", group=2).replace(", ", " ")


_COMMAS = re.compile(r"(?<=[0-9]),+(?=[0-9])")
_DECIMAL = re.compile(r"(?<![0-9])([0-9]++)\.([0-9]++)")
_ORDINAL = re.compile(r"(?<![0-9])[0-9]++(?:st|nd|rd|th)")
_NUMBER = re.compile(r"[0-9]+")


def _split_money(quantity: str) -> tuple[str, str] | None:
    """Whole units and cents without leading zeros, each "" for none; None for more than one point."""
    whole, _, cents = quantity.replace(",", "").partition(".")
    return None if "." in cents else (whole.lstrip("0"), cents.lstrip("0"))


# Tacotron 2 and FastSpeech

_DOLLARS = re.compile(r"\$([0-9.,]*[0-9])")


def basic_numbers(text: str) -> str:
    """Every number of a text in words: Tacotron 2 and FastSpeech."""
    text = _COMMAS.sub("", text)
    text = _DOLLARS.sub(_dollars, text)
    text = _DECIMAL.sub(r"\1 point \2", text)
    text = _ORDINAL.sub(lambda match: _words(match[0]), text)
    return _NUMBER.sub(_basic_number, text)


def _dollars(match: re.Match) -> str:
    money = _split_money(match[1])
    if money is None:
        return match[1] + " dollars"
    dollars, cents = money
    spoken_dollars = f"{dollars} dollar" + "s" * (dollars != "1")
    spoken_cents = f"{cents} cent" + "s" * (cents != "1")
    if dollars and cents:
        return f"{spoken_dollars}, {spoken_cents}"
    if dollars:
        return spoken_dollars
    return spoken_cents if cents else "zero dollars"


def _basic_number(match: re.Match) -> str:
    if len(match[0]) > _MAX_DIGITS:
        return _words(match[0])
    number = int(match[0])
    return _year(number) if 1000 < number < 3000 else _words(number, andword="")


# FastPitch

_CURRENCIES = {"$": "dollar", "£": "pound", "€": "euro", "₩": "won"}
_MAGNITUDES = {"m": "million", "b": "billion", "t": "trillion"}
_MONEY = re.compile(
    r"""
    (?P<currency>[$£€₩])
    (?P<quantity>[0-9.,]*[0-9])
    (?:[ ]?(?P<magnitude>trillion|billion|million|thousand|hundred|[mbt])(?![a-z]))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Only numerals that end in IX, IV, II or III, which spares I, V and CD.
_ROMAN = re.compile(r"\bM{0,4}(?:C[MD]|D?C{0,3})(?:X[CL]|L?X{0,3})(?:I[XV]|V?III?)\b")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_TIMES = re.compile(r"\b([0-9]+)x([0-9]+)")
_COUNT = re.compile(r"(?P<digits>[0-9]+)(?P<plural>'?s)?")


def currencies(text: str) -> str:
    """Amounts of money in words: $5.20, £3 million, €1,000."""
    return _MONEY.sub(_money, text)


def mask_currencies(text: str) -> str:
    """The text with spaces in place of what `currencies` puts into words."""
    return _MONEY.sub(lambda match: " " * len(match[0]), text)


def numbers(text: str) -> str:
    """Every number of a text in words: FastPitch."""
    text = _COMMAS.sub("", text)
    text = currencies(text)
    text = _DECIMAL.sub(r"\1 point \2", text)
    text = _ORDINAL.sub(lambda match: _words(match[0]), text)
    text = _ROMAN.sub(_roman, text)
    text = _TIMES.sub(r"\1 by \2", text)
    return _COUNT.sub(_count, text)


def _money(match: re.Match) -> str:
    currency = _CURRENCIES[match["currency"]]
    quantity = match["quantity"].replace(",", "")
    money = _split_money(quantity)
    if match["magnitude"]:
        magnitude = match["magnitude"]
        if len(magnitude) == 1:
            magnitude = _MAGNITUDES[magnitude.lower()]
        return f"{_hundreds(quantity) if money else quantity} {magnitude} {currency}s"
    if money is None:
        return f"{quantity} {currency}s"
    whole, cents = money
    spoken_whole = _hundreds(whole) + f" {currency}" + "s" * (whole != "1") if whole else ""
    spoken_cents = _words(cents) + " cent" + "s" * (cents != "1") if cents else ""
    if whole and cents:
        return f"{spoken_whole}, {spoken_cents}"
    return spoken_whole or spoken_cents or f"zero {currency}s"


def _hundreds(quantity: str) -> str:
    """1200 is twelve hundred; other quantities as inflect has them."""
    number = float(quantity)
    if 1000 < number < 10000 and number % 100 == 0 and number % 1000 != 0:
        return _words(int(number / 100)) + " hundred"
    return _words(quantity)


def _roman(match: re.Match) -> str:
    values = [_ROMAN_VALUES[letter] for letter in match[0]]
    following = [*values[1:], 0]
    return str(sum(-v if v < after else v for v, after in zip(values, following, strict=True)))


def _count(match: re.Match) -> str:
    digits, plural = match["digits"], match["plural"]
    number = int(digits) if len(digits) <= _MAX_DIGITS else 0
    if number > 1000 and number % 100 == 0 and number % 1000 != 0:  # not only years: 123400 too
        text = _words(number // 100) + " hundred"
    elif 1000 < number < 3000:
        text = _year(number).replace("-", " ")
    else:
        text = _words(number if len(digits) <= _MAX_DIGITS else digits, andword="and")
        text = text.replace("-", " ").replace(",", "")
    if not plural:
        return text
    return text[:-1] + "ies" if text.endswith("y") else text + plural


# FastPitch, second version: times, units, and letters next to digits

_CLOCK = re.compile(
    r"(?P<hour>2[0-3]|[01]?[0-9]):?(?P<minute>[0-5][0-9])?\s*(?P<half>[ap])m\b", re.IGNORECASE
)
_UNITS = {
    **{"tb": "terabyte", "gb": "gigabyte", "mb": "megabyte", "kb": "kilobyte"},
    **{"ghz": "gigahertz", "mhz": "megahertz", "khz": "kilohertz", "hz": "hertz", "mm": "millimeter"},
}
_QUANTITY = re.compile(rf"(?<![0-9])([0-9]++(?:[.,][0-9]++)?)\s?({'|'.join(_UNITS)})", re.IGNORECASE)
_LENGTH = r"[0-9]+(?:[,.][0-9]+)?"
_DIMENSIONS = re.compile(rf"\b{_LENGTH}(?:\s*[xX]\s*{_LENGTH}){{1,2}}(?P<unit>inch|in|m)?\b")
_DIMENSION_UNITS = {"m": " meter", "in": " inch"}
_MIXED = re.compile(r"(?:[a-zA-Z]+[0-9]|[0-9]+[a-zA-Z])[a-zA-Z0-9']*")


def clock_times(text: str) -> str:
    """7:30am becomes 7 30 a.m."""
    return _CLOCK.sub(_clock_time, text)


def letters_and_digits(text: str) -> str:
    """Units and sizes in words, then letters apart from digits: 80GB, 5x6m, RTX4090."""
    text = _QUANTITY.sub(_quantity, text)
    text = _DIMENSIONS.sub(_dimensions, text)
    return _MIXED.sub(lambda match: " ".join(_apart(match[0])), text)


def _clock_time(match: re.Match) -> str:
    minute = match["minute"]
    shown = f" {minute}" if minute and minute != "00" else ""
    return f"{match['hour']}{shown} {match['half'].lower()}.m."


def _quantity(match: re.Match) -> str:
    quantity, unit = match[1], _UNITS[match[2].lower()]
    plural = not unit.endswith("z") and float(quantity.replace(",", "")) > 1
    return f"{quantity} {unit}" + "s" * plural


def _dimensions(match: re.Match) -> str:
    text = match[0].replace(" x ", " by ").replace("x", " by ")  # a capital X stays
    unit = match["unit"]
    return text.removesuffix(unit) + _DIMENSION_UNITS[unit] if unit in _DIMENSION_UNITS else text


def _apart(text: str) -> list[str]:
    """A mixed word as letters and numbers, numbers in pairs of digits; "20th" and "1920s" stay whole."""
    parts = re.split(r"([0-9]+)", text)
    if not parts[-1]:
        del parts[-1]  # a word that also begins with a digit keeps its empty first part, and so a blank
    elif not parts[0]:
        del parts[0]
    if parts[-1] in ("'s", "s", "th", "nd", "st", "rd") and parts[-2].isdigit():
        parts[-2:] = [parts[-2] + parts[-1]]
    return [piece for part in parts for piece in _pairs(part)]


def _pairs(part: str) -> list[str]:
    """4090 as 40 90, 105 as 1 0 5, 500 and 12345 whole."""
    size = len(part)
    if not part.isdigit() or size < 3 or size > 4:
        return [part]
    if part[-2] == "0":
        return [part] if part[-1] == "0" else [part[:-2], "0", part[-1]]
    return [part[:-2], part[-2:]]
