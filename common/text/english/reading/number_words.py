"""Numbers in English words, as an American reader says them."""

from __future__ import annotations

import re

_UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = (
    *("", " thousand", " million", " billion", " trillion", " quadrillion", " quintillion", " sextillion"),
)
_ORDINALS = {
    **{"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"},
    **{"nine": "ninth", "twelve": "twelfth"},
}
HUNDREDS = {"10": "tens", "100": "hundreds", "1000": "thousands", "1,000": "thousands"}
HUNDREDS |= {"10,000": "tens of thousands", "100,000": "hundreds of thousands"}
_FRACTIONS = {2: "half", 4: "quarter"}

MAX_DIGITS = 18  # longer numbers are read digit by digit, unless commas part them
_MAX_PARTED = 3 * len(_SCALES)


def _below_thousand(n: int) -> str:
    parts = []
    if n >= 100:
        parts.append(f"{_UNITS[n // 100]} hundred")
        n %= 100
    if n >= 20:
        parts.append(_TENS[n // 10] + (f"-{_UNITS[n % 10]}" if n % 10 else ""))
    elif n:
        parts.append(_UNITS[n])
    return " ".join(parts)


def cardinal(n: int) -> str:
    """1204 -> "one thousand two hundred four"."""
    if n < 0:
        return f"minus {cardinal(-n)}"
    if n == 0:
        return "zero"
    if n >= 10**_MAX_PARTED:
        return digits(str(n))
    groups = []
    for scale in _SCALES:
        n, group = divmod(n, 1000)
        if group:
            groups.append(_below_thousand(group) + scale)
        if not n:
            break
    return " ".join(reversed(groups))


def ordinal(n: int) -> str:
    """21 -> "twenty-first"."""
    head, last = _split_last(cardinal(n))
    return head + (last[:-1] + "ieth" if last.endswith("y") else _ORDINALS.get(last, last + "th"))


def year(n: int) -> str:
    """1984 -> "nineteen eighty-four", 2007 -> "two thousand seven", 1905 -> "nineteen oh five"."""
    if n < 1000 or n > 9999 or 2000 <= n % 10000 <= 2009 or n % 1000 < 10:
        return cardinal(n)
    century, rest = divmod(n, 100)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {two_digits(rest)}"


def two_digits(n: int) -> str:
    """The end of a year or a time: 5 -> "oh five", 45 -> "forty-five"."""
    return f"oh {cardinal(n)}" if n < 10 else cardinal(n)


def decade(n: int) -> str:
    """1990 -> "nineteen nineties", 80 -> "eighties", 1900 -> "nineteen hundreds"."""
    return plural(year(n))


def digits(text: str) -> str:
    """ "407" -> "four zero seven"; everything but digits is ignored."""
    return " ".join(_UNITS[int(c)] for c in text if c in "0123456789")


def short(number: str) -> str:
    """Digits inside a name: "150" -> "one fifty", "3090" -> "thirty ninety"."""
    if number[0] == "0" or len(number) > 4:
        return digits(number)
    if len(number) == 4 and number.endswith("00") and number[1] != "0":
        return f"{cardinal(int(number[:2]))} hundred"
    if len(number) < 3 or number.endswith("00"):
        return cardinal(int(number))
    return f"{cardinal(int(number[:-2]))} {two_digits(int(number[-2:]))}"


def integer(text: str) -> str:
    """ "1,204" -> its cardinal; digit by digit where it is too long or begins with a zero."""
    plain = text.replace(",", "")
    if len(plain) > (_MAX_PARTED if "," in text else MAX_DIGITS) or (len(plain) > 1 and plain[0] == "0"):
        return digits(plain)
    return cardinal(int(plain))


def group(digits_: str) -> str:
    """A part of a code: its cardinal, digit by digit where it is long."""
    return integer(digits_) if len(digits_) < 5 else digits(digits_)


def decimal(text: str) -> str:
    """ "3.14" -> "three point one four", ".5" -> "point five"."""
    whole, point, fraction = text.partition(".")
    if not point:
        return integer(whole)
    if not whole:
        return f"point {digits(fraction)}"
    return f"{integer(whole) if whole.strip('0,') else 'zero'} point {digits(fraction)}"


def fraction(numerator: int, denominator: int) -> str:
    """3, 4 -> "three quarters"; a large or odd denominator is said "over"."""
    is_odd = denominator < 2 or denominator > 10**6 or (denominator > 100 and denominator % 100)
    if is_odd or (denominator > 16 and numerator > denominator):
        return f"{cardinal(numerator)} over {cardinal(denominator)}"
    name = _FRACTIONS.get(denominator) or ordinal(denominator).removeprefix("one ")
    return f"{cardinal(numerator)} {name if numerator == 1 else plural(name)}"


def plural(words: str) -> str:
    """ "twenty" -> "twenties", "half" -> "halves", "six" -> "sixes"."""
    head, last = _split_last(words)
    if last == "half":
        last = "halve"
    elif last.endswith("y"):
        last = last[:-1] + "ie"
    elif last.endswith(("x", "s", "ch")):
        last += "e"
    return f"{head}{last}s"


def _split_last(words: str) -> tuple[str, str]:
    """ "one hundred twenty-one" -> ("one hundred twenty-", "one")."""
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    return words[:cut], words[cut:]


_ROMAN = re.compile(r"M*(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def roman(text: str) -> int | None:
    """ "XIV" -> 14, None for what is no well-formed numeral of 15 letters at most."""
    if not 0 < len(text) <= 15 or not _ROMAN.fullmatch(text):
        return None
    values = [_ROMAN_VALUES[letter] for letter in text]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))
