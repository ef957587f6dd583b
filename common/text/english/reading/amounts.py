"""Numbers that count something: ranges, money, percentages, units, years."""

from __future__ import annotations

import re

from common.text.english.reading import number_words as say
from common.text.english.reading import tables
from common.text.english.reading.cursor import NUMBER, Cursor, N
from common.text.english.reading.units import plural_unit, singular, singular_unit
from common.text.english.word_parts import words

_RANGE = re.compile(rf"(?:-|\s?[–—]\s?)([$£€¥₹]?)({N})(?![-\d])")
_SPACED_RANGE = re.compile(rf"\s-\s()({N})(?![-\d])")
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
_BEFORE_YEAR = words(
    """in since by until till year years during circa summer winter spring fall autumn early late mid
    class ad a.d ce january february march april may june july august september october november
    december born died established est founded model copyright ©"""
)
# ... but not before these, if the year is not to be doubted.
_COUNTED = words(
    "people men women children feet percent degrees police sheep fish pounds dollars or more per"
)
_NO_YEAR = words("# no nos number")
_ROOMS = words(
    """room flight suite apartment apt highway route channel area unit bus interstate boeing airbus
    building gate"""
)
_EMERGENCY = words("911 999 112 411 101 988")
_DIALLED = words("call dial called dialed calls dialled text phone ring rang")


class Amounts(Cursor):
    """Rules for a number and what stands around it."""

    def _amount(self, start: int, currency: str = "", sign: str = "") -> int:
        """A number or a range, with what it counts: magnitude, money, per cent, degrees, a unit."""
        text = self.text
        numbers, joint, end = self._numbers(start, currency)
        is_one = numbers == ["1"]
        after, end = self._magnitude(numbers, end, currency)
        if not currency and (money := _MONEY_AFTER.match(text, end)):
            currency, end = tables.CURRENCY_CODES.get(money[1], money[1]), money.end()
        if currency:
            return self._money(numbers, joint, after, currency, end, sign)
        unit, end = self._unit(end, is_one and not after)
        if unit and not joint and self.previous.lower() in ("a", "an"):
            unit = f" {singular_unit(unit.strip())}"  # "a 10 km run"
        spoken = [
            self._plain_number(n, end, bool(unit or after or joint in ("by", "times"))) for n in numbers
        ]
        if joint == "to" and not unit and not after:
            spoken[1] = self._end_of_years(numbers, spoken[1])
        said = f" {joint} ".join(spoken)
        if not (unit or after or joint):
            said, end = self._dressed(numbers[0], said, end)
        said = f"{sign}{said}{after}{unit}"
        own = self._possessive(end)
        return self._emit(said + own, end + len(own))

    def _numbers(self, start: int, currency: str) -> tuple[list[str], str, int]:
        """One number; two with "to"; some with "by"; and where they end."""
        text = self.text
        first = NUMBER.match(text, start)
        numbers, joint, end = [first[0]], "", first.end()
        ranged = _RANGE.match(text, end)
        if not ranged and "=" not in text[end : end + 40]:
            ranged = _SPACED_RANGE.match(text, end)
        is_code = ranged and len(ranged[2]) > 2 and ranged[2][0] == "0" and ranged[2][1] != "."  # "2024-0098"
        if ranged and ranged[1] in ("", currency) and not is_code and not self._goes_on(ranged.end()):
            return [first[0], ranged[2]], "to", ranged.end()
        while len(numbers) < 5 and (by := _BY.match(text, end)):
            numbers.append(by[1])
            joint, end = "times" if self.is_sum else "by", by.end()
        return numbers, joint, end

    def _goes_on(self, end: int) -> bool:
        """Whether another number is tied on, so that there is no range ("1-2/3")."""
        follows = self.text[end : end + 2]
        return follows[:1] in "/:" and follows[1:2].isdecimal()

    def _magnitude(self, numbers: list[str], end: int, currency: str) -> tuple[str, int]:
        match = _MAGNITUDE.match(self.text, end)
        if not match:
            return "", end
        if match[2] and not currency:  # "10K run", "221B Baker Street"
            is_name = len(numbers[-1]) > 2 and self._next(match.end())[:1].isupper()
            if match[2] in "kK" or is_name:
                return "", end
        word = match[1] or match[2]
        return f" {_MAGNITUDES.get(word, word)}", match.end()

    def _money(self, numbers: list[str], joint: str, after: str, currency: str, end: int, sign: str) -> int:
        """`currency`: a sign or code of the tables, or a sign with a country before it ("US$")."""
        sign_or_code = currency if currency in tables.CURRENCIES else currency[-1]
        one, many, cent, cents = tables.CURRENCIES[sign_or_code]
        if country := tables.DOLLARS.get(currency[:-1]):
            one, many = f"{country} {one}", f"{country} {many}"
        per = ""
        if match := _PER.match(self.text, end):
            per, end = f" per {singular(match[1])}", match.end()
        whole, _, part = numbers[-1].partition(".")
        if len(part) == 2 and len(numbers) == 1 and not after and cents:
            said = f"{say.integer(whole or '0')} {one if whole == '1' else many}"
            if part != "00":
                small = f"{say.cardinal(int(part))} {cent if part == '01' else cents}"
                said = f"{said} and {small}" if whole.strip("0") else small
        else:
            said = f" {joint} ".join(say.decimal(number.replace(",", "")) for number in numbers)
            is_one = numbers == ["1"] and not after
            is_one = is_one or self.previous.lower() in ("a", "an")  # "a $5 bill"
            said = f"{said}{after} {one if is_one else many}"
        return self._emit(sign + said + per, end)

    def _unit(self, end: int, is_one: bool) -> tuple[str, int]:
        """What a number counts, with the blank before it, and where that ends."""
        text = self.text
        if match := _PERCENT.match(text, end):
            return f" {tables.SYMBOLS[match[1]]}", match.end()
        if match := _DEGREE_SIGN.match(text, end):
            scale = match[1] or {"℃": "C", "℉": "F"}.get(match[2] or "", "")
            is_one = is_one or (not scale and self._next(match.end()) in _TURNS)  # "a 90° angle"
            return (" degree" if is_one else " degrees") + _SCALES[scale], match.end()
        match = _UNIT.match(text, end)
        if not match or match[3] not in tables.UNITS:
            return "", end
        gap, square, symbol, power = match.groups()
        is_inch = symbol == "in" and (text.startswith(".", match.end()) or self._next(match.end()) in _SIZES)
        if symbol in tables.TOUCHING_UNITS and gap and not (square or is_inch):
            return "", end
        if len(symbol) == 1 and symbol.isupper() and (gap == "-" or (symbol == "K" and not gap)):
            return "", end
        end = self._past_stop(match.end())
        name = tables.UNITS[symbol]
        name = name if is_one or gap == "-" else plural_unit(name)
        if square or power:
            name = f"{'square' if (square or power[-1]) in ('sq', '2', '²') else 'cubic'} {name}"
        per, end = self._per(end)
        return ("-" if gap == "-" else " ") + name + per, end

    def _past_stop(self, end: int) -> int:
        """Past the full stop of "5 lbs. 3 oz.", unless it ends the sentence."""
        if not self.text.startswith(".", end):
            return end
        following = self._next(end + 1)
        return (
            end + 1
            if following[:1].islower() or following[:1].isdecimal() or following in (",", ")")
            else end
        )

    def _per(self, end: int) -> tuple[str, int]:
        """ "/s²" -> " per second squared"."""
        match = _PER.match(self.text, end)
        if not match or (match[1] not in tables.UNITS and len(match[1]) < 3):
            return "", end
        below, power = singular(match[1]), match[2] or ""
        is_square = power.endswith(("2", "²"))
        if is_square and below == "second":
            return " per second squared", match.end()
        kind = "square " if is_square else "cubic " if power else ""
        return f" per {kind}{below}", match.end()

    def _plain_number(self, number: str, end: int, is_counted: bool) -> str:
        """A cardinal, a decimal, a year, or digits read in pairs or one by one."""
        previous = self.previous.lower()
        if "." in number:
            if previous in ("version", "python", "release"):
                return " point ".join(say.integer(part) for part in number.split("."))
            return say.decimal(number)
        if len(number) == 4 and not is_counted and self._is_year(int(number), previous, end):
            return say.year(int(number))
        if len(number) in (3, 4) and previous in _ROOMS and number[-2:] != "00" and number[0] != "0":
            return f"{say.cardinal(int(number[:-2]))} {say.two_digits(int(number[-2:]))}"
        if number in _EMERGENCY and previous in _DIALLED:
            return say.digits(number)
        if len(number) == 5 and (self.previous in tables.STATES or self.previous == "DC"):  # a ZIP code
            return say.digits(number)
        return say.integer(number)

    def _is_year(self, value: int, previous: str, end: int) -> bool:
        if previous in _NO_YEAR:
            return False
        following = self._next(end)
        if following in ("AD", "BC", "BCE", "CE") or self.text[end : end + 5] in (" B.C.", " A.D."):
            return value > 999
        before = previous.rstrip(".")
        is_dated = before in _BEFORE_YEAR or before in tables.MONTH_NUMBERS
        if not 1100 <= value <= 2099:
            return is_dated and 1000 < value < 2200
        following = following.lower()
        is_plural = (
            len(following) > 3 and following.endswith("s") and not following.endswith(("ss", "us", "is"))
        )
        return is_dated or not (is_plural or following in _COUNTED)

    def _end_of_years(self, numbers: list[str], spoken: str) -> str:
        """The second part of 1914-18 and 2003-04."""
        first, second = numbers
        if len(first) == 4 and len(second) == 2 and second.isdecimal() and first[2:] < second:
            return say.two_digits(int(second))
        return spoken

    def _dressed(self, number: str, said: str, end: int) -> tuple[str, int]:
        """A day beside a month, or "50+"."""
        text = self.text
        if number.isdecimal() and 1 <= int(number[:3]) <= 31:
            previous = self.previous.rstrip(".")
            if previous[:1].isupper() and previous.lower() in tables.MONTH_NUMBERS:
                return say.ordinal(int(number)), end
            following = self._next(end)
            if following[:1].isupper() and following.lower() in tables.MONTH_NUMBERS and text[end] == " ":
                article = "" if self.previous.lower() == "the" else "the "
                return f"{article}{say.ordinal(int(number))} of", end
        if text.startswith("+", end) and not text[end + 1 : end + 2].isalnum():
            following = self._next(end + 1)
            if not following[:1].isdecimal() and following not in ("=", "+", "("):
                return f"{said} plus", end + 1
        return said, end
