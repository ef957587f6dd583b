"""Numbers that count something: ranges, money, percentages, units, years."""

from __future__ import annotations

import re

from common.text.english.reading import number_words as say
from common.text.english.reading import tables
from common.text.english.reading.cursor import NUMBER, Cursor, N, Reading
from common.text.english.word_parts import words

_RANGE = re.compile(rf"(?:-|\s?[–—]\s?)([$£€¥₹]?)({N})(?![-\d])")
_SPACED_RANGE = re.compile(rf"\s-\s()({N})(?![-\d])")
_TIED_NUMBER = re.compile(r"[/:]\d")
_BY = re.compile(rf"(?:\s?x\s?|×)({N})")
_MAGNITUDE = re.compile(
    r"\s?-?(hundred|thousand|million|billion|trillion|quadrillion|bn|mn|tn|mln|bln)(?!\w)|([kKMBT])(?!\w)"
)
_MAGNITUDES = {
    **{"bn": "billion", "mn": "million", "tn": "trillion", "mln": "million", "bln": "billion"},
    **{"k": "thousand", "K": "thousand", "M": "million", "B": "billion", "T": "trillion"},
}
_MONEY_AFTER = re.compile(r"\s?(€|£|¢|¥|₹|₩|₽|₺|₿|USD|EUR|GBP|JPY|INR|CHF|BTC)(?!\w)")
_UNIT = re.compile(r"(\s?|-)(?:(sq|cu)\.?\s)?([A-Za-zµμΩΩ]{1,5})(\^?[23²³])?(?![\w²³^])")
_PER = re.compile(r"\s?/\s?([A-Za-z]{1,12})(\^?[23²³])?(?![\w/])")
_PERCENT = re.compile(r"\s?([%‰])")
_DEGREE_SIGN = re.compile(r"\s?(?:°\s?([CFK])?|([℃℉]))(?!\w)")
_TURNS = words("angle angles turn turns rotation view heat bend panorama arc swing")
_SIZES = words("tall wide long deep high thick x by")
_SCALES = {"C": " Celsius", "F": " Fahrenheit", "K": " Kelvin", "": ""}
# Before a number of four digits: it is a year, whatever follows ...
_BEFORE_YEAR = words("""in since by until till year years during circa summer winter spring fall autumn early
    late mid class ad a.d ce january february march april may june july august september october november
    december born died established est founded model copyright ©""")
# ... and before these it is a count, unless a word above stands before it.
_COUNTED = words(
    "people men women children feet percent degrees police sheep fish pounds dollars or more per"
)
_NO_YEAR = words("# no nos number")
_ROOMS = words("""room flight suite apartment apt highway route channel area unit bus interstate boeing airbus
    building gate""")
_EMERGENCY = words("911 999 112 411 101 988")
_DIALLED = words("call dial called dialed calls dialled text phone ring rang")


def amount(cursor: Cursor, currency: str = "") -> Reading:
    """A number or a range, with what it counts: magnitude, money, per cent, degrees, a unit.

    `currency`: a sign or code of the tables that stands before, or a sign with a country ("US$").
    """
    text = cursor.text
    numbers, joint, end = _numbers(cursor, currency)
    is_one = numbers == ["1"]
    after, end = _magnitude(cursor, numbers, end, currency)
    if not currency and (money := _MONEY_AFTER.match(text, end)):
        currency, end = tables.CURRENCY_CODES.get(money[1], money[1]), money.end()
    if currency:
        return _money(cursor, numbers, joint, after, currency, end)
    unit, end = unit_after(cursor, end, is_one and not after)
    if unit and not joint and cursor.previous.lower() in ("a", "an"):
        unit = f" {_singular_unit(unit.strip())}"  # "a 10 km run"
    is_counted = bool(unit or after or joint in ("by", "times"))
    spoken = [_plain_number(cursor, number, end, is_counted) for number in numbers]
    if joint == "to" and not unit and not after:
        spoken[1] = _end_of_years(numbers, spoken[1])
    said = f" {joint} ".join(spoken)
    if not (unit or after or joint):
        said, end = _day_or_plus(cursor, numbers[0], said, end)
    own = cursor.possessive(end)
    return Reading(f"{said}{after}{unit}{own}", end + len(own))


def _numbers(cursor: Cursor, currency: str) -> tuple[list[str], str, int]:
    """One number; two with "to"; some with "by"; and where they end."""
    text = cursor.text
    first = NUMBER.match(text, cursor.at)
    numbers, joint, end = [first[0]], "", first.end()
    ranged = _RANGE.match(text, end)
    if not ranged and "=" not in text[end : end + 40]:
        ranged = _SPACED_RANGE.match(text, end)
    is_code = ranged and len(ranged[2]) > 2 and ranged[2][0] == "0" and ranged[2][1] != "."  # "2024-0098"
    goes_on = ranged and _TIED_NUMBER.match(text, ranged.end())  # "1-2/3"
    if ranged and ranged[1] in ("", currency) and not is_code and not goes_on:
        return [first[0], ranged[2]], "to", ranged.end()
    while len(numbers) < 5 and (by := _BY.match(text, end)):
        numbers.append(by[1])
        joint, end = "times" if cursor.is_equation else "by", by.end()
    return numbers, joint, end


def _magnitude(cursor: Cursor, numbers: list[str], end: int, currency: str) -> tuple[str, int]:
    match = _MAGNITUDE.match(cursor.text, end)
    if not match:
        return "", end
    if match[2] and not currency:  # "10K run", "221B Baker Street"
        is_name = len(numbers[-1]) > 2 and cursor.next(match.end())[:1].isupper()
        if match[2] in "kK" or is_name:
            return "", end
    word = match[1] or match[2]
    return f" {_MAGNITUDES.get(word, word)}", match.end()


def _money(
    cursor: Cursor, numbers: list[str], joint: str, magnitude: str, currency: str, end: int
) -> Reading:
    sign_or_code = currency if currency in tables.CURRENCIES else currency[-1]
    one, many, cent, cents = tables.CURRENCIES[sign_or_code]
    if country := tables.DOLLARS.get(currency[:-1]):
        one, many = f"{country} {one}", f"{country} {many}"
    per = ""
    if match := _PER.match(cursor.text, end):
        per, end = f" per {tables.UNITS.get(match[1], match[1])}", match.end()
    whole, _, part = numbers[-1].partition(".")
    if len(part) == 2 and len(numbers) == 1 and not magnitude and cents:
        said = f"{say.integer(whole or '0')} {one if whole == '1' else many}"
        if part != "00":
            small = f"{say.cardinal(int(part))} {cent if part == '01' else cents}"
            said = f"{said} and {small}" if whole.strip("0") else small
    else:
        said = f" {joint} ".join(say.decimal(number.replace(",", "")) for number in numbers)
        is_one = numbers == ["1"] and not magnitude
        is_one = is_one or cursor.previous.lower() in ("a", "an")  # "a $5 bill"
        said = f"{said}{magnitude} {one if is_one else many}"
    return Reading(said + per, end)


def unit_after(cursor: Cursor, end: int, is_one: bool) -> tuple[str, int]:
    """The unit behind a number that ends at `end`: " miles" or "", and where it ends."""
    text = cursor.text
    if match := _PERCENT.match(text, end):
        return f" {tables.SYMBOLS[match[1]]}", match.end()
    if match := _DEGREE_SIGN.match(text, end):
        scale = match[1] or {"℃": "C", "℉": "F"}.get(match[2] or "", "")
        is_one = is_one or (not scale and cursor.next(match.end()) in _TURNS)  # "a 90° angle"
        return (" degree" if is_one else " degrees") + _SCALES[scale], match.end()
    match = _UNIT.match(text, end)
    if not match or match[3] not in tables.UNITS:
        return "", end
    gap, square, symbol, power = match.groups()
    is_inch = symbol == "in" and (text.startswith(".", match.end()) or cursor.next(match.end()) in _SIZES)
    if symbol in tables.TOUCHING_UNITS and gap and not (square or is_inch):
        return "", end
    if len(symbol) == 1 and symbol.isupper() and (gap == "-" or (symbol == "K" and not gap)):
        return "", end
    end = _past_stop(cursor, match.end())
    name = tables.UNITS[symbol]
    name = name if is_one or gap == "-" else plural_unit(name)
    if square or power:
        name = f"{'square' if (square or power[-1]) in ('sq', '2', '²') else 'cubic'} {name}"
    per, end = _per(cursor, end)
    return ("-" if gap == "-" else " ") + name + per, end


def _past_stop(cursor: Cursor, end: int) -> int:
    """Past the full stop of "5 lbs. 3 oz.", unless it ends the sentence."""
    if not cursor.text.startswith(".", end):
        return end
    following = cursor.next(end + 1)
    goes_on = following[:1].islower() or following[:1].isdecimal() or following in (",", ")")
    return end + 1 if goes_on else end


def _per(cursor: Cursor, end: int) -> tuple[str, int]:
    """ "/s²" -> " per second squared"."""
    match = _PER.match(cursor.text, end)
    if not match or (match[1] not in tables.UNITS and len(match[1]) < 3):
        return "", end
    below, power = tables.UNITS.get(match[1], match[1]), match[2] or ""
    is_square = power.endswith(("2", "²"))
    if is_square and below == "second":
        return " per second squared", match.end()
    kind = "square " if is_square else "cubic " if power else ""
    return f" per {kind}{below}", match.end()


def _plain_number(cursor: Cursor, number: str, end: int, is_counted: bool) -> str:
    """A cardinal, a decimal, a year, or digits read in pairs or one by one."""
    previous = cursor.previous.lower()
    if "." in number:
        if previous in ("version", "python", "release"):
            return " point ".join(say.integer(part) for part in number.split("."))
        return say.decimal(number)
    if len(number) == 4 and not is_counted and _is_year(cursor, int(number), previous, end):
        return say.year(int(number))
    if len(number) in (3, 4) and previous in _ROOMS and number[-2:] != "00" and number[0] != "0":
        return f"{say.cardinal(int(number[:-2]))} {say.two_digits(int(number[-2:]))}"
    if number in _EMERGENCY and previous in _DIALLED:
        return say.digits(number)
    if len(number) == 5 and (cursor.previous in tables.STATES or cursor.previous == "DC"):  # a ZIP code
        return say.digits(number)
    return say.integer(number)


def _is_year(cursor: Cursor, value: int, previous: str, end: int) -> bool:
    if previous in _NO_YEAR:
        return False
    following = cursor.next(end)
    if following in ("AD", "BC", "BCE", "CE") or cursor.text[end : end + 5] in (" B.C.", " A.D."):
        return value > 999
    before = previous.rstrip(".")
    is_dated = before in _BEFORE_YEAR or before in tables.MONTH_NUMBERS
    if not 1100 <= value <= 2099:
        return is_dated and 1000 < value < 2200
    following = following.lower()
    is_plural = len(following) > 3 and following[-1] == "s" and not following.endswith(("ss", "us", "is"))
    return is_dated or not (is_plural or following in _COUNTED)


def _end_of_years(numbers: list[str], spoken: str) -> str:
    """The second part of 1914-18 and 2003-04."""
    first, second = numbers
    if len(first) == 4 and len(second) == 2 and second.isdecimal() and first[2:] < second:
        return say.two_digits(int(second))
    return spoken


def _day_or_plus(cursor: Cursor, number: str, said: str, end: int) -> tuple[str, int]:
    """A number alone, its words `said`: an ordinal beside a month ("May 5"), or with "plus" ("50+")."""
    text = cursor.text
    if number.isdecimal() and 1 <= int(number[:3]) <= 31:
        previous = cursor.previous.rstrip(".")
        if previous[:1].isupper() and previous.lower() in tables.MONTH_NUMBERS:
            return say.ordinal(int(number)), end
        following = cursor.next(end)
        if following[:1].isupper() and following.lower() in tables.MONTH_NUMBERS and text[end] == " ":
            article = "" if cursor.previous.lower() == "the" else "the "
            return f"{article}{say.ordinal(int(number))} of", end
    if text.startswith("+", end) and not text[end + 1 : end + 2].isalnum():
        following = cursor.next(end + 1)
        if not following[:1].isdecimal() and following not in ("=", "+", "("):
            return f"{said} plus", end + 1
    return said, end


def plural_unit(name: str) -> str:
    """ "mile per hour" -> "miles per hour", "square foot" -> "square feet" (without what follows)."""
    head, *tail = name.split(" ")
    if head in ("cubic", "square"):
        return f"{head} {tables.PLURALS.get(tail[0], tail[0] + 's')}"
    return " ".join([tables.PLURALS.get(head, head + "s"), *tail])


def _singular_unit(name: str) -> str:
    """ "miles per hour" -> "mile per hour"."""
    for unit in (*tables.UNITS.values(), "degree"):
        plural = plural_unit(unit)
        if name.startswith(plural):
            return unit + name[len(plural) :]
    return name
